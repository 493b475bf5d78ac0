import type { ServerResponse } from "node:http";
import { createServer, type Server, type ServerOptions } from "node:https";
import type { AddressInfo } from "node:net";
import type { Logger } from "pino";
import type { KubeClient } from "../kube/contract.ts";
import { EventRecorder } from "../kube/events.ts";
import { SECRETS } from "../kube/resource-types.ts";
import type { Clock } from "../reconciler/clock.ts";
import { untilAborted } from "../reconciler/deadline.ts";
import { AdmissionWebhook } from "./admission-webhook.ts";
import { GATEWAY_SERVICE } from "./apiservice.ts";
import { Authenticator } from "./authentication.ts";
import { Authorizer } from "./authorization.ts";
import { answerBrokenRequest, MOST_HEADER_BYTES } from "./broken-request.ts";
import type { CallLimits, DriverLookup } from "./call.ts";
import { pause } from "./follow-object.ts";
import { type FrontParts, serve } from "./front.ts";
import { InFlightLimit } from "./in-flight.ts";
import { namedHosts } from "./named-hosts.ts";
import { type Backend, Registration } from "./registration.ts";
import { type SandboxReader, sandboxWriter } from "./sandbox-store.ts";
import { ServingCertificate } from "./serving-certificate.ts";
import { joinedBundle, type ServingMaterial } from "./serving-material.ts";
import { TokenReviews } from "./token-reviews.ts";
import { TouchTrace } from "./touch-trace.ts";
import { TrustAnchor } from "./trust-anchor.ts";
import { untilDone } from "./until-done.ts";
import { worldStore } from "./world-store.ts";

export interface GatewayConfig {
  /** The installation's namespace, `agent-worlds-system`. */
  readonly namespace: string;
  /** Unique name of this gateway, a DNS label; name of its Lease. */
  readonly name: string;
  /** Address to listen on. */
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** DNS names and addresses for the certificate besides `localhost` and the Service's. */
  readonly names?: readonly string[];
  /** How kube-apiserver reaches the gateways; absent: it does not, and only direct clients are served. */
  readonly backend?: Backend;
  /** What kube-apiserver is to ask for over that way; both unless switched off. */
  readonly aggregation?: "Enabled" | "Disabled";
  readonly creatorStamp?: "Enabled" | "Disabled";
  /** PEM bundle of whoever signs kube-apiserver's client certificates for webhooks; absent: it need not have one. */
  readonly admissionClientCa?: string;
  readonly limits?: Partial<CallLimits>;
  /** Requests one identity may have under way. Default 512, of them 64 execs, which hold their bodies in memory. */
  readonly requestsPerIdentity?: number;
  readonly execsPerIdentity?: number;
  /** How long requests under way may go on after a stop. Default 25 s. */
  readonly drainMs?: number;
}

export interface GatewayOptions {
  readonly kube: KubeClient;
  readonly sandboxes: SandboxReader;
  readonly drivers: DriverLookup;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly config: GatewayConfig;
  /** Its abort is a call of `stop`. */
  readonly signal: AbortSignal;
}

/** A gateway that serves. */
export interface Gateway extends AsyncDisposable {
  readonly port: number;
  /** PEM bundle for direct clients. */
  readonly caBundle: string;
  /** Withdraws or hands over the registration, lets requests under way finish, closes. May be called again. */
  stop(): Promise<void>;
  /** Ends at once without withdrawing anything, as a killed process would; for tests of what is left behind. */
  abandon(): Promise<void>;
}

const DEFAULT_LIMITS: CallLimits = {
  execBodyBytes: 20 * 1024 * 1024,
  longPollMs: 45_000,
  proxiedExecSeconds: 50,
  stallMs: 60_000,
};

/** How long a stop waits for Events that are on their way. */
const FLUSH_MS = 2_000;

/**
 * Starts a gateway: certificate, request-header CA, listening, registration, in that order. Waits for an API server that
 * is away; rejects only when the signal aborts or the port cannot be had.
 */
export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  options.signal.throwIfAborted();
  const background = new AbortController();
  const running = new Running(options, background);
  try {
    return await start(options, running, background.signal);
  } catch (error) {
    await running.abandon();
    throw error;
  }
}

