import type { Readable } from "node:stream";
import { Agent, type Dispatcher } from "undici";
import type { z } from "zod";
import { RuntimeError } from "../errors.ts";
import type { EngineAddress } from "./address.ts";
import { startDeadline } from "./deadline.ts";
import { EngineRefused, hostUnreachable, readMessage } from "./engine-errors.ts";
import { type Hijacked, hijack } from "./hijack.ts";
import { InFlight } from "./in-flight.ts";
import { Remembered } from "./remembered.ts";

/** Deadline of a call that an idle engine answers at once. */
export const SHORT_MS = 15_000;

export interface EngineCall {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "DELETE";
  /** Without the version. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is; `content-type` application/x-tar. */
  readonly tar?: Uint8Array | Readable;
  /** Limit of the whole call; for streams: longest silence. Default `SHORT_MS`. */
  readonly ms?: number;
}

/** API versions whose answers these clients read. The older is Docker 19.03's. */
const OLDEST_API: ApiVersion = [1, 40];
const NEWEST_API: ApiVersion = [1, 47];
type ApiVersion = readonly [major: number, minor: number];

/**
 * HTTP to one engine. A call ends in its answer, in `EngineRefused` (any status that is no success), in
 * `RuntimeError("HostUnreachable")`, or in the caller's own abort reason; never in silence.
 */
export class EngineTransport {
  readonly #agent: Agent;
  readonly #origin: string;
  readonly #calls = new InFlight();
  readonly #version = new Remembered((signal) => this.#negotiate(signal), 2 * SHORT_MS);

  constructor(address: EngineAddress) {
    const tls = address.kind === "tcp" ? address.tls : undefined;
    const connect =
      address.kind === "unix"
        ? { socketPath: address.path, timeout: SHORT_MS }
        : { timeout: SHORT_MS, ...(tls === undefined ? {} : { ca: tls.ca, cert: tls.cert, key: tls.key }) };
    this.#agent = new Agent({ connect, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 30_000 });
    this.#origin =
      address.kind === "unix"
        ? "http://engine"
        : `${tls === undefined ? "http" : "https"}://${address.host}:${address.port}`;
  }

  /** Calls `listener` whenever a connection begins or ends: what is known of the engine may be of another one. */
  onConnection(listener: () => void): void {
    this.#agent.on("connect", listener);
    this.#agent.on("disconnect", listener);
    this.#agent.on("connectionError", listener);
  }

  /** The parsed JSON answer. */
  async json<T>(schema: z.ZodType<T>, call: EngineCall, signal: AbortSignal): Promise<T> {
    const body = await this.#wholeBody(call, signal);
    try {
      return schema.parse(JSON.parse(body.toString()));
    } catch (cause) {
      throw hostUnreachable(`${nameOf(call)}: the engine's answer cannot be read`, cause);
    }
  }

  /** A call whose answer does not matter beyond its status. */
  async done(call: EngineCall, signal: AbortSignal): Promise<void> {
    await this.#wholeBody(call, signal);
  }

  /** The answer as it arrives. Silence longer than the call's limit throws. */
  async *stream(call: EngineCall, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    using _ = this.#calls.begin();
    using deadline = startDeadline({ parent: signal, ms: call.ms ?? SHORT_MS, what: nameOf(call) });
    const response = await this.#request(call, deadline.signal);
    try {
      for await (const chunk of response.body) {
        deadline.progress();
        yield chunk;
        deadline.progress();
      }
    } catch (error) {
      throw broken(call, error, deadline.signal);
    }
  }

