import { type Clock, monotonicNow } from "../reconciler/clock.ts";
import { type GatewayLease, type GatewayLeases, LEASE_SECONDS, portOf, RENEW_MS } from "./gateway-lease.ts";

/** A Lease not seen to change for this long is of a gateway that was killed, and is removed. */
const FORGET_MS = 600_000;
/** Nobody looked for longer than this: what happened in between is not known, so every observation begins anew. */
const BLIND_MS = 2 * RENEW_MS;
/** A renewal is waited for this long: one period, and the time a busy machine may add. */
const PROOF_MS = RENEW_MS + 2_000;
const PROOF_LOOK_MS = 250;

/** A gateway that serves now. */
export interface LiveGateway {
  readonly name: string;
  /** Changes with every renewal. */
  readonly revision: string;
  /** Port it listens on, as far as it said so. */
  readonly port: number | undefined;
}

interface Observed {
  readonly revision: string;
  /** When this process first saw this revision, on its monotonic clock. */
  readonly since: number;
}

/**
 * Which gateways live, as seen from here. Nobody's clock is compared with anybody else's (as in the leader's election): a
 * gateway is dead when this watch, looking regularly, did not see its Lease change for the whole duration. So one watch is
 * kept and asked again and again; a new one takes every Lease for fresh.
 */
export class GatewayWatch {
  readonly #leases: Pick<GatewayLeases, "list" | "release">;
  readonly #clock: Clock;
  #observed: ReadonlyMap<string, Observed> = new Map();
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(options: { leases: Pick<GatewayLeases, "list" | "release">; clock: Clock }) {
    this.#leases = options.leases;
    this.#clock = options.clock;
  }

  /** Looks now. Leases of the long dead are removed on the way. Throws kube errors. */
  async live(signal: AbortSignal): Promise<LiveGateway[]> {
    const leases = await this.#leases.list(signal);
    const now = monotonicNow(this.#clock);
    const wasBlind = now - this.#lookedAt > BLIND_MS;
    this.#lookedAt = now;
    const before = this.#observed;
    const observe = (lease: GatewayLease): Observed => {
      const revision = revisionOf(lease);
      const known = before.get(lease.metadata.name);
      return known?.revision === revision && !wasBlind ? known : { revision, since: now };
    };
    this.#observed = new Map(leases.map((lease) => [lease.metadata.name, observe(lease)]));
    const live: LiveGateway[] = [];
    for (const lease of leases) {
      const { name } = lease.metadata;
      const { revision, since } = this.#observed.get(name) ?? observe(lease);
      const age = now - since;
      if (age <= LEASE_SECONDS * 1_000) live.push({ name, revision, port: portOf(lease) });
      else if (age > FORGET_MS) await this.#leases.release(name, signal);
    }
    return live;
  }

  /**
   * Gateways that were seen to renew while this call waited: a fresh Lease alone may be of one that was killed a moment
   * ago. Returns with the first that renews; none after one period is nobody.
   */
  async proven(signal: AbortSignal): Promise<LiveGateway[]> {
    const before = new Map((await this.live(signal)).map(({ name, revision }) => [name, revision]));
    const until = monotonicNow(this.#clock) + PROOF_MS;
    while (before.size > 0 && monotonicNow(this.#clock) < until) {
      await this.#clock.sleep(PROOF_LOOK_MS, signal);
      const renewed = (await this.live(signal)).filter(({ name, revision }) => before.get(name) !== revision);
      if (renewed.length > 0) return renewed;
    }
    return [];
  }
}

const revisionOf = ({ metadata }: GatewayLease): string => `${metadata.uid} ${metadata.resourceVersion}`;
