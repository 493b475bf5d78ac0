/** The auditor's own HTTP: whole answers over TCP, TLS or a unix socket. Shares nothing with the clients of the operator. */
import { request as overHttp } from "node:http";
import { request as overHttps } from "node:https";

export interface Question {
  /** Absolute; with `socketPath` its host is a name only. */
  readonly url: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly socketPath?: string;
  /** PEM. */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string };
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

const WITHIN_MS = 60_000;

export function askOnce({ url, method = "GET", headers = {}, socketPath, tls }: Question): Promise<Answer> {
  const open = url.startsWith("https:") ? overHttps : overHttp;
  return new Promise((resolve, reject) => {
    const request = open(
      url,
      { method, headers, socketPath, ...tls, agent: false, signal: AbortSignal.timeout(WITHIN_MS) },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }),
        );
      },
    );
    request.on("error", reject);
    request.end();
  });
}

/** A server that has just started asks for patience with 429. */
const MOST_PATIENCE = 30;

/** JSON of an answer that must be 200. */
export async function askForJson(question: Question): Promise<unknown> {
  for (let asked = 1; ; asked++) {
    const { status, body } = await askOnce(question);
    if (status === 200) return JSON.parse(body.toString());
    const words = `${question.url} answered ${status}: ${body.toString().slice(0, 300)}`;
    if (status !== 429 || asked === MOST_PATIENCE) throw new Error(words);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}

export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The value at a path of members; undefined where there is none. */
export function at(value: unknown, ...path: readonly string[]): unknown {
  let found: unknown = value;
  for (const member of path) found = isRecord(found) ? found[member] : undefined;
  return found;
}

export const textAt = (value: unknown, ...path: readonly string[]): string | undefined => {
  const found = at(value, ...path);
  return typeof found === "string" ? found : undefined;
};

export const listAt = (value: unknown, ...path: readonly string[]): readonly unknown[] => {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
};