  /** A connection taken over for a raw stream. The deadline covers the answer to the upgrade only. */
  async upgrade(path: string, json: unknown, signal: AbortSignal): Promise<Hijacked> {
    using _ = this.#calls.begin();
    const call: EngineCall = { method: "POST", path };
    using deadline = startDeadline({ parent: signal, ms: SHORT_MS, what: nameOf(call) });
    const versioned = await this.#versioned(path, deadline.signal);
    try {
      const request = { agent: this.#agent, origin: this.#origin, path: versioned, json };
      return await hijack(request, deadline.signal);
    } catch (error) {
      throw broken(call, error, deadline.signal);
    }
  }

  /** Calls in flight may end until `patience` aborts; without it they are cut. Later ones are refused. */
  async close(patience: AbortSignal = AbortSignal.abort()): Promise<void> {
    // Not the agent's own close(): once it waits, nothing can cut what it waits for.
    await this.#calls.idle(patience);
    await this.#agent.destroy();
  }

  async #wholeBody(call: EngineCall, signal: AbortSignal): Promise<Buffer> {
    using _ = this.#calls.begin();
    using deadline = startDeadline({ parent: signal, ms: call.ms ?? SHORT_MS, what: nameOf(call) });
    const response = await this.#request(call, deadline.signal);
    return await collect(call, response, deadline.signal);
  }

  async #request(call: EngineCall, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const response = await this.#send(call, await this.#versioned(call.path, signal), signal);
    if (isSuccess(response.statusCode)) return response;
    const body = (await collect(call, response, signal)).toString();
    throw new EngineRefused(
      response.statusCode,
      readMessage(body) ?? `HTTP ${response.statusCode}: ${body.slice(0, 300)}`,
    );
  }

  async #send(call: EngineCall, path: string, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const query = new URLSearchParams(call.query).toString();
    const type =
      call.json === undefined ? (call.tar === undefined ? undefined : "application/x-tar") : "application/json";
    try {
      return await this.#agent.request({
        origin: this.#origin,
        path: query === "" ? path : `${path}?${query}`,
        method: call.method,
        headers: { ...call.headers, ...(type === undefined ? {} : { "content-type": type }) },
        body: call.json === undefined ? (call.tar ?? null) : JSON.stringify(call.json),
        signal,
      });
    } catch (error) {
      throw broken(call, error, signal);
    }
  }

  async #versioned(path: string, signal: AbortSignal): Promise<string> {
    return `/v${await this.#version.get(signal)}${path}`;
  }

  async #negotiate(signal: AbortSignal): Promise<string> {
    const call: EngineCall = { method: "GET", path: "/_ping" };
    using deadline = startDeadline({ parent: signal, ms: SHORT_MS, what: nameOf(call) });
    const response = await this.#send(call, call.path, deadline.signal);
    await collect(call, response, deadline.signal);
    const header = response.headers["api-version"];
    const offered = typeof header === "string" ? parseVersion(header) : undefined;
    if (response.statusCode !== 200 || offered === undefined)
      throw new RuntimeError("HostUnreachable", `no container engine answers there (HTTP ${response.statusCode})`);
    if (isOlder(offered, OLDEST_API))
      throw new RuntimeError(
        "HostRefused",
        `the engine speaks API ${header}; ${OLDEST_API.join(".")} (Docker 19.03) or newer is needed`,
      );
    return (isOlder(NEWEST_API, offered) ? NEWEST_API : offered).join(".");
  }
}

/** 304 says that it was so already. Any other redirection comes from something that stands before the engine. */
const isSuccess = (status: number): boolean => (status >= 200 && status < 300) || status === 304;

function parseVersion(text: string): ApiVersion | undefined {
  const match = /^(\d+)\.(\d+)$/.exec(text);
  return match === null ? undefined : [Number(match[1]), Number(match[2])];
}

const isOlder = (a: ApiVersion, b: ApiVersion): boolean => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);

const nameOf = (call: EngineCall): string => `${call.method} ${call.path}`;

async function collect(call: EngineCall, response: Dispatcher.ResponseData, signal: AbortSignal): Promise<Buffer> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of response.body) chunks.push(chunk);
  } catch (error) {
    throw broken(call, error, signal);
  }
  return Buffer.concat(chunks);
}

/** An abort keeps its own reason (the caller's, or the deadline's), a refusal stays one; the rest is the connection's. */
function broken(call: EngineCall, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof EngineRefused || error instanceof RuntimeError) return error;
  return hostUnreachable(nameOf(call), error);
}
