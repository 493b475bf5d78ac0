import { randomUUID } from "node:crypto";
import { apiFailureOf } from "./api-failure.ts";
import { type Clock, monotonicNow, systemClock } from "./clock.ts";
import { startDeadline, untilAborted } from "./deadline.ts";
import type { KubeObject } from "./list-watch.ts";
import { type Log, silentLog } from "./log.ts";
import { noMetrics, type ReconcilerMetrics } from "./metrics.ts";
import { microTime } from "./micro-time.ts";

/** `coordination.k8s.io/v1` Lease, as far as it is used. */
export interface Lease extends KubeObject {
  readonly spec?: LeaseSpec;
}

export interface LeaseSpec {
  readonly holderIdentity?: string;
  readonly leaseDurationSeconds?: number;
  readonly acquireTime?: string;
  readonly renewTime?: string;
  readonly leaseTransitions?: number;
}

/** The calls an elector makes; `KubeClient.resource(LEASES)` fits. */
export interface LeaseClient {
  get(ref: LeaseRef, options: LeaseCall): Promise<Lease>;
  create(object: unknown, options: LeaseCall & { namespace?: string }): Promise<Lease>;
  patch(ref: LeaseRef, patch: { readonly [field: string]: unknown }, options: LeaseCall): Promise<Lease>;
}

export interface LeaseRef {
  readonly namespace: string;
  readonly name: string;
}

export interface LeaseCall {
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
}

export interface ElectorOptions {
  readonly client: LeaseClient;
  readonly lease: LeaseRef;
  /** Who this is, for people; a random suffix makes it unique, so that two processes of one name never share a lease. */
  readonly identity: string;
  /** Others take over when they saw no change for this long. Whole seconds, default 15 s. */
  readonly leaseDurationMs?: number;
  /** The leader ceases when it could not renew for this long. Less than the duration, default two thirds of it. */
  readonly renewDeadlineMs?: number;
  /** Pause between tries. Default 2 s, at most a fifth of the renew deadline. */
  readonly retryMs?: number;
  readonly clock?: Clock;
  readonly log?: Log;
  readonly metrics?: ReconcilerMetrics;
  /** 0 ≤ x < 1, for jitter. Default `Math.random`. */
  readonly random?: () => number;
}

/** The reason everything in flight is aborted with when leadership ends before its time. */
export class LeadershipLost extends Error {
  override readonly name = "LeadershipLost";
}

interface Observed {
  readonly lease: Lease;
  /** When this process first saw this resourceVersion, on its monotonic clock. */
  readonly since: number;
}

/**
 * Leader election on a Lease. Nobody's clock is compared with anybody else's: a challenger waits until *it* has seen no change
 * for the whole duration, and the leader counts its deadline from before it *sent* its last good renewal. As the deadline is
 * shorter than the duration, the leader has ceased before a challenger may begin.
 */
export class LeaderElector {
  readonly identity: string;
  readonly #client: LeaseClient;
  readonly #ref: LeaseRef;
  readonly #leaseDurationMs: number;
  readonly #renewDeadlineMs: number;
  readonly #retryMs: number;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: ReconcilerMetrics;
  readonly #random: () => number;

  #observed: Observed | undefined;
  /** Monotonic time until which this process may act as leader; undefined when it does not lead. */
  #leadsUntil: number | undefined;