async function start(options: GatewayOptions, running: Running, background: AbortSignal): Promise<Gateway> {
  const { kube, clock, config, logger, signal } = options;
  const names = servingNames(config);
  const certificate = new ServingCertificate({ kube, clock, logger, namespace: config.namespace, names });
  const trust = new TrustAnchor({ kube, clock, logger });

  let material = await untilDone(() => certificate.ensure(signal), { clock, logger, signal });
  const tls = () => tlsOf(material, [trust.current?.ca, config.admissionClientCa]);
  const server = createServer(serverOptions(tls()));
  const useTls = () => server.setSecureContext(tls());
  const trustKnown = Promise.withResolvers<void>();
  const onTrust = () => {
    useTls();
    trustKnown.resolve();
  };
  running.keep(trust.follow(onTrust, background));
  await untilAborted(trustKnown.promise, signal);

  const front = running.front(trust);
  server.on("request", (request, response) => running.track(serve(front, request, response), response));
  server.on("clientError", answerBrokenRequest);
  // Node drops what is beyond a count without a word, also of the user's groups; the bytes are limited.
  server.maxHeadersCount = 0;
  const port = await listen(server, config);
  const registration = register(options, { port, caBundle: material.caBundle });
  running.serving(server, registration);
  const onMaterial = async (next: ServingMaterial) => {
    // Old and new are trusted before the first shows its new certificate, so that no call in between fails.
    await registration?.trust(joinedBundle(next.caBundle, material.caBundle), background);
    material = next;
    useTls();
    await registration?.trust(next.caBundle, background);
  };
  running.keep(certificate.keepFresh(onMaterial, background));
  if (registration !== undefined) running.keep(registration.keep(background));
  signal.addEventListener("abort", () => void running.stop(), { once: true });
  logger.info({ port }, "the gateway serves");
  return {
    port,
    get caBundle() {
      return material.caBundle;
    },
    stop: () => running.stop(),
    abandon: () => running.abandon(),
    [Symbol.asyncDispose]: () => running.stop(),
  };
}

function serverOptions(tls: ReturnType<typeof tlsOf>): ServerOptions {
  return {
    ...tls,
    requestCert: true,
    // An unknown client certificate is no identity, but no error either: a bearer token may follow.
    rejectUnauthorized: false,
    minVersion: "TLSv1.2",
    headersTimeout: 10_000,
    maxHeaderSize: MOST_HEADER_BYTES,
    // Files are streamed for as long as bytes move; bodies have deadlines of their own.
    requestTimeout: 0,
    // Above the 90 s after which Go drops idle connections, so that it is never the server that closes under a request.
    keepAliveTimeout: 120_000,
  };
}

/** What runs, and how it ends. */
class Running {
  readonly #options: GatewayOptions;
  readonly #background: AbortController;
  readonly #draining = new AbortController();
  readonly #givenUp = new AbortController();
  readonly #loops: Promise<void>[] = [];
  readonly #requests = new Set<Promise<void>>();
  readonly #recorder: EventRecorder;
  #server: Server | undefined;
  #registration: Registration | undefined;
  #stopped: Promise<void> | undefined;

