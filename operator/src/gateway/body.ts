import type { IncomingMessage } from "node:http";
import type * as z from "zod";
import { badRequest, Failure } from "./failure.ts";

/** A JSON body must arrive within this time. */
const BODY_DEADLINE_MS = 30_000;

/**
 * The request's JSON body, checked; an empty body counts as `{}`. Throws `Failure`: 413 above `maxBytes`, 400 for what is
 * not JSON or not of the schema, naming each field.
 */
export async function readJson<T>(
  request: IncomingMessage,
  schema: z.ZodType<T>,
  options: { maxBytes: number; signal: AbortSignal },
): Promise<T> {
  const text = await readText(request, options);
  let value: unknown = {};
  if (text.trim() !== "") {
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new Failure({
        status: 400,
        code: "BadJson",
        message: "the body is not JSON",
        remediation: "send one JSON object",
        cause: error,
      });
    }
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map((issue) => `${issue.path.join(".") || "body"}: ${issue.message}`);
  throw badRequest(
    "BadBody",
    issues.slice(0, 8).join("; "),
    "correct the fields named; docs/spec/sessions.md has each body",
  );
}

async function readText(request: IncomingMessage, options: { maxBytes: number; signal: AbortSignal }): Promise<string> {
  const tooLarge = () =>
    new Failure({
      status: 413,
      code: "BodyTooLarge",
      message: `the body is larger than ${options.maxBytes} bytes`,
      remediation: "put large input into a file of the session with PUT files?path=",
    });
  if (Number(request.headers["content-length"] ?? 0) > options.maxBytes) throw tooLarge();
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(BODY_DEADLINE_MS)]);
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of requestBytes(request, signal)) {
    size += chunk.length;
    if (size > options.maxBytes) throw tooLarge();
    chunks.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length));
  }
  return Buffer.concat(chunks).toString("utf8");
}

/**
 * The body's bytes; throws when the client goes away before its end. Leaving early keeps the connection, so that the
 * reason can still be answered (Node's own iterator would destroy it).
 */
export async function* requestBytes(request: IncomingMessage, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const onAbort = () => request.destroy();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      signal.throwIfAborted();
      yield chunk;
    }
    signal.throwIfAborted();
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
