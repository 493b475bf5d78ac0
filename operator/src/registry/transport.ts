import { Readable } from "node:stream";
import { type Agent, type Dispatcher, request } from "undici";
import type { Clock } from "../reconciler/clock.ts";
import { wordsOf } from "../reconciler/words-of.ts";
import { Answer, place } from "./answer.ts";
import { Authenticator, type Scope } from "./authentication.ts";
import type { RegistryLogin } from "./contract.ts";
import { RegistryError } from "./errors.ts";
import { type Lookup, pinnedAgent } from "./pinned-connect.ts";
import { type ProgressDeadline, startProgressDeadline } from "./progress.ts";
import { isLoopbackName } from "./reference.ts";
import { judgeUrl, type SourcePolicy } from "./source-policy.ts";

/** When a call may be sent again after a failure. */
export type Repeat =
  /** Twice is as good as once: reads, deletions, puts under a digest. */
  | "Always"
  /** Only when the registry cannot have acted on it: 429, or no connection was made. */
  | "WhenNotProcessed";

export interface TransportRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  readonly scopes: readonly Scope[];
  readonly repeat: Repeat;
  /** A `Call` has one deadline for everything; a `Stream` only has to keep moving once it has begun. */
  readonly kind: "Call" | "Stream";
  readonly signal: AbortSignal;
}

export interface TransportOptions {
  readonly origin: URL;
  readonly login: RegistryLogin | undefined;
  readonly ca: string | undefined;
  readonly policy: SourcePolicy;
  readonly clock: Clock;
  readonly deadlineMs: number;
  readonly lookup: Lookup | undefined;
  /** 0 ≤ x < 1, for jitter. */
  readonly random: () => number;
}

const MOST_REDIRECTS = 5;
/** The longest waits before the second, third and fourth try, unless the registry names its own; the shortest are half. */
const BACKOFF_MS = [200, 800, 3_200] as const;
const RETRIED_STATUSES = new Set([429, 502, 503, 504]);
/** Another 5xx of a read is asked for once more: distribution answers 500 while somebody puts the same manifest again. */
const READS_AGAIN = 1;
const NOT_IMPLEMENTED = 501;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
/** Failures before a request was on its way. */
const NOT_CONNECTED = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);
/** Failures on the way: the registry may or may not have acted. */
const CONNECTION_LOST = new Set(["ECONNRESET", "EPIPE", "ETIMEDOUT", "UND_ERR_SOCKET"]);
const LONGEST_TOKEN_ANSWER = 1024 * 1024;
/** Pieces in which a body is handed to the socket; each one taken is progress. */
const BODY_PIECE = 256 * 1024;

/**
 * HTTP to one registry: authentication, redirects, retries, deadlines and the address policy, so that the calls above
 * speak of the protocol only. Statuses are the caller's to judge, except 401, redirects and what is retried.
 */
export class Transport implements AsyncDisposable {
  readonly #options: TransportOptions;
  readonly #agent: Agent;
  readonly #authenticator: Authenticator;