  constructor(options: GatewayOptions, background: AbortController) {
    this.#options = options;
    this.#background = background;
    this.#recorder = new EventRecorder({
      client: options.kube,
      controller: "agentworlds.dev/gateway",
      instance: options.config.name,
      log: options.logger,
      clock: options.clock,
    });
  }

  serving(server: Server, registration: Registration | undefined): void {
    this.#server = server;
    this.#registration = registration;
  }

  /** A loop that lives as long as the gateway. */
  keep(loop: Promise<void>): void {
    this.#loops.push(
      loop.catch((error: unknown) => {
        if (!this.#background.signal.aborted) this.#options.logger.error({ err: error }, "a loop of the gateway ended");
      }),
    );
  }

  /** Counts a request as under way until its answer was handed to the kernel. */
  track(served: Promise<void>, response: ServerResponse): void {
    const request = served.then(() => sent(response));
    this.#requests.add(request);
    request.finally(() => this.#requests.delete(request));
  }

  front(trust: TrustAnchor): FrontParts {
    const { kube, clock, logger, config, sandboxes, drivers } = this.#options;
    const reviews = new TokenReviews({ kube, clock, signal: this.#givenUp.signal });
    return {
      authenticator: new Authenticator({ reviews, clock, trust: () => trust.current }),
      authorizer: new Authorizer({ kube, clock }),
      webhook: new AdmissionWebhook({ clock, clientCa: config.admissionClientCa }),
      parts: {
        reader: sandboxes,
        writer: sandboxWriter({ kube, reader: sandboxes, clock }),
        worlds: worldStore(kube, clock),
        secrets: kube.resource(SECRETS),
        drivers: namedHosts(drivers),
        touches: new TouchTrace({ recorder: this.#recorder, clock }),
        clock,
        limits: { ...DEFAULT_LIMITS, ...config.limits },
      },
      requests: new InFlightLimit(config.requestsPerIdentity ?? 512, "requests of this identity"),
      execs: new InFlightLimit(config.execsPerIdentity ?? 64, "commands of this identity"),
      logger,
      signal: this.#givenUp.signal,
      draining: this.#draining.signal,
      ready: () => this.#server?.listening === true && !this.#draining.signal.aborted,
    };
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  /** Order matters: first nobody is sent here any more, then nobody is accepted, then who is here may finish. */
  async #stop(): Promise<void> {
    const { clock, config, logger } = this.#options;
    this.#background.abort();
    await Promise.all(this.#loops);
    try {
      await this.#registration?.leave(AbortSignal.timeout(15_000));
    } catch (error) {
      logger.error(
        { err: error },
        "the registration could not be withdrawn; the controller will, when the Lease is stale",
      );
    }
    this.#draining.abort();
    const closed = this.#stopListening();
    const drained = new AbortController();
    const finished = Promise.allSettled(this.#requests).then(() => drained.abort());
    await Promise.race([finished, pause(clock, config.drainMs ?? 25_000, drained.signal)]);
    drained.abort();
    await this.#flushEvents();
    await this.#cut(closed);
  }

  abandon(): Promise<void> {
    this.#stopped ??= (async () => {
      this.#background.abort();
      await Promise.all([...this.#loops, this.#cut(this.#stopListening())]);
    })();
    return this.#stopped;
  }

  /** Accepts nobody any more; resolves when the last connection is gone. */
  #stopListening(): Promise<void> {
    const server = this.#server;
    if (server?.listening !== true) return Promise.resolve();
    return new Promise((resolve) => server.close(() => resolve()));
  }

  /** Gives up what is still under way. */
  async #cut(closed: Promise<void>): Promise<void> {
    this.#givenUp.abort(new DOMException("the gateway stops", "AbortError"));
    this.#server?.closeAllConnections();
    await closed;
    await Promise.allSettled(this.#requests);
    await this.#recorder.close();
  }

  /** Events are best effort: an API server that is away does not hold up the stop. */
  async #flushEvents(): Promise<void> {
    const patience = AbortSignal.timeout(FLUSH_MS);
    try {
      await this.#recorder.flush(patience);
    } catch (error) {
      if (!patience.aborted) throw error;
      this.#options.logger.warn({}, "some Events could not be written before the stop");
    }
  }
}

const sent = (response: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    if (response.writableFinished || response.destroyed) resolve();
    else response.once("close", resolve);
  });

function register(options: GatewayOptions, facts: { port: number; caBundle: string }): Registration | undefined {
  const { kube, clock, logger, config } = options;
  const offers = { aggregation: config.aggregation !== "Disabled", stamp: config.creatorStamp !== "Disabled" };
  if (config.backend === undefined || !(offers.aggregation || offers.stamp)) return undefined;
  return new Registration({
    kube,
    clock,
    logger,
    namespace: config.namespace,
    gateway: config.name,
    backend: config.backend,
    offers,
    ...facts,
  });
}

/** `authorities`: PEM bundles of client certificates. */
function tlsOf(
  material: ServingMaterial,
  authorities: readonly (string | undefined)[],
): { cert: string; key: string; ca: string[] } {
  // An empty list trusts no client certificate; left out, it would trust every public authority.
  const ca = authorities.filter((bundle) => bundle !== undefined);
  return { cert: material.certificate, key: material.key, ca };
}

function servingNames(config: GatewayConfig): string[] {
  const service = `${GATEWAY_SERVICE}.${config.namespace}`;
  const own = ["localhost", "127.0.0.1", "::1", `${service}.svc`, service, `${service}.svc.cluster.local`];
  return [...new Set([...own, ...(config.names ?? [])])];
}

function listen(server: Server, config: GatewayConfig): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  server.once("error", reject);
  server.listen(config.port, config.host, () => {
    server.off("error", reject);
    const address: AddressInfo | string | null = server.address();
    if (address === null || typeof address === "string") reject(new Error("the gateway listens on no port"));
    else resolve(address.port);
  });
  return promise;
}
