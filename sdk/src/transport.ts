import { setTimeout as wait } from "node:timers/promises";
import type { Dispatcher } from "undici";
import { type CallOptions, Deadline, untilAborted } from "./deadline.ts";
import type { Endpoint, Lease } from "./endpoint.ts";
import { AgentWorldsError, DeadlineError, ProtocolError } from "./errors.ts";
import { type CallFacts, toRequestError } from "./failure-answer.ts";
import { judgeRetry, type Repetition, toConnectionError } from "./retry.ts";

/** One call of an HTTP API. */
export interface Call extends CallOptions {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Path of encoded segments, beginning with a slash. */
  readonly path: string;
  /** Encoded, without the question mark. */
  readonly query?: string | undefined;
  readonly body?: { readonly json: unknown } | { readonly bytes: Uint8Array } | undefined;
  readonly repetition: Repetition;
  /** Retries included. */
  readonly timeoutMs: number;
}

export interface TransportOptions {
  readonly endpoint: Endpoint;
  /** Whether it reaches the sessions API, for the advice in errors. */
  readonly isSession: (path: string) => boolean;
  /** Rejects with the signal's reason when that aborts. Default: a timer. */
  readonly sleep?: (milliseconds: number, signal: AbortSignal) => Promise<void>;
}

/** Largest JSON answer: an exec may bring 16 MiB of each stream, in base64. */
const MAX_JSON_BYTES = 64 * 1024 * 1024;
/** Largest line of a watch; etcd's limit of an object is 1.5 MiB. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;
const MAX_FAILURE_BYTES = 256 * 1024;

type Answer = Dispatcher.ResponseData;

/** HTTP with one deadline per call, typed errors, and only the retries that cannot do harm (retry.ts). */
export class Transport {
  readonly #endpoint: Endpoint;
  readonly #isSession: (path: string) => boolean;
  readonly sleep: (milliseconds: number, signal: AbortSignal) => Promise<void>;

  constructor(options: TransportOptions) {
    this.#endpoint = options.endpoint;
    this.#isSession = options.isSession;
    this.sleep = options.sleep ?? timer;
  }

  /** The answer's JSON. */
  json(call: Call): Promise<unknown> {
    return this.#exchange(call, async (answer) => {
      const text = (await bytesOf(answer, MAX_JSON_BYTES, call)).toString("utf8");
      try {
        return JSON.parse(text);
      } catch (cause) {
        throw new ProtocolError({ code: "NotJson", message: `the answer to ${describe(call)} is not JSON`, cause });
      }
    });
  }

  /** The answer's body, of at most `maxBytes`. */
  bytes(call: Call, maxBytes: number): Promise<Uint8Array> {
    return this.#exchange(call, async (answer) => new Uint8Array(await bytesOf(answer, maxBytes, call)));
  }

  /** The lines of a streamed answer as parsed JSON, until the server or the deadline ends it; never retried once it began. */
  async *lines(call: Call): AsyncGenerator<unknown> {
    const deadline = new Deadline(call.timeoutMs, call.signal);
    let answer: Answer | undefined;
    try {
      answer = await this.#exchange({ ...call, signal: deadline.signal }, async (opened) => opened);
      let rest = "";
      // A decoder keeps a character that is split between two chunks.
      for await (const chunk of answer.body.setEncoding("utf8")) {
        rest += String(chunk);
        const lines = rest.split("\n");
        rest = lines.pop() ?? "";
        if (rest.length > MAX_LINE_BYTES) throw tooLarge(MAX_LINE_BYTES, call);
        for (const line of lines) if (line.trim() !== "") yield JSON.parse(line);
      }
    } catch (cause) {
      throw this.#failure(cause, call, deadline);
    } finally {
      if (answer !== undefined) discard(answer);
    }
  }

  /** The bytes of a streamed answer; never retried once it began. One that is cut before its end throws. */
  async *stream(call: Call): AsyncGenerator<Uint8Array> {
    const deadline = new Deadline(call.timeoutMs, call.signal);
    let answer: Answer | undefined;
    try {
      answer = await this.#exchange({ ...call, signal: deadline.signal }, async (opened) => opened);
      for await (const chunk of answer.body) yield chunk;
    } catch (cause) {
      throw this.#failure(cause, call, deadline);
    } finally {
      if (answer !== undefined) discard(answer);
    }
  }

  async #exchange<R>(call: Call, read: (answer: Answer) => Promise<R>): Promise<R> {
    const deadline = new Deadline(call.timeoutMs, call.signal);
    let refreshed = false;
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#try(call, deadline.signal, read);
      } catch (cause) {
        const error = this.#failure(cause, call, deadline);
        const elapsedMs = deadline.milliseconds - deadline.remainingMs;
        const verdict = judgeRetry(error, { repetition: call.repetition, tries, refreshed, elapsedMs });
        if (verdict.kind === "GiveUp") throw error;
        if (verdict.kind === "Refresh") {
          refreshed = true;
          this.#endpoint.refresh();
        } else await this.#pause(verdict.afterMs, { call, deadline, error });
      }
    }
  }

  async #try<R>(call: Call, signal: AbortSignal, read: (answer: Answer) => Promise<R>): Promise<R> {
    signal.throwIfAborted();
    const lease = await untilAborted(this.#endpoint.lease(), signal);
    const answer = await lease.dispatcher.request(wire(call, lease, signal));
    if (answer.statusCode < 300) return read(answer);
    const retryAfter = answer.headers["retry-after"];
    throw toRequestError(
      {
        status: answer.statusCode,
        body: parsed((await bytesOf(answer, MAX_FAILURE_BYTES, call)).toString("utf8")),
        retryAfter: typeof retryAfter === "string" ? retryAfter : undefined,
      },
      this.#facts(call),
    );
  }

  /** What is told of a pause that is cut short is the failure before it. */
  async #pause(milliseconds: number, at: { call: Call; deadline: Deadline; error: unknown }): Promise<void> {
    if (milliseconds > at.deadline.remainingMs) throw at.error;
    try {
      await this.sleep(milliseconds, at.deadline.signal);
    } catch (cause) {
      throw at.deadline.passed ? at.error : this.#failure(cause, at.call, at.deadline);
    }
  }

  /** The error to reject with: the caller's own reason, an error of ours, or a mistake in the code as it is. */
  #failure(cause: unknown, call: Call, deadline: Deadline): unknown {
    if (call.signal?.aborted === true) return call.signal.reason;
    if (cause instanceof AgentWorldsError) return cause;
    if (!deadline.passed) return toConnectionError(cause, describe(call)) ?? cause;
    const once = call.repetition === "Once";
    return new DeadlineError({
      code: "DeadlineExceeded",
      message: `${describe(call)} had no answer within ${deadline.milliseconds} ms`,
      remediation: once ? "look at what was done before you ask again" : "try again, or allow more with timeoutMs",
      outcomeUnknown: once,
      cause,
    });
  }

  #facts(call: Call): CallFacts {
    return { what: describe(call), isSession: this.#isSession(call.path), once: call.repetition === "Once" };
  }
}