  constructor(options: ElectorOptions) {
    this.identity = `${options.identity}_${randomUUID()}`;
    this.#client = options.client;
    this.#ref = options.lease;
    this.#leaseDurationMs = options.leaseDurationMs ?? 15_000;
    this.#renewDeadlineMs = options.renewDeadlineMs ?? Math.floor((this.#leaseDurationMs * 2) / 3);
    this.#retryMs = Math.min(options.retryMs ?? 2_000, Math.floor(this.#renewDeadlineMs / 5));
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? silentLog;
    this.#metrics = options.metrics ?? noMetrics;
    this.#random = options.random ?? Math.random;
    if (this.#leaseDurationMs % 1_000 !== 0) throw new RangeError("a lease lasts whole seconds");
    if (this.#renewDeadlineMs >= this.#leaseDurationMs) {
      throw new RangeError("the renew deadline must be shorter than the lease, or two may lead at once");
    }
    this.#metrics.leading(this.#ref.name, false);
  }

  /** True while this process may act as leader. Ask before every effect that cannot be made conditional. */
  isLeading(): boolean {
    return this.#leadsUntil !== undefined && monotonicNow(this.#clock) < this.#leadsUntil;
  }

  /** Who holds the lease, as last seen; undefined before the first answer. Readiness is false without it. */
  holder(): string | undefined {
    return this.#observed?.lease.spec?.holderIdentity;
  }

  /**
   * Competes until it leads, calls `lead`, and keeps the lease until `lead` settles; then gives the lease up and resolves (or
   * rejects as `lead` did). The signal given to `lead` aborts with `LeadershipLost` at the renew deadline, or at once when
   * another holder is seen; when `lead` settles after that, competing begins again. `stop` ends the competing; it does not end
   * the leading: `lead` watches it itself, drains, and returns, still covered by the lease.
   */
  async run(options: { stop: AbortSignal; lead: (lost: AbortSignal) => Promise<void> }): Promise<void> {
    const { stop, lead } = options;
    while (await this.#acquire(stop)) {
      const lost = await this.#leadOnce(lead);
      if (!lost) return;
    }
  }

  /** Tries until the lease is held; false when `stop` aborts first. */
  async #acquire(stop: AbortSignal): Promise<boolean> {
    while (!stop.aborted) {
      try {
        if (await this.#tryAcquire(stop)) return true;
      } catch (error) {
        if (!stop.aborted) this.#log.warn({ lease: this.#ref.name, err: error }, "could not try for the lease");
      }
      await this.#pause(stop);
    }
    // A last try may have been carried out although its answer never came; the holder's name is this process's alone.
    await this.#release();
    return false;
  }

  async #tryAcquire(stop: AbortSignal): Promise<boolean> {
    const call = { signal: stop, deadlineMs: this.#callMs() };
    const lease = await this.#read(call);
    const sentAt = monotonicNow(this.#clock);
    if (lease === undefined) {
      const metadata = { namespace: this.#ref.namespace, name: this.#ref.name };
      const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec: this.#claim(undefined) };
      return this.#won(
        await unlessTaken(this.#client.create(body, { ...call, namespace: this.#ref.namespace })),
        sentAt,
      );
    }
    if (!this.#isFree(lease)) return false;
    return this.#won(
      await unlessTaken(this.#client.patch(this.#ref, this.#cas(lease, this.#claim(lease)), call)),
      sentAt,
    );
  }

  /** Free: given up, our own, or unchanged for the holder's whole duration as seen from here. */
  #isFree(lease: Lease): boolean {
    const holder = lease.spec?.holderIdentity ?? "";
    return holder === "" || holder === this.identity || this.#untilFree() <= 0;
  }

  /** Milliseconds until the lease, if nobody renews it, has been unchanged for its whole duration. */
  #untilFree(): number {
    if (this.#observed === undefined) return Number.POSITIVE_INFINITY;
    const { lease, since } = this.#observed;
    const stated = (lease.spec?.leaseDurationSeconds ?? 0) * 1_000;
    // One more, for the duration itself must be over.
    return since + Math.max(stated, this.#leaseDurationMs) + 1 - monotonicNow(this.#clock);
  }

  #won(lease: Lease | undefined, sentAt: number): boolean {
    if (lease === undefined) return false;
    this.#observe(lease);
    this.#leadsUntil = sentAt + this.#renewDeadlineMs;
    return true;
  }

  /** Leads until `lead` settles; true when leadership was lost before. */
  async #leadOnce(lead: (lost: AbortSignal) => Promise<void>): Promise<boolean> {
    const lost = new AbortController();
    const settled = new AbortController();
    this.#metrics.leading(this.#ref.name, true);
    this.#log.info({ lease: this.#ref.name, identity: this.identity }, "leading");
    const renewing = this.#renew(lost, settled.signal);
    try {
      await callAsync(lead, lost.signal);
    } catch (error) {
      // What broke off because leadership was lost is no failure of its own.
      if (!lost.signal.aborted) throw error;
      this.#log.debug({ lease: this.#ref.name, err: error }, "what was led broke off");
    } finally {
      settled.abort();
      await renewing;
      this.#leadsUntil = undefined;
      this.#metrics.leading(this.#ref.name, false);
      if (!lost.signal.aborted) await this.#release();
    }
    return lost.signal.aborted;
  }

  /** Keeps the lease until `settled`, or aborts `lost`. */
  async #renew(lost: AbortController, settled: AbortSignal): Promise<void> {
    while (!settled.aborted && !lost.signal.aborted) {
      const left = (this.#leadsUntil ?? 0) - monotonicNow(this.#clock);
      using deadline = startDeadline({ clock: this.#clock, milliseconds: Math.max(left, 0), parent: settled });
      try {
        await untilAborted(this.#renewOnce(deadline.signal), deadline.signal);
      } catch (error) {
        if (settled.aborted) return;
        this.#lose(lost, deadline.expired ? new LeadershipLost("the lease could not be renewed in time") : error);
      }
    }
  }

  /** One pause and tries until one renewal succeeded. Throws `LeadershipLost` when another holder is seen. */
  async #renewOnce(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#clock.sleep(this.#retryMs, signal);
      const sentAt = monotonicNow(this.#clock);
      const call = { signal, deadlineMs: this.#callMs() };
      try {
        const known = this.#observed?.lease ?? (await this.#read(call));
        if (known === undefined) throw new LeadershipLost("the lease was deleted");
        const renewed = { ...known.spec, renewTime: microTime(this.#clock.now()) };
        const lease = await this.#client.patch(this.#ref, this.#cas(known, renewed), call);
        // An answer after the deadline must not make a leader of one who has been told to stop.
        signal.throwIfAborted();
        this.#observe(lease);
        this.#leadsUntil = sentAt + this.#renewDeadlineMs;
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof LeadershipLost) throw error;
        await this.#afterFailedRenewal(error, call);
      }
    }
  }

  /** A conflict or a 404 means that somebody wrote: look who holds it. Anything else is tried again. */
  async #afterFailedRenewal(error: unknown, call: LeaseCall): Promise<void> {
    this.#log.warn({ lease: this.#ref.name, err: error }, "a renewal failed");
    const status = apiFailureOf(error)?.status;
    if (status !== 409 && status !== 404) return;
    try {
      const lease = await this.#read(call);
      if (lease?.spec?.holderIdentity === this.identity) return;
      throw new LeadershipLost(
        lease === undefined ? "the lease was deleted" : `the lease is held by ${lease.spec?.holderIdentity}`,
      );
    } catch (readError) {
      if (readError instanceof LeadershipLost) throw readError;
      call.signal.throwIfAborted();
      this.#log.warn({ lease: this.#ref.name, err: readError }, "the lease could not be read");
    }
  }

  #lose(lost: AbortController, reason: unknown): void {
    this.#leadsUntil = undefined;
    this.#metrics.leading(this.#ref.name, false);
    this.#log.error({ lease: this.#ref.name, err: reason }, "leadership lost; everything in flight is aborted");
    lost.abort(reason);
  }

  /** Gives the lease up, if it is ours, so that the next need not wait. Failing only costs the next one the duration. */
  async #release(): Promise<void> {
    const call = { signal: new AbortController().signal, deadlineMs: this.#callMs() };
    try {
      const lease = await this.#read(call);
      if (lease?.spec?.holderIdentity !== this.identity) return;
      const spec = { holderIdentity: "", leaseDurationSeconds: 1, renewTime: microTime(this.#clock.now()) };
      this.#observe(await this.#client.patch(this.#ref, this.#cas(lease, spec), call));
    } catch (error) {
      this.#log.warn({ lease: this.#ref.name, err: error }, "the lease could not be given up");
    }
  }

  async #read(call: LeaseCall): Promise<Lease | undefined> {
    try {
      const lease = await this.#client.get(this.#ref, call);
      this.#observe(lease);
      return lease;
    } catch (error) {
      if (apiFailureOf(error)?.status !== 404) throw error;
      this.#observed = undefined;
      return undefined;
    }
  }

  #observe(lease: Lease): void {
    const seen = this.#observed?.lease.metadata;
    const same = seen?.uid === lease.metadata.uid && seen.resourceVersion === lease.metadata.resourceVersion;
    this.#observed = { lease, since: same && this.#observed ? this.#observed.since : monotonicNow(this.#clock) };
  }

  #claim(previous: Lease | undefined): LeaseSpec {
    const now = microTime(this.#clock.now());
    const transitions = previous?.spec?.leaseTransitions ?? 0;
    return {
      holderIdentity: this.identity,
      leaseDurationSeconds: this.#leaseDurationMs / 1_000,
      acquireTime: now,
      renewTime: now,
      leaseTransitions: previous === undefined ? 0 : transitions + 1,
    };
  }

  #cas(lease: Lease, spec: LeaseSpec): { metadata: Record<string, unknown>; spec: LeaseSpec } {
    return { metadata: { resourceVersion: lease.metadata.resourceVersion }, spec };
  }

  /** A hung call must leave time for another one before the renew deadline. */
  #callMs(): number {
    return Math.floor(this.#renewDeadlineMs / 3);
  }

  async #pause(stop: AbortSignal): Promise<void> {
    const retry = Math.round(this.#retryMs * (1 + this.#random() / 5));
    const free = this.#untilFree();
    try {
      // The try at the moment the lease runs out comes on time; after that one lost race must not become a tight loop.
      await this.#clock.sleep(free > 0 ? Math.min(retry, Math.ceil(free)) : retry, stop);
    } catch (error) {
      if (!stop.aborted) throw error;
    }
  }
}

/** Undefined when somebody else was faster. */
async function unlessTaken(write: Promise<Lease>): Promise<Lease | undefined> {
  try {
    return await write;
  } catch (error) {
    if (apiFailureOf(error)?.status === 409) return undefined;
    throw error;
  }
}

/** A synchronous throw becomes a rejection, so that the lease is given up in either case. */
async function callAsync(lead: (lost: AbortSignal) => Promise<void>, lost: AbortSignal): Promise<void> {
  await lead(lost);
}