  constructor(options: TransportOptions) {
    this.#options = options;
    this.#agent = pinnedAgent({ policy: options.policy, ca: options.ca, lookup: options.lookup });
    this.#authenticator = new Authenticator({
      clock: options.clock,
      login: options.login,
      fetchToken: (url, authorization, signal) => this.#fetchToken(url, authorization, signal),
    });
  }

  /** The registry's own address. */
  get origin(): URL {
    return this.#options.origin;
  }

  /** Sends a request until it has an answer that is not worth another try. */
  async send(wanted: TransportRequest): Promise<Answer> {
    const what = `${wanted.method} ${place(wanted.url)}`;
    const deadline = startProgressDeadline({
      clock: this.#options.clock,
      milliseconds: this.#options.deadlineMs,
      parent: wanted.signal,
      what,
    });
    try {
      return await this.#sendRepeatedly(wanted, deadline);
    } catch (error) {
      const aborted = deadline.signal.aborted;
      deadline[Symbol.dispose]();
      throw aborted ? deadline.signal.reason : error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }

  async #sendRepeatedly(wanted: TransportRequest, deadline: ProgressDeadline): Promise<Answer> {
    const startedAt = this.#options.clock.now();
    for (let attempt = 0; ; attempt += 1) {
      const outcome = await this.#attempt(wanted, deadline);
      const pause = pauseAfter(attempt, this.#options.random);
      if (outcome instanceof Answer) {
        const tries = moreTries(wanted, outcome);
        if (attempt >= tries && tries < BACKOFF_MS.length) return outcome;
        const asked = retryAfterMs(outcome.header("retry-after"), this.#options.clock.now());
        const wait = Math.max(asked ?? 0, pause ?? 0);
        const left = startedAt + this.#options.deadlineMs - this.#options.clock.now();
        if (pause === undefined || wait >= left) throw await refusedForNow(outcome, wanted, asked);
        await outcome.discard();
        await this.#options.clock.sleep(wait, deadline.signal);
        continue;
      }
      if (pause === undefined || !mayRepeat(wanted.repeat, outcome)) throw outcome.error;
      await this.#options.clock.sleep(pause, deadline.signal);
    }
  }

  /** One try: with authentication, once anew after a 401. A lost connection is an outcome, all else is thrown. */
  async #attempt(wanted: TransportRequest, deadline: ProgressDeadline): Promise<Answer | LostConnection> {
    const isOurs = wanted.url.origin === this.#options.origin.origin;
    try {
      const first = await this.#follow(wanted, deadline, isOurs);
      // A 401 from elsewhere is that host's business: our credentials are for the registry alone.
      if (first.status !== 401 || first.url.origin !== this.#options.origin.origin || !isOurs) return first;
      await first.discard();
      this.#authenticator.learn(first.headers("www-authenticate"), wanted.scopes);
      return await this.#follow(wanted, deadline, isOurs);
    } catch (error) {
      if (error instanceof LostConnection) return error;
      throw error;
    }
  }

  /** Redirects by hand: each hop is judged, and only the registry's own origin sees Authorization. */
  async #follow(wanted: TransportRequest, deadline: ProgressDeadline, isOurs: boolean): Promise<Answer> {
    const authorization = isOurs ? await this.#authenticator.authorize(wanted.scopes, deadline.signal) : undefined;
    let url = wanted.url;
    for (let hops = 0; ; hops += 1) {
      const own = url.origin === this.#options.origin.origin ? authorization : undefined;
      const answer = await this.#dispatch(wanted, { url, authorization: own, deadline });
      if (!REDIRECTS.has(answer.status)) return answer;
      const location = answer.header("location");
      await answer.discard();
      if (location === undefined || !URL.canParse(location, url.href)) {
        throw new RegistryError("Malformed", `${place(url)} redirects to nowhere`, { status: answer.status });
      }
      if (wanted.method !== "GET" && answer.status !== 307 && answer.status !== 308) {
        throw new RegistryError("Malformed", `${place(url)} redirects a ${wanted.method}`, { status: answer.status });
      }
      if (hops === MOST_REDIRECTS) throw new RegistryError("Malformed", `${place(wanted.url)} redirects too often`);
      url = new URL(location, url);
    }
  }

  async #dispatch(
    wanted: TransportRequest,
    hop: { url: URL; authorization: string | undefined; deadline: ProgressDeadline },
  ): Promise<Answer> {
    this.#requireAllowed(hop.url);
    const headers: Record<string, string> = {
      ...wanted.headers,
      "accept-encoding": "identity",
      "user-agent": "agent-worlds",
    };
    if (hop.authorization !== undefined) headers["authorization"] = hop.authorization;
    if (wanted.body !== undefined) headers["content-length"] = String(wanted.body.length);
    const response = await this.#roundTrip(hop.url, {
      method: wanted.method,
      headers,
      body: bodyOf(wanted.body, hop.deadline),
      signal: hop.deadline.signal,
    });
    if (wanted.kind === "Stream") hop.deadline.touch();
    return new Answer({ response, url: hop.url, deadline: hop.deadline, stream: wanted.kind === "Stream" });
  }

  async #fetchToken(url: URL, authorization: string | undefined, signal: AbortSignal): Promise<Uint8Array> {
    try {
      return await this.#fetchTokenOnce(url, authorization, signal);
    } catch (error) {
      const isFault = error instanceof RegistryError && error.status !== undefined && error.status >= 500;
      if (!isFault) throw error;
      await this.#options.clock.sleep(pauseAfter(0, this.#options.random), signal);
      return await this.#fetchTokenOnce(url, authorization, signal);
    }
  }

  async #fetchTokenOnce(url: URL, authorization: string | undefined, signal: AbortSignal): Promise<Uint8Array> {
    this.#requireAllowed(url);
    const headers = { accept: "application/json", ...(authorization === undefined ? {} : { authorization }) };
    using deadline = startProgressDeadline({
      clock: this.#options.clock,
      milliseconds: this.#options.deadlineMs,
      parent: signal,
      what: `token from ${place(url)}`,
    });
    const response = await this.#roundTrip(url, { method: "GET", headers, signal: deadline.signal });
    await using answer = new Answer({ response, url, deadline, stream: false });
    if (answer.status === 200) return await answer.bytes(LONGEST_TOKEN_ANSWER);
    // No redirect is followed: the login is for the realm that the registry named, and for nobody it names in turn.
    const failure = await answer.failure("token");
    const code = failure.code === "Unavailable" ? "Unavailable" : "Unauthorized";
    throw new RegistryError(code, failure.message, { status: failure.status, reasons: failure.reasons });
  }

  async #roundTrip(url: URL, options: RoundTrip): Promise<Dispatcher.ResponseData> {
    try {
      return await request(url, { ...options, dispatcher: this.#agent });
    } catch (error) {
      options.signal.throwIfAborted();
      if (error instanceof RegistryError) throw error;
      throw lostConnection(url, error);
    }
  }

  #requireAllowed(url: URL): void {
    if (url.protocol !== "https:" && !(url.protocol === "http:" && isLoopbackName(url.hostname))) {
      throw new RegistryError("SourceNotAllowed", `${place(url)} is not https`);
    }
    if (url.username !== "" || url.password !== "") {
      throw new RegistryError("SourceNotAllowed", `a URL on ${url.host} carries credentials`);
    }
    const verdict = judgeUrl(this.#options.policy, url);
    if (verdict.kind === "refused") throw new RegistryError("SourceNotAllowed", verdict.because);
  }
}

