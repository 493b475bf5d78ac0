import type { Dispatcher } from "undici";
import { z } from "zod";
import { RegistryError } from "./errors.ts";
import type { ProgressDeadline } from "./progress.ts";

/** More of an error's body is not read. */
const LONGEST_ERROR_BODY = 64 * 1024;
const LONGEST_ERROR_TEXT = 300;

const errorsSchema = z.object({
  errors: z.array(z.object({ code: z.string().max(100), message: z.string().nullish() })).max(100),
});

export interface AnswerParts {
  readonly response: Dispatcher.ResponseData;
  readonly url: URL;
  readonly deadline: ProgressDeadline;
  /** Each chunk of the body renews the deadline. */
  readonly stream: boolean;
}

/** One HTTP answer. Dispose it: an unread body is cut off, and the deadline ends. */
export class Answer implements AsyncDisposable {
  readonly status: number;
  /** Where the answer came from, after redirects. */
  readonly url: URL;
  readonly #parts: AnswerParts;

  constructor(parts: AnswerParts) {
    this.status = parts.response.statusCode;
    this.url = parts.url;
    this.#parts = parts;
    // undici reports a cut-off as an event too; whoever reads the body gets it as an exception.
    parts.response.body.on("error", () => undefined);
  }

  /** All values of a header, in order. */
  headers(name: string): string[] {
    const value = this.#parts.response.headers[name];
    return value === undefined ? [] : Array.isArray(value) ? value : [value];
  }

  /** The first value of a header. */
  header(name: string): string | undefined {
    return this.headers(name)[0];
  }

  /** `Content-Length`, when there is a readable one. */
  get length(): number | undefined {
    const text = this.header("content-length") ?? "";
    return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
  }

  /** The body as it comes. A body that breaks off throws `Unavailable` carrying this answer's status. */
  async *chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    const { response, deadline, stream } = this.#parts;
    try {
      for await (const chunk of response.body) {
        if (!(chunk instanceof Uint8Array)) throw new TypeError("a response body must be bytes");
        // While the reader is busy elsewhere, the registry is not the one who is silent.
        if (stream) deadline.hold();
        yield chunk;
        if (stream) deadline.touch();
      }
    } catch (cause) {
      deadline.signal.throwIfAborted();
      throw new RegistryError("Unavailable", `the body from ${place(this.url)} broke off`, {
        status: this.status,
        cause,
      });
    }
  }

  /** The whole body. More than `maxBytes` throws `Refused`. */
  async bytes(maxBytes: number): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    let length = 0;
    for await (const chunk of this.chunks()) {
      length += chunk.length;
      if (length > maxBytes) {
        throw new RegistryError("Refused", `the body from ${place(this.url)} is longer than ${maxBytes} bytes`);
      }
      parts.push(chunk);
    }
    return Buffer.concat(parts, length);
  }

  /** The body as JSON of the given shape, or `Malformed`. `what` names it in the message. */
  async json<T>(schema: z.ZodType<T>, maxBytes: number, what: string): Promise<T> {
    return parseJson(await this.bytes(maxBytes), schema, what);
  }

  /** The failure this answer reports, by its status and the specification's error codes. Reads the body. */
  async failure(what: string): Promise<RegistryError> {
    const { reasons, text } = await this.#readErrors();
    const message = `${what}: ${place(this.url)} answered ${this.status}${text === "" ? "" : ` ${text}`}`;
    return new RegistryError(codeOf(this.status), message, { status: this.status, reasons });
  }

  /** Lets go of the body without ending the deadline, which a further request may share. */
  async discard(): Promise<void> {
    const { body } = this.#parts.response;
    const { signal } = this.#parts.deadline;
    if (body.destroyed || body.readableEnded || signal.aborted) return;
    // The short body of an error or a redirect is read away to keep the connection; content costs more than a new one.
    // What breaks off here says nothing: it was not wanted, and an abort shows at the caller's next step.
    const isContent = this.#parts.stream && this.status < 300;
    if (isContent || (this.length ?? 0) > LONGEST_ERROR_BODY) body.destroy();
    else await body.dump({ limit: LONGEST_ERROR_BODY, signal }).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.discard();
    this.#parts.response.body.destroy();
    this.#parts.deadline[Symbol.dispose]();
  }

  async #readErrors(): Promise<{ reasons: string[]; text: string }> {
    let body: Buffer;
    try {
      body = await this.bytes(LONGEST_ERROR_BODY);
    } catch (error) {
      // The status is the answer; a body that is too long or breaks off only costs the explanation.
      if (error instanceof RegistryError) return { reasons: [], text: "" };
      throw error;
    }
    const parsed = errorsSchema.safeParse(jsonOrUndefined(body));
    if (!parsed.success) return { reasons: [], text: "" };
    const text = parsed.data.errors.map((error) => `${error.code} ${error.message ?? ""}`.trim()).join("; ");
    return { reasons: parsed.data.errors.map((error) => error.code), text: oneLine(text) };
  }
}

/** `bytes` as JSON of the given shape, or `Malformed`. */
export function parseJson<T>(bytes: Uint8Array, schema: z.ZodType<T>, what: string): T {
  const json = jsonOrUndefined(bytes);
  if (json === undefined) throw new RegistryError("Malformed", `${what} is not JSON`);
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  throw new RegistryError("Malformed", `${what} is not as specified: ${oneLine(z.prettifyError(parsed.error))}`);
}

/** Scheme, host and path of a URL: queries carry upload states and signatures, which are credentials. */
export const place = (url: URL): string => `${url.origin}${url.pathname}`;

function codeOf(status: number): ConstructorParameters<typeof RegistryError>[0] {
  if (status === 401 || status === 403) return "Unauthorized";
  if (status === 404) return "NotFound";
  if (status === 408 || status === 429 || status >= 500) return "Unavailable";
  return status >= 400 ? "Refused" : "Malformed";
}

function jsonOrUndefined(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}

const oneLine = (text: string): string =>
  text
    .replace(/[\p{Cc}\s]+/gu, " ")
    .trim()
    .slice(0, LONGEST_ERROR_TEXT);
