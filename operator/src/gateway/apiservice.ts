import type { Logger } from "pino";
import type { KubeClient, ResourceClient } from "../kube/contract.ts";
import { isConflict, isNotFound } from "../kube/errors.ts";
import { API_SERVICES, SERVICES } from "../kube/resource-types.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { GROUP, VERSION } from "./discovery.ts";
import { pause } from "./follow-object.ts";
import { GatewayLeases, RENEW_MS } from "./gateway-lease.ts";
import { GatewayWatch } from "./gateway-watch.ts";

/** Name of the APIService; rights to it are granted by this name. */
export const API_SERVICE = `${VERSION}.${GROUP}`;
/** Name of the Service in the installation's namespace. */
export const GATEWAY_SERVICE = "agent-worlds-gateway";
const OWNED = { "app.kubernetes.io/managed-by": "agent-worlds" };
const CALL_DEADLINE_MS = 10_000;
/** First pause after a pass that failed; it doubles up to the renewal period. */
const RETRY_MS = 250;
/** A controller that saw no gateway may withdraw what a starting one has just found in order: it looks again so soon. */
const SECOND_LOOK_MS = 2_000;

interface ApiService extends KubeObject {
  readonly spec?: {
    readonly caBundle?: string;
    readonly service?: { readonly namespace?: string; readonly name?: string; readonly port?: number };
  };
}

/** How kube-apiserver reaches the gateways. */
export type Backend =
  /** The chart's Service selects the gateway pods. */
  | { readonly kind: "InCluster"; readonly port: number }
  /** Outside a cluster: a Service of type ExternalName that points at the gateway's host. */
  | { readonly kind: "External"; readonly host: string };

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
}

/**
 * Registers the aggregated API while a gateway serves it. While an APIService's backend is down every namespace deletion
 * in the cluster hangs on stale discovery, so the registration must not outlive the last gateway.
 */
export class ApiRegistration {
  readonly #options: RegistrationOptions;
  readonly #leases: GatewayLeases;
  readonly #gateways: GatewayWatch;
  readonly #apiServices: ResourceClient<ApiService>;
  readonly #services: ResourceClient<KubeObject>;
  #caBundle: string;