type RoundTrip = {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  headers: Record<string, string>;
  body?: Readable | Uint8Array | null;
  signal: AbortSignal;
};

/** The connection failed before there was an answer. Never leaves this file: callers see the `Unavailable` inside. */
class LostConnection extends Error {
  readonly error: RegistryError;
  readonly wasSent: boolean;
  constructor(error: RegistryError, wasSent: boolean) {
    super(error.message);
    this.error = error;
    this.wasSent = wasSent;
  }
}

function lostConnection(url: URL, cause: unknown): LostConnection | RegistryError {
  const code = cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : undefined;
  const why = code ?? wordsOf(cause);
  const error = new RegistryError("Unavailable", `no answer from ${url.origin}: ${why}`, { cause });
  if (code !== undefined && NOT_CONNECTED.has(code)) return new LostConnection(error, false);
  if (code !== undefined && CONNECTION_LOST.has(code)) return new LostConnection(error, true);
  // TLS failures and broken HTTP do not heal within a call.
  return error;
}

/** The wait before the try that follows this one, the first being number 0. Undefined: there is none. */
function pauseAfter(attempt: 0, random: () => number): number;
function pauseAfter(attempt: number, random: () => number): number | undefined;
function pauseAfter(attempt: number, random: () => number): number | undefined {
  const longest = BACKOFF_MS[attempt];
  return longest === undefined ? undefined : longest * (0.5 + random() / 2);
}

/** How many tries more an answer is worth at most. */
function moreTries(wanted: TransportRequest, { status }: Answer): number {
  if (status === 429 || (RETRIED_STATUSES.has(status) && wanted.repeat === "Always")) return BACKOFF_MS.length;
  const isFault = status >= 500 && status !== NOT_IMPLEMENTED && !RETRIED_STATUSES.has(status);
  return isFault && wanted.method === "GET" ? READS_AGAIN : 0;
}

const mayRepeat = (repeat: Repeat, lost: LostConnection): boolean => repeat === "Always" || !lost.wasSent;

async function refusedForNow(
  answer: Answer,
  wanted: TransportRequest,
  asked: number | undefined,
): Promise<RegistryError> {
  const failure = await answer.failure(`${wanted.method} ${place(wanted.url)}`);
  return new RegistryError(failure.code, failure.message, {
    status: failure.status,
    reasons: failure.reasons,
    retryAfterMs: asked,
  });
}

/** `Retry-After` in milliseconds from now: seconds or an HTTP date. */
export function retryAfterMs(header: string | undefined, now: number): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

/** A large body goes out in pieces, and each piece that the socket takes renews the deadline. */
function bodyOf(body: Uint8Array | undefined, deadline: ProgressDeadline): Readable | Uint8Array | null {
  if (body === undefined || body.length <= BODY_PIECE) return body ?? null;
  const pieces = function* () {
    for (let start = 0; start < body.length; start += BODY_PIECE) {
      deadline.touch();
      yield body.subarray(start, start + BODY_PIECE);
    }
  };
  return Readable.from(pieces(), { objectMode: false });
}
