import type { Logger } from "pino";
import type { KubeClient } from "../kube/contract.ts";
import { NAMESPACES } from "../kube/resource-types.ts";
import type { Clock } from "../reconciler/clock.ts";
import { apiService, externalService } from "./apiservice.ts";
import { pause } from "./follow-object.ts";
import { GatewayLeases, RENEW_MS } from "./gateway-lease.ts";
import { GatewayWatch, type LiveGateway } from "./gateway-watch.ts";
import { type Signpost, Signposts, type Withdrawal } from "./signpost.ts";
import { stampsByItself, stampWebhook } from "./stamp-webhook.ts";

/** First pause after a pass that failed; it doubles up to the renewal period. */
const RETRY_MS = 250;
/** A controller that saw no gateway may withdraw what a starting one has just found in order: it looks again so soon. */
const SECOND_LOOK_MS = 2_000;
/** kube-apiserver learns of a changed webhook by a watch: milliseconds, and what a busy machine may add. */
export const SETTLE_MS = 1_000;
const CALL_DEADLINE_MS = 10_000;

/** How kube-apiserver reaches the gateways. */
export type Backend =
  /** The chart's Service selects the gateway pods. */
  | { readonly kind: "InCluster"; readonly port: number }
  /** Outside a cluster: a Service of type ExternalName that points at the gateway's host. */
  | { readonly kind: "External"; readonly host: string };

/** What kube-apiserver is to ask the gateways for. */
export interface Offers {
  /** The sessions API. */
  readonly aggregation: boolean;
  /** The creator's stamp, where the API server does not stamp by itself. */
  readonly stamp: boolean;
}

export interface RegistrationOptions {
  readonly kube: KubeClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The installation's namespace. */
  readonly namespace: string;
  /** Unique name of this gateway: the pod's, or host and port. */
  readonly gateway: string;
  /** The port this gateway listens on. */
  readonly port: number;
  readonly backend: Backend;
  readonly offers: Offers;
}

/**
 * Makes kube-apiserver call the gateways while one serves. While an APIService's backend is down every namespace deletion in
 * the cluster hangs on stale discovery, and while a webhook's is, nobody creates anything: neither must outlive the last
 * gateway.
 */
export class Registration {
  readonly #options: RegistrationOptions;
  readonly #leases: GatewayLeases;
  readonly #gateways: GatewayWatch;
  readonly #signposts: Signposts;
  /** What leads kube-apiserver here, in the order in which it is put up: the way before what is reached by it. */
  readonly #service: Signpost | undefined;
  readonly #apiService: Signpost;
  readonly #webhook: Signpost;
  #caBundle: string;
  /** The webhook was last seen standing, so kube-apiserver may be asking here. */
  #isAsked = false;

  constructor(options: RegistrationOptions & { caBundle: string }) {
    const { kube, clock, namespace, backend } = options;
    this.#options = options;
    this.#caBundle = options.caBundle;
    this.#leases = new GatewayLeases(kube, namespace);
    this.#gateways = new GatewayWatch({ leases: this.#leases, clock });
    this.#signposts = new Signposts(kube);
    this.#service = backend.kind === "External" ? externalService(namespace, backend.host) : undefined;
    this.#apiService = apiService(namespace);
    this.#webhook = stampWebhook(namespace);
  }