  constructor(options: RegistrationOptions & { caBundle: string }) {
    this.#options = options;
    this.#caBundle = options.caBundle;
    this.#leases = new GatewayLeases(options.kube, options.namespace);
    this.#gateways = new GatewayWatch({ leases: this.#leases, clock: options.clock });
    this.#apiServices = options.kube.resource<ApiService>(API_SERVICES);
    this.#services = options.kube.resource<KubeObject>(SERVICES);
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
        this.#options.logger.warn({ err: error }, "registering the aggregated API failed; trying again");
        pauseMs = retryMs;
        retryMs = Math.min(retryMs * 2, RENEW_MS);
      }
      await pause(this.#options.clock, pauseMs, signal);
    }
  }

  /** One pass of `keep`. Writes nothing but the Lease when all is as it should be. */
  async assert(signal: AbortSignal): Promise<void> {
    const { clock, gateway: name, port } = this.#options;
    await this.#leases.renew({ name, port }, clock.now(), signal);
    // In every pass: who looks only when it matters has seen nothing long enough.
    const live = await this.#gateways.live(signal);
    const present = await this.#read(signal);
    const presentPort = present?.spec?.service?.port ?? 0;
    const isServed = presentPort === this.#ownPort() || live.some((gateway) => gateway.port === presentPort);
    if (this.#isAsWanted(present, presentPort) && isServed) return;
    await this.#apply(this.#ownPort(), signal);
    this.#options.logger.info({ apiService: API_SERVICE, port: this.#ownPort() }, "the aggregated API is registered");
  }

  /** Makes the API server trust a renewed authority before the gateway serves with it. */
  async trust(caBundle: string, signal: AbortSignal): Promise<void> {
    if (caBundle === this.#caBundle) return;
    this.#caBundle = caBundle;
    await this.assert(signal);
  }

  /** Orderly stop: the registration goes over to a gateway that lives on, or is withdrawn when this was the last. */
  async leave(signal: AbortSignal): Promise<void> {
    const { gateway, kube, namespace, logger } = this.#options;
    await this.#leases.release(gateway, signal);
    const others = await this.#gateways.proven(signal);
    const heir = others.find((other) => other.port !== undefined);
    if (others.length === 0) {
      const outcome = await withdraw(kube, { namespace, signal });
      logger.info({ outcome }, "this was the last gateway: the aggregated API is withdrawn");
    } else if (this.#options.backend.kind === "External" && heir?.port !== undefined) {
      const present = await this.#read(signal);
      if (present?.spec?.service?.port === this.#options.port) await this.#apply(heir.port, signal);
    }
  }

  #ownPort(): number {
    const { backend, port } = this.#options;
    return backend.kind === "InCluster" ? backend.port : port;
  }

  async #read(signal: AbortSignal): Promise<ApiService | undefined> {
    try {
      return await this.#apiServices.get({ name: API_SERVICE }, { signal, deadlineMs: CALL_DEADLINE_MS });
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  #isAsWanted(present: ApiService | undefined, port: number): boolean {
    const service = present?.spec?.service;
    return (
      present?.spec?.caBundle === encode(this.#caBundle) &&
      service?.name === GATEWAY_SERVICE &&
      service.namespace === this.#options.namespace &&
      (this.#options.backend.kind === "External" || port === this.#options.backend.port)
    );
  }

  async #apply(port: number, signal: AbortSignal): Promise<void> {
    const { namespace, backend } = this.#options;
    const options = { signal, deadlineMs: CALL_DEADLINE_MS };
    if (backend.kind === "External") {
      const ref = { namespace, name: GATEWAY_SERVICE };
      await this.#services.apply(
        ref,
        {
          apiVersion: "v1",
          kind: "Service",
          metadata: { ...ref, labels: OWNED },
          spec: { type: "ExternalName", externalName: backend.host },
        },
        options,
      );
    }
    await this.#apiServices.apply(
      { name: API_SERVICE },
      {
        apiVersion: "apiregistration.k8s.io/v1",
        kind: "APIService",
        metadata: { name: API_SERVICE, labels: OWNED },
        spec: {
          group: GROUP,
          version: VERSION,
          // Below the CRDs' own (1000): a high one would hijack `kubectl get sandboxes`.
          groupPriorityMinimum: 100,
          versionPriority: 10,
          caBundle: encode(this.#caBundle),
          service: { namespace, name: GATEWAY_SERVICE, port },
        },
      },
      options,
    );
  }
}

/** What became of the registration. */
export type Withdrawal = "Withdrawn" | "Absent" | "Kept";

/**
 * For the controller: withdraws the aggregated API when no gateway is seen to live, so that gateways that were killed do
 * not leave namespace deletions hanging. The caller keeps the watch and asks every few seconds. Throws kube errors.
 */
export async function withdrawIfNoGateway(
  kube: KubeClient,
  options: { gateways: GatewayWatch; namespace: string; signal: AbortSignal },
): Promise<Withdrawal> {
  const live = await options.gateways.live(options.signal);
  return live.length > 0 ? "Kept" : withdraw(kube, options);
}

/** Deletes the APIService, and the ExternalName Service that belongs to it. One that is not ours is kept. */
async function withdraw(kube: KubeClient, options: { namespace: string; signal: AbortSignal }): Promise<Withdrawal> {
  const { namespace, signal } = options;
  const apiService = await withdrawOne(kube.resource(API_SERVICES), { name: API_SERVICE }, signal);
  // A chart's Service carries Helm's own label and stays.
  await withdrawOne(kube.resource(SERVICES), { namespace, name: GATEWAY_SERVICE }, signal);
  return apiService;
}

async function withdrawOne(
  client: ResourceClient<KubeObject>,
  ref: { namespace?: string; name: string },
  signal: AbortSignal,
): Promise<Withdrawal> {
  const options = { signal, deadlineMs: CALL_DEADLINE_MS };
  try {
    const { metadata } = await client.get(ref, options);
    const ours = Object.entries(OWNED).every(([key, value]) => metadata.labels?.[key] === value);
    if (!ours) return "Kept";
    await client.delete(ref, { uid: metadata.uid, ...options });
    return "Withdrawn";
  } catch (error) {
    // Replaced meanwhile: a gateway has registered anew.
    if (isConflict(error)) return "Kept";
    if (isNotFound(error)) return "Absent";
    throw error;
  }
}

const encode = (text: string): string => Buffer.from(text).toString("base64");
