import type { Dispatcher } from "undici";
import { retryAfterMs } from "../reconciler/backoff.ts";
import { type Clock, monotonicNow, systemClock } from "../reconciler/clock.ts";
import { startDeadline, untilAborted } from "../reconciler/deadline.ts";
import { wordsOf } from "../reconciler/words-of.ts";
import { readAnswer, toApiError } from "./answer.ts";
import type { Connection, ConnectionLease } from "./connection.ts";
import { ApiError, ConnectionError } from "./errors.ts";
import { readLines } from "./lines.ts";

export interface TransportOptions {
  readonly connection: Connection;
  readonly clock?: Clock;
  /** Default 30 s. Includes waiting for a pooled connection and for `Retry-After`. */
  readonly deadlineMs?: number;
  /** Default `agent-worlds`. */
  readonly userAgent?: string;
  /** Largest answer read into memory, in bytes. Default 64 MiB: 500 objects of the size limit of etcd are fewer. */
  readonly maxAnswerBytes?: number;
  /** 0 ≤ x < 1, for jitter. Default `Math.random`. */
  readonly random?: () => number;
}

export interface TransportRequest {
  readonly method: string;
  /** Path with encoded segments, starting with a slash; without the query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** Default `application/json`. */
  readonly contentType?: string;
  readonly signal: AbortSignal;
  readonly deadlineMs?: number;
}

/** One line of a watch must be an object of at most etcd's size limit, with room for managed fields and escapes. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

/** Waits out `Retry-After` at most this often in one call, if the deadline leaves room. */
const MAX_THROTTLED_TRIES = 3;

/**
 * HTTP to the API server: one deadline per call, errors as two classes, and the retries that are safe for every method
 * (429: not carried out; 401 and an untrusted certificate: not carried out, tried once more with what the files hold now) or
 * for reads only (a connection that broke).
 */
export class Transport {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #deadlineMs: number;
  readonly #userAgent: string;
  readonly #maxAnswerBytes: number;
  readonly #random: () => number;

  constructor(options: TransportOptions) {
    this.#connection = options.connection;
    this.#clock = options.clock ?? systemClock;
    this.#deadlineMs = options.deadlineMs ?? 30_000;
    this.#userAgent = options.userAgent ?? "agent-worlds";
    this.#maxAnswerBytes = options.maxAnswerBytes ?? 64 * 1024 * 1024;
    this.#random = options.random ?? Math.random;
  }