  /** Renews the Lease and puts right what is not registered as it should be; ends with the signal. */
  async keep(signal: AbortSignal): Promise<void> {
    let retryMs = RETRY_MS;
    let nextMs = SECOND_LOOK_MS;
    while (!signal.aborted) {
      let pauseMs = nextMs;
      try {
        await this.assert(signal);
        nextMs = RENEW_MS;
        retryMs = RETRY_MS;
      } catch (error) {
        if (signal.aborted) return;
        this.#options.logger.warn({ err: error }, "registering the gateway failed; trying again");
        pauseMs = retryMs;
        retryMs = Math.min(retryMs * 2, RENEW_MS);
      }
      await pause(this.#options.clock, pauseMs, signal);
    }
  }

  /** One pass of `keep`. Writes nothing but the Lease when all is as it should be. */
  async assert(signal: AbortSignal): Promise<void> {
    const { kube, clock, gateway: name, port, offers } = this.#options;
    await this.#leases.renew({ name, port }, clock.now(), signal);
    // In every pass: who looks only when it matters has seen nothing long enough.
    const live = await this.#gateways.live(signal);
    if (this.#service !== undefined) await this.#keepOne(this.#service, { live }, signal);
    // An offer that was switched off since is taken back.
    if (offers.aggregation) await this.#keepOne(this.#apiService, { live }, signal);
    else await this.#withdraw(this.#apiService, signal);
    // In every pass: a cluster is upgraded, and policies are installed, while gateways serve.
    this.#isAsked = offers.stamp && !(await stampsByItself(kube, signal));
    if (!this.#isAsked) await this.#withdraw(this.#webhook, signal);
    else await this.#keepOne(this.#webhook, { live, namespaceUid: await this.#namespaceUid(signal) }, signal);
  }

  /** Makes the API server trust a renewed authority before the gateway serves with it. */
  async trust(caBundle: string, signal: AbortSignal): Promise<void> {
    if (caBundle === this.#caBundle) return;
    this.#caBundle = caBundle;
    await this.assert(signal);
    await this.#settle(signal);
  }

  /** Orderly stop: the registration goes over to a gateway that lives on, or is withdrawn when this was the last. */
  async leave(signal: AbortSignal): Promise<void> {
    const { gateway, kube, namespace, logger } = this.#options;
    await this.#leases.release(gateway, signal);
    const others = await this.#gateways.proven(signal);
    if (others.length > 0) {
      await this.#handOver(others, signal);
    } else {
      const outcome = await withdrawAll(kube, { namespace, signal });
      logger.info({ outcome }, "this was the last gateway: what led to it is withdrawn");
    }
    await this.#settle(signal);
  }

  /** Until kube-apiserver has seen a change of the webhook, it goes on asking as before, and creations would fail. */
  async #settle(signal: AbortSignal): Promise<void> {
    if (this.#isAsked) await pause(this.#options.clock, SETTLE_MS, signal);
  }

  async #handOver(others: readonly LiveGateway[], signal: AbortSignal): Promise<void> {
    const { backend, port } = this.#options;
    const heir = others.find((other) => other.port !== undefined)?.port;
    if (backend.kind !== "External" || heir === undefined) return;
    for (const signpost of [this.#apiService, this.#webhook]) {
      const present = await this.#signposts.read(signpost, signal);
      if (present === undefined || signpost.portOf(present) !== port) continue;
      const namespaceUid = signpost === this.#webhook ? await this.#namespaceUid(signal) : undefined;
      const way = { port: heir, caBundle: this.#caBundle, namespaceUid };
      await this.#signposts.lead(signpost, { present, way }, signal);
    }
  }

  async #keepOne(
    signpost: Signpost,
    ground: { live: readonly LiveGateway[]; namespaceUid?: string },
    signal: AbortSignal,
  ): Promise<void> {
    const present = await this.#signposts.read(signpost, signal);
    const port = this.#portFor(present && signpost.portOf(present), ground.live);
    const way = { port, caBundle: this.#caBundle, namespaceUid: ground.namespaceUid };
    if (await this.#signposts.lead(signpost, { present, way }, signal)) {
      this.#options.logger.info({ ...signpost.ref, port }, `${signpost.what} is registered`);
    }
  }

  async #namespaceUid(signal: AbortSignal): Promise<string> {
    const { kube, namespace } = this.#options;
    const options = { signal, deadlineMs: CALL_DEADLINE_MS };
    return (await kube.resource(NAMESPACES).get({ name: namespace }, options)).metadata.uid;
  }

  /** A port of another gateway that serves is left alone: no tug of war. */
  #portFor(present: number | undefined, live: readonly LiveGateway[]): number {
    const { backend, port } = this.#options;
    if (backend.kind === "InCluster") return backend.port;
    return present !== undefined && live.some((gateway) => gateway.port === present) ? present : port;
  }

  async #withdraw(signpost: Signpost, signal: AbortSignal): Promise<void> {
    const outcome = await this.#signposts.withdraw(signpost, signal);
    if (outcome === "Withdrawn") this.#options.logger.info(signpost.ref, `${signpost.what} is withdrawn: not needed`);
  }
}

/**
 * For the controller: withdraws everything that leads to gateways when none is seen to live, so that gateways that were
 * killed leave neither namespace deletions nor creations hanging. The caller keeps the watch and asks every few seconds.
 * Throws kube errors.
 */
export async function withdrawIfNoGateway(
  kube: KubeClient,
  options: { gateways: GatewayWatch; namespace: string; signal: AbortSignal },
): Promise<Withdrawal> {
  const live = await options.gateways.live(options.signal);
  return live.length > 0 ? "Kept" : withdrawAll(kube, options);
}

/** What refuses or hangs first, the way it leads last. `Withdrawn` when anything was that must not outlive the gateways. */
async function withdrawAll(
  kube: KubeClient,
  { namespace, signal }: { namespace: string; signal: AbortSignal },
): Promise<Withdrawal> {
  const signposts = new Signposts(kube);
  const webhook = await signposts.withdraw(stampWebhook(namespace), signal);
  const aggregated = await signposts.withdraw(apiService(namespace), signal);
  // Its host is not looked at: any that is ours goes.
  await signposts.withdraw(externalService(namespace, ""), signal);
  if (webhook === "Withdrawn" || aggregated === "Withdrawn") return "Withdrawn";
  return webhook === "Kept" || aggregated === "Kept" ? "Kept" : "Absent";
}