function wire(call: Call, lease: Lease, signal: AbortSignal): Dispatcher.RequestOptions {
  const { body, query } = call;
  const isJson = body !== undefined && "json" in body;
  return {
    origin: lease.origin,
    path: `${lease.prefix}${call.path}${query === undefined ? "" : `?${query}`}`,
    method: call.method,
    headers: {
      accept: "application/json, */*",
      "user-agent": "agent-worlds-sdk",
      ...lease.headers,
      ...(body === undefined ? {} : { "content-type": isJson ? "application/json" : "application/octet-stream" }),
    },
    body: body === undefined ? null : isJson ? JSON.stringify(body.json) : body.bytes,
    signal,
  };
}

async function timer(milliseconds: number, signal: AbortSignal): Promise<void> {
  try {
    await wait(milliseconds, undefined, { signal });
  } catch (error) {
    // Node rejects with an AbortError of its own.
    signal.throwIfAborted();
    throw error;
  }
}

/** Without the query: a path in it may be nobody else's business. */
const describe = (call: Call): string => `${call.method} ${call.path}`;

async function bytesOf(answer: Answer, maxBytes: number, call: Call): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = Number(answer.headers["content-length"] ?? 0) > maxBytes ? maxBytes + 1 : 0;
  if (size === 0) {
    for await (const chunk of answer.body) {
      size += chunk.length;
      if (size > maxBytes) break;
      chunks.push(chunk);
    }
  }
  if (size <= maxBytes) return Buffer.concat(chunks);
  discard(answer);
  throw tooLarge(maxBytes, call);
}

/** Ends the connection of an answer that is not read to its end, and hears the error that undici tells of just that. */
function discard({ body }: Answer): void {
  body.on("error", () => undefined);
  body.destroy();
}

const tooLarge = (maxBytes: number, call: Call): ProtocolError =>
  new ProtocolError({
    code: "AnswerTooLarge",
    message: `the answer to ${describe(call)} is larger than ${maxBytes} bytes`,
    remediation: "read less, or allow more where the call has maxBytes",
  });

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Some hops answer in plain text, which then is the message.
    return text;
  }
}
