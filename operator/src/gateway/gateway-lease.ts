/** Every serving gateway holds a Lease with this label in the installation's namespace, and renews it. */
import type { KubeClient, ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import { LEASES } from "../kube/resource-types.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { microTime } from "../reconciler/micro-time.ts";

const ROLE_LABEL = "agentworlds.dev/role";
const ROLE_SELECTOR = `${ROLE_LABEL}=gateway`;
const PORT_ANNOTATION = "agentworlds.dev/gateway-port";
/** A gateway that was not seen to renew for this long is not counted. */
export const LEASE_SECONDS = 30;
export const RENEW_MS = 10_000;
const CALL_DEADLINE_MS = 10_000;

/** `coordination.k8s.io/v1` Lease of a gateway. Its renewTime is for people: it is of the writer's clock. */
export interface GatewayLease extends KubeObject {
  readonly spec?: { readonly renewTime?: string };
}

/** The Leases of all gateways of the installation. */
export class GatewayLeases {
  readonly #leases: ResourceClient<GatewayLease>;
  readonly #namespace: string;

  constructor(kube: KubeClient, namespace: string) {
    this.#leases = kube.resource<GatewayLease>(LEASES);
    this.#namespace = namespace;
  }

  /** All of them, those of the dead included. */
  async list(signal: AbortSignal): Promise<readonly GatewayLease[]> {
    const options = { namespace: this.#namespace, labelSelector: ROLE_SELECTOR, deadlineMs: CALL_DEADLINE_MS, signal };
    return (await this.#leases.list(options)).items;
  }

  /** Says that the gateway `name` serves on `port`. `now` in epoch milliseconds. */
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
}

/** The port that the gateway of a Lease said it listens on. */
export function portOf(lease: GatewayLease): number | undefined {
  const port = Number(lease.metadata.annotations?.[PORT_ANNOTATION]);
  return Number.isInteger(port) && port > 0 ? port : undefined;
}
