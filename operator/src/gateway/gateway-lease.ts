import type { KubeClient, ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import { LEASES } from "../kube/resource-types.ts";
import { type Clock, monotonicNow } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";

/** Every serving gateway holds a Lease with this label in the installation's namespace. */
const ROLE_LABEL = "agentworlds.dev/role";
const ROLE_SELECTOR = `${ROLE_LABEL}=gateway`;
const PORT_ANNOTATION = "agentworlds.dev/gateway-port";
/** A gateway that has not renewed for this long is not counted. */
export const LEASE_SECONDS = 30;
export const RENEW_MS = 10_000;
/** A Lease this old is of a gateway that was killed, and is removed. */
const FORGET_MS = 600_000;
const CALL_DEADLINE_MS = 10_000;

interface Lease extends KubeObject {
  readonly spec?: { readonly renewTime?: string };
}

/** A renewal is waited for this long: one period, and the time a busy machine may add. */
const PROOF_MS = RENEW_MS + 2_000;
const PROOF_LOOK_MS = 250;

/** A gateway that serves now. */
export interface LiveGateway {
  readonly name: string;
  /** `spec.renewTime` as last read. */
  readonly renewedAt: string;
  /** Port it listens on, as far as it said so. */
  readonly port: number | undefined;
}

/** The Leases of all gateways of the installation. */
export class GatewayLeases {
  readonly #leases: ResourceClient<Lease>;
  readonly #namespace: string;

  constructor(kube: KubeClient, namespace: string) {
    this.#leases = kube.resource<Lease>(LEASES);
    this.#namespace = namespace;
  }

  /** Says that the gateway `name` serves on `port`. */
  async renew(gateway: { name: string; port: number }, now: number, signal: AbortSignal): Promise<void> {
    const { name } = gateway;
    const lease = {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: {
        name,
        namespace: this.#namespace,
        labels: { [ROLE_LABEL]: "gateway" },
        annotations: { [PORT_ANNOTATION]: String(gateway.port) },
      },
      spec: { holderIdentity: name, leaseDurationSeconds: LEASE_SECONDS, renewTime: microTime(now) },
    };
    await this.#leases.apply({ namespace: this.#namespace, name }, lease, { signal, deadlineMs: CALL_DEADLINE_MS });
  }

  /** Gives the Lease up. Absent is a success. */
  async release(name: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#leases.delete({ namespace: this.#namespace, name }, { signal, deadlineMs: CALL_DEADLINE_MS });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  /** Gateways whose Lease is fresh; Leases of the long dead are removed on the way. */
  async live(now: number, signal: AbortSignal): Promise<LiveGateway[]> {
    const live: LiveGateway[] = [];
    const options = { signal, deadlineMs: CALL_DEADLINE_MS };
    const page = await this.#leases.list({ namespace: this.#namespace, labelSelector: ROLE_SELECTOR, ...options });
    for (const lease of page.items) {
      const age = now - Date.parse(lease.spec?.renewTime ?? "");
      if (age <= LEASE_SECONDS * 1_000) {
        const port = Number(lease.metadata.annotations?.[PORT_ANNOTATION]);
        const renewedAt = lease.spec?.renewTime ?? "";
        live.push({
          name: lease.metadata.name,
          renewedAt,
          port: Number.isInteger(port) && port > 0 ? port : undefined,
        });
      } else if (!(age < FORGET_MS)) await this.release(lease.metadata.name, signal);
    }
    return live;
  }

  /**
   * Gateways that were seen to renew while this call waited: a fresh Lease alone may be of one that was killed a moment
   * ago. Returns with the first that renews; none after one period is nobody.
   */
  async proven(clock: Clock, signal: AbortSignal): Promise<LiveGateway[]> {
    const before = new Map((await this.live(clock.now(), signal)).map(({ name, renewedAt }) => [name, renewedAt]));
    const until = monotonicNow(clock) + PROOF_MS;
    while (before.size > 0 && monotonicNow(clock) < until) {
      await clock.sleep(PROOF_LOOK_MS, signal);
      const live = await this.live(clock.now(), signal);
      const renewed = live.filter(({ name, renewedAt }) => before.get(name) !== renewedAt);
      if (renewed.length > 0) return renewed;
    }
    return [];
  }
}

/** MicroTime: exactly six fractional digits, or the API server refuses it. */
const microTime = (epochMs: number): string => new Date(epochMs).toISOString().replace("Z", "000Z");
