import type { OutgoingHttpHeaders } from "node:http";

/** Writes everything that comes and ends the stream after it. */
export async function pump(from: AsyncIterable<Buffer>, to: NodeJS.WritableStream): Promise<void> {
  for await (const chunk of from) await written(to, chunk);
  to.end();
}

/** Resolves when the bytes were handed to the kernel. */
export function written(to: NodeJS.WritableStream, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    to.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

/** Raw headers as pairs, names as they were written. */
export function pairs(raw: readonly string[]): [string, string][] {
  return Array.from({ length: raw.length / 2 }, (_, i) => [raw[2 * i] ?? "", raw[2 * i + 1] ?? ""]);
}

/** Names in lower case, repeated ones kept apart. */
export function headersOf(raw: readonly string[]): OutgoingHttpHeaders {
  const headers: Record<string, string | string[]> = {};
  for (const [name, value] of pairs(raw)) {
    const key = name.toLowerCase();
    const before = headers[key];
    if (before === undefined) headers[key] = value;
    else headers[key] = Array.isArray(before) ? [...before, value] : [before, value];
  }
  return headers;
}

/** Without what concerns one connection only (RFC 9110, 7.6.1): each side keeps its own alive. */
export function endToEnd(raw: readonly string[]): OutgoingHttpHeaders {
  const { connection: _, "keep-alive": __, ...headers } = headersOf(raw);
  return headers;
}