  /**
   * One call. Resolves to the parsed JSON, or to the text when the answer is no JSON. Errors: `ApiError`, `ConnectionError`,
   * `ConnectionConfigError`, and the reason of the caller's signal when that aborts.
   */
  async call(request: TransportRequest): Promise<unknown> {
    const milliseconds = request.deadlineMs ?? this.#deadlineMs;
    using deadline = startDeadline({ clock: this.#clock, milliseconds, parent: request.signal });
    const endsAt = monotonicNow(this.#clock) + milliseconds;
    return await this.#withRetries(request, { signal: deadline.signal, endsAt }, async (lease) => {
      const response = await lease.calls.request(this.#wire(request, lease, deadline.signal));
      const answer = await readAnswer(response, this.#maxAnswerBytes);
      if (!isSuccess(response)) throw toApiError(response.statusCode, response.headers, answer);
      return answer;
    });
  }

  /**
   * Opens a streaming GET and yields each complete line as parsed JSON. A line cut off by the end of the stream is discarded.
   * Ends when the server ends it. The deadline holds until the headers are there; after that only the signal ends it.
   * Errors as `call`.
   */
  async *lines(request: TransportRequest): AsyncGenerator<unknown, void, undefined> {
    const response = await this.#open(request);
    try {
      for await (const line of readLines(response.body, MAX_LINE_BYTES)) yield parseLine(line);
    } catch (error) {
      request.signal.throwIfAborted();
      throw error instanceof ConnectionError ? error : brokenConnection(request, error);
    } finally {
      response.body.destroy();
    }
  }

  async #open(request: TransportRequest): Promise<Dispatcher.ResponseData> {
    const milliseconds = request.deadlineMs ?? this.#deadlineMs;
    using opening = startDeadline({ clock: this.#clock, milliseconds, parent: request.signal });
    const endsAt = monotonicNow(this.#clock) + milliseconds;
    return await this.#withRetries(request, { signal: opening.signal, endsAt }, async (lease) => {
      // The stream outlives the opening deadline, so it gets a controller of its own.
      const abort = new AbortController();
      const onCaller = () => abort.abort(request.signal.reason);
      request.signal.addEventListener("abort", onCaller, { once: true });
      try {
        const dispatched = lease.streams.request(this.#wire(request, lease, abort.signal));
        const response = await untilAborted(dispatched, opening.signal);
        if (!isSuccess(response)) {
          const answer = await untilAborted(readAnswer(response, this.#maxAnswerBytes), opening.signal);
          throw toApiError(response.statusCode, response.headers, answer);
        }
        response.body.once("close", () => request.signal.removeEventListener("abort", onCaller));
        return response;
      } catch (error) {
        request.signal.removeEventListener("abort", onCaller);
        // Also what began with a head: a body that goes on, or never does, would keep its socket.
        abort.abort(error);
        throw error;
      }
    });
  }

  async #withRetries<R>(
    request: TransportRequest,
    { signal, endsAt }: { signal: AbortSignal; endsAt: number },
    attempt: (lease: ConnectionLease) => Promise<R>,
  ): Promise<R> {
    let throttled = 0;
    let refreshed = false;
    let redialled = false;
    for (;;) {
      let lease: ConnectionLease | undefined;
      try {
        lease = await untilAborted(this.#connection.lease(), signal);
        return await attempt(lease);
      } catch (cause) {
        const error = this.#normalise(request, cause, signal);
        if (lease === undefined) throw error;
        if (!refreshed && wantsFreshCredentials(error)) {
          refreshed = true;
          this.#connection.refresh(lease.generation);
        } else if (!redialled && request.method === "GET" && error instanceof ConnectionError && !signal.aborted) {
          // A kept-alive connection that the server closed in this moment looks like this; a read loses nothing by a second try.
          redialled = true;
        } else if (throttled < MAX_THROTTLED_TRIES && isThrottled(error)) {
          throttled += 1;
          const pause = retryAfterMs(error.retryAfterMs ?? 1_000, this.#random());
          if (monotonicNow(this.#clock) + pause >= endsAt) throw error;
          await this.#pause(request, pause, signal);
        } else throw error;
      }
    }
  }

  async #pause(request: TransportRequest, milliseconds: number, signal: AbortSignal): Promise<void> {
    try {
      await this.#clock.sleep(milliseconds, signal);
    } catch (error) {
      throw this.#normalise(request, error, signal);
    }
  }

  /** The caller's own abort passes through as its reason; everything that is no answer becomes a `ConnectionError`. */
  #normalise(request: TransportRequest, error: unknown, signal: AbortSignal): unknown {
    request.signal.throwIfAborted();
    if (error instanceof ApiError || error instanceof ConnectionError) return error;
    if (signal.aborted) return brokenConnection(request, signal.reason);
    return isNetworkError(error) ? brokenConnection(request, error) : error;
  }

  #wire(request: TransportRequest, lease: ConnectionLease, signal: AbortSignal): Dispatcher.RequestOptions {
    const url = new URL(lease.server);
    const query = new URLSearchParams(request.query).toString();
    const prefix = url.pathname === "/" ? "" : url.pathname;
    const headers: Record<string, string> = {
      accept: "application/json",
      "user-agent": this.#userAgent,
      ...lease.headers,
    };
    if (request.body !== undefined) headers["content-type"] = request.contentType ?? "application/json";
    return {
      origin: url.origin,
      path: `${prefix}${request.path}${query === "" ? "" : `?${query}`}`,
      method: request.method,
      headers,
      body: request.body === undefined ? null : JSON.stringify(request.body),
      signal,
    };
  }
}

/** A redirect or an answer from a cache is somebody else's: the API server sends none to what is asked here. */
function isSuccess({ statusCode }: Dispatcher.ResponseData): boolean {
  return statusCode >= 200 && statusCode < 300;
}

function isThrottled(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status === 429;
}

/** The token or the trust anchor on disk may be newer than the one in memory. */
function wantsFreshCredentials(error: unknown): boolean {
  if (error instanceof ApiError) return error.status === 401;
  return error instanceof ConnectionError && UNTRUSTED.has(codeOf(error.cause));
}

const UNTRUSTED = new Set([
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "CERT_SIGNATURE_FAILURE",
  "CERT_HAS_EXPIRED",
]);

/** Failures before a byte of the request was sent. A reset during the TLS handshake is not told apart, so it is not here. */
const NEVER_SENT = new Set([
  ...UNTRUSTED,
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ETIMEDOUT",
  "UND_ERR_CONNECT_TIMEOUT",
]);

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}

/** undici and Node mark every failure of a connection with a code; a mistake of our own stays what it is. */
function isNetworkError(error: unknown): boolean {
  const code = codeOf(error);
  return code !== "" && code !== "UND_ERR_INVALID_ARG";
}

function brokenConnection(request: TransportRequest, cause: unknown): ConnectionError {
  const outcomeUnknown = !NEVER_SENT.has(codeOf(cause));
  return new ConnectionError(`${request.method} ${request.path}: ${wordsOf(cause)}`, { outcomeUnknown, cause });
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new ConnectionError("a line of the watch is not JSON", { outcomeUnknown: false, cause });
  }
}
