import { once } from "node:events";
import {
  createServer as createHttpServer,
  Agent as HttpAgent,
  type Server as HttpServer,
  request as httpRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  ServerResponse,
} from "node:http";
import { createServer as createHttpsServer, Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { createServer, isIP, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../hack/parts/ports.ts";
import { faultyBody } from "./fault-body.ts";
import { type ActiveRule, type FaultRule, FaultRules, type Hit, hitOf } from "./fault-rules.ts";
import { endToEnd, headersOf, pairs, pump, written } from "./fault-wire.ts";
import { readByPeer } from "./unread.ts";

export type { ActiveRule, Fault, FaultRule } from "./fault-rules.ts";

/** Between whom the proxy stands. */
export interface FaultProxyOptions {
  targetHost: string;
  targetPort: number;
  /** Certificate that the proxy presents, PEM; absent: clients speak plain HTTP to it. */
  serverTls?: { cert: string; key: string };
  /** How the proxy speaks to the target, PEM; absent: plain HTTP. `servername` default: `targetHost` unless that is an address. */
  clientTls?: { ca: string; cert?: string; key?: string; servername?: string };
  /**
   * Keep connections to the target alive between requests: for a target behind TLS that is asked often. What comes right after
   * the target has ended may then be reset. Default: a connection of its own for each request.
   */
  keepAlive?: boolean;
  /** Default: a free one. */
  port?: number;
}

/** A proxy for HTTP/1.1, its streams and its upgrades, that does harm by rule. Without a rule it changes nothing. */
export interface FaultProxy extends AsyncDisposable {
  /** `http://127.0.0.1:PORT` or `https://…` */
  readonly url: string;
  readonly port: number;
  /** Connections open now. */
  readonly connections: number;
  /** Puts a rule in force. All rules that match a request apply to it together. */
  add(rule: FaultRule): ActiveRule;
  /** Takes every rule out of force. */
  clear(): void;
  /** Resets every open connection. */
  cut(): void;
  /** Stops forwarding in both directions on all connections, which stay open (a network partition), until `heal`. */
  partition(): void;
  heal(): void;
  /** Resets every connection and refuses new ones, until `up`. */
  down(): Promise<void>;
  /** Listens again on the same port. */
  up(): Promise<void>;
  /** Presents another certificate to connections made from now on. @throws TypeError on a plain proxy. */
  rotateServerTls(tls: { cert: string; key: string }): void;
}

/** Starts a proxy on loopback. */
export async function startFaultProxy(options: FaultProxyOptions): Promise<FaultProxy> {
  const proxy = new RunningProxy(options);
  await proxy.up();
  return proxy;
}

class RunningProxy implements FaultProxy {
  readonly #options: FaultProxyOptions;
  readonly #rules = new FaultRules();
  /** By the client's port: the socket that a request names is the TLS one, which cannot be reset. */
  readonly #connections = new Map<number, Connection>();
  readonly #inner: HttpServer;
  readonly #closing = new AbortController();
  /** Undefined: a connection for each request. */
  readonly #agent: HttpAgent | undefined;
  readonly #rotate: ((tls: { cert: string; key: string }) => void) | undefined;
  #listener: Server | undefined;
  #port: number;
  #healed: PromiseWithResolvers<void> | undefined;

  constructor(options: FaultProxyOptions) {
    this.#options = options;
    this.#port = options.port ?? 0;
    if (options.keepAlive === true) {
      const settings = { keepAlive: true, maxSockets: Number.POSITIVE_INFINITY };
      this.#agent = options.clientTls === undefined ? new HttpAgent(settings) : new HttpsAgent(settings);
    }
    if (options.serverTls === undefined) {
      this.#inner = createHttpServer();
    } else {
      const secure = createHttpsServer({ ...options.serverTls, ALPNProtocols: ["http/1.1"] });
      this.#rotate = (tls) => secure.setSecureContext(tls);
      this.#inner = secure;
    }
    // A proxy that ends what the target would have kept open would be a fault that nobody asked for.
    this.#inner.requestTimeout = 0;
    this.#inner.keepAliveTimeout = 0;
    this.#inner.on("request", (request, response) => this.#guarded(request, () => this.#relay(request, response)));
    this.#inner.on("upgrade", (request, socket, head) =>
      this.#guarded(request, () => this.#relayUpgrade(request, socket, head)),
    );
  }

  get url(): string {
    return `${this.#options.serverTls === undefined ? "http" : "https"}://127.0.0.1:${this.#port}`;
  }

  get port(): number {
    return this.#port;
  }

  get connections(): number {
    return this.#connections.size;
  }

  add(rule: FaultRule): ActiveRule {
    return this.#rules.add(rule);
  }

  clear(): void {
    this.#rules.clear();
  }

  cut(): void {
    for (const { socket } of this.#connections.values()) socket.resetAndDestroy();
  }

  partition(): void {
    this.#healed ??= Promise.withResolvers();
  }

  heal(): void {
    this.#healed?.resolve();
    this.#healed = undefined;
  }

  async up(): Promise<void> {
    if (this.#listener !== undefined) return;
    if (this.#port === 0) this.#port = await freePort();
    const listener = createServer((socket) => this.#accept(socket));
    listener.listen({ host: "127.0.0.1", port: this.#port });
    await once(listener, "listening");
    this.#listener = listener;
  }

  async down(): Promise<void> {
    const listener = this.#listener;
    this.#listener = undefined;
    const closed = listener === undefined ? undefined : once(listener, "close");
    listener?.close();
    this.cut();
    await closed;
  }

  rotateServerTls(tls: { cert: string; key: string }): void {
    if (this.#rotate === undefined) throw new TypeError("a plain proxy has no certificate");
    this.#rotate(tls);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new Error("the fault proxy was closed"));
    this.heal();
    await this.down();
    this.#agent?.destroy();
  }

  #accept(socket: Socket): void {
    const port = socket.remotePort ?? 0;
    const closed = new AbortController();
    this.#connections.set(port, { socket, closed: closed.signal });
    socket.on("close", () => {
      this.#connections.delete(port);
      closed.abort(new Error("the client's connection closed"));
    });
    // A reset by either side is what this proxy is for.
    socket.on("error", () => socket.destroy());
    this.#inner.emit("connection", socket);
  }

  /** An exchange that breaks on the way to the target breaks the same way for the client. */
  #guarded(request: IncomingMessage, exchange: () => Promise<void>): void {
    exchange().catch(() => this.#reset(request));
  }

  #reset(request: IncomingMessage): void {
    this.#connectionOf(request)?.socket.resetAndDestroy();
  }

  async #relay(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const signal = this.#untilClosed(request);
    const hits = this.#rules.hit(request.method ?? "", request.url ?? "");
    if (!(await this.#admit(request, response, { hits, signal }))) return;
    const answer = await this.#ask(request, signal);
    if (answer.kind === "upgrade") throw new Error("the target upgraded a request that did not ask for it");
    await this.#answer(request, answer.response, { response, hits, signal });
  }

  async #relayUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const signal = this.#untilClosed(request);
    const hits = this.#rules.hit(request.method ?? "", request.url ?? "");
    const response = new ServerResponse(request);
    if (request.socket === socket) response.assignSocket(request.socket);
    if (!(await this.#admit(request, response, { hits, signal }))) return;
    const answer = await this.#ask(request, signal);
    if (answer.kind === "response") {
      await this.#answer(request, answer.response, { response, hits, signal });
      socket.end();
      return;
    }
    if (request.socket === socket) response.detachSocket(request.socket);
    const { statusCode, statusMessage, rawHeaders } = answer.response;
    const lines = [`HTTP/1.1 ${statusCode} ${statusMessage}`, ...pairs(rawHeaders).map(([k, v]) => `${k}: ${v}`)];
    socket.write(`${lines.join("\r\n")}\r\n\r\n`);
    if (head.length > 0) answer.socket.write(head);
    if (answer.head.length > 0) socket.write(answer.head);
    const outward = this.#gated(socket);
    const inward = this.#send(request, answer.socket, { to: socket, hits, signal });
    await Promise.all([pump(outward, answer.socket), inward]);
  }

  /** Applies the faults that come before forwarding. False: the request goes no further. */
  async #admit(
    request: IncomingMessage,
    response: ServerResponse,
    context: { hits: readonly Hit[]; signal: AbortSignal },
  ): Promise<boolean> {
    const { hits, signal } = context;
    const latency = hitOf(hits, "latency");
    if (latency !== undefined) {
      await sleep(latency.fault.milliseconds, undefined, { signal });
      latency.apply();
    }
    await this.#healed?.promise;
    for (const { fault, apply } of hits) {
      if (fault.kind === "reset" && "at" in fault && fault.at === "request") {
        apply();
        this.#reset(request);
        return false;
      }
      if (fault.kind === "silence") {
        apply();
        request.resume();
        return false;
      }
      if (fault.kind === "respond") {
        apply();
        request.resume();
        const body = Buffer.from(fault.body ?? "");
        this.#writeHead(response, hits, {
          status: fault.status,
          headers: { "content-length": body.length, ...fault.headers },
        });
        await this.#send(request, [body], { to: response, hits, signal });
        return false;
      }
    }
    return true;
  }

  async #ask(request: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    const { targetHost, targetPort, clientTls } = this.#options;
    const open = clientTls === undefined ? httpRequest : httpsRequest;
    const upstream = open({
      host: targetHost,
      port: targetPort,
      method: request.method,
      path: request.url,
      headers: request.headers.upgrade === undefined ? endToEnd(request.rawHeaders) : headersOf(request.rawHeaders),
      setHost: false,
      agent: this.#agent ?? false,
      signal,
      ...(clientTls === undefined ? {} : { ...namedHost(targetHost), ALPNProtocols: ["http/1.1"], ...clientTls }),
    });
    const answer = new Promise<Answer>((resolve, reject) => {
      upstream.on("error", reject);
      upstream.on("response", (response) => resolve({ kind: "response", response }));
      upstream.on("upgrade", (response, socket, head) => {
        socket.on("error", () => socket.destroy());
        resolve({ kind: "upgrade", response, socket, head });
      });
    });
    const isUpgrade = request.headers.upgrade !== undefined;
    const body = isUpgrade ? Promise.resolve(upstream.end()) : pump(this.#gated(request), upstream);
    // A target may answer without having read the whole body, and then stops reading.
    const [only] = await Promise.all([answer, Promise.race([body, answer])]);
    return only;
  }

  async #answer(
    request: IncomingMessage,
    upstream: IncomingMessage,
    context: { response: ServerResponse; hits: readonly Hit[]; signal: AbortSignal },
  ): Promise<void> {
    const { response, hits, signal } = context;
    const lost = hits.find(({ fault }) => fault.kind === "reset" && "at" in fault && fault.at === "answer");
    if (lost !== undefined) {
      lost.apply();
      this.#reset(request);
      return;
    }
    await this.#healed?.promise;
    this.#writeHead(response, hits, {
      status: upstream.statusCode ?? 502,
      message: upstream.statusMessage ?? "",
      headers: endToEnd(upstream.rawHeaders),
    });
    await this.#send(request, upstream, { to: response, hits, signal });
  }

  #writeHead(
    response: ServerResponse,
    hits: readonly Hit[],
    head: { status: number; message?: string; headers: OutgoingHttpHeaders },
  ): void {
    const headers = { ...head.headers };
    // Its length is not what it was.
    if (hitOf(hits, "duplicate-lines") !== undefined || hitOf(hits, "stale-lines") !== undefined) {
      delete headers["content-length"];
    }
    if (head.message === undefined) response.writeHead(head.status, headers);
    else response.writeHead(head.status, head.message, headers);
    response.flushHeaders();
  }

  async #send(
    request: IncomingMessage,
    from: AsyncIterable<Buffer> | Iterable<Buffer>,
    context: { to: NodeJS.WritableStream; hits: readonly Hit[]; signal: AbortSignal },
  ): Promise<void> {
    const { to, hits, signal } = context;
    for await (const step of faultyBody(this.#gated(from), hits, signal)) {
      if (step.kind === "reset") {
        const socket = this.#connectionOf(request)?.socket;
        if (socket !== undefined) await readByPeer(socket, signal);
        return this.#reset(request);
      }
      if (step.kind === "stall") return neverUntil(signal);
      await written(to, step.bytes);
    }
    to.end();
  }

  /** Hands on what comes, and nothing during a partition. */
  async *#gated(from: AsyncIterable<Buffer> | Iterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of from) {
      await this.#healed?.promise;
      yield chunk;
    }
  }

  /** Aborts when the client's connection or this proxy closes. */
  #untilClosed(request: IncomingMessage): AbortSignal {
    const closed = this.#connectionOf(request)?.closed ?? AbortSignal.abort(new Error("the connection is closed"));
    return AbortSignal.any([closed, this.#closing.signal]);
  }

  #connectionOf(request: IncomingMessage): Connection | undefined {
    return this.#connections.get(request.socket.remotePort ?? -1);
  }
}

interface Connection {
  socket: Socket;
  /** Aborts when the socket closes. */
  closed: AbortSignal;
}

type Answer =
  | { kind: "response"; response: IncomingMessage }
  | { kind: "upgrade"; response: IncomingMessage; socket: Duplex; head: Buffer };

/** Rejects when the signal aborts, and not before. */
function neverUntil(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

/** RFC 6066 knows no server name for an address. */
function namedHost(host: string): { servername?: string } {
  return isIP(host) === 0 ? { servername: host } : {};
}
