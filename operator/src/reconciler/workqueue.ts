import { type BackoffPolicy, backoffMs, KEY_BACKOFF } from "./backoff.ts";
import { type Clock, monotonicNow, systemClock } from "./clock.ts";
import { untilAborted } from "./deadline.ts";
import { noMetrics, type ReconcilerMetrics } from "./metrics.ts";
import type { Key } from "./reconcile.ts";

export interface WorkQueueOptions {
  /** Names the queue in metrics. */
  readonly name: string;
  readonly clock?: Clock;
  readonly metrics?: ReconcilerMetrics;
  /** 0 ≤ x < 1, for jitter. Default `Math.random`. */
  readonly random?: () => number;
  /** Delay after failures of a key. Default 100 ms doubling to 60 s. */
  readonly backoff?: BackoffPolicy;
}

/**
 * Keys to work on. A key is held once however often it is added; it is given to one worker at a time; added again while it
 * is worked on, it comes back when that worker is done. Of several delays asked for one key the shortest stands.
 *
 * Every key is in exactly one of: nowhere, delayed, ready, taken, taken and due again.
 */
export class WorkQueue {
  readonly name: string;
  readonly #clock: Clock;
  readonly #metrics: ReconcilerMetrics;
  readonly #random: () => number;
  readonly #backoff: BackoffPolicy;

  /** Insertion order is the order of service; the value is when the key became due, on the monotonic clock. */
  readonly #ready = new Map<Key, number>();
  readonly #delayed = new Map<Key, { readonly dueAt: number; readonly timer: AbortController }>();
  /** The value says whether the key is due again. */
  readonly #taken = new Map<Key, boolean>();
  readonly #failures = new Map<Key, number>();
  readonly #takers = new Set<(key: Key | undefined) => void>();
  readonly #idle = new Set<() => void>();
  #draining = false;

  constructor(options: WorkQueueOptions) {
    this.name = options.name;
    this.#clock = options.clock ?? systemClock;
    this.#metrics = options.metrics ?? noMetrics;
    this.#random = options.random ?? Math.random;
    this.#backoff = options.backoff ?? KEY_BACKOFF;
  }

  /** Keys waiting for a worker; delayed and taken ones not counted. */
  get depth(): number {
    return this.#ready.size;
  }

  /** Makes the key due now, whatever delay it had. Ignored while draining. */
  add(key: Key): void {
    if (this.#draining) return;
    this.#undelay(key);
    if (this.#taken.has(key)) {
      this.#taken.set(key, true);
      return;
    }
    if (this.#ready.has(key)) return;
    this.#ready.set(key, monotonicNow(this.#clock));
    this.#metrics.queueDepth(this.name, this.#ready.size);
    this.#serve();
  }

  /** Makes the key due after the delay, unless it is due sooner already. Zero or less means now. */
  addAfter(key: Key, milliseconds: number): void {
    if (this.#draining) return;
    if (!(milliseconds > 0)) {
      this.add(key);
      return;
    }
    if (this.#ready.has(key) || this.#taken.get(key) === true) return;
    const dueAt = monotonicNow(this.#clock) + milliseconds;
    const pending = this.#delayed.get(key);
    if (pending !== undefined && pending.dueAt <= dueAt) return;
    this.#undelay(key);
    const timer = new AbortController();
    this.#delayed.set(key, { dueAt, timer });
    this.#clock.sleep(milliseconds, timer.signal).then(
      () => {
        if (this.#delayed.get(key)?.timer === timer) this.add(key);
      },
      // The sleep rejects only because the delay was replaced or the queue drains.
      () => undefined,
    );
  }

  /**
   * Makes the key due after the backoff of its failures so far, this one included, and not before `atLeastMs`. Returns the
   * delay in ms.
   */
  addBackoff(key: Key, atLeastMs = 0): number {
    const failures = this.failures(key) + 1;
    this.#failures.set(key, failures);
    const milliseconds = Math.max(atLeastMs, backoffMs(this.#backoff, failures, this.#random()));
    this.addAfter(key, milliseconds);
    return milliseconds;
  }

  /** The key succeeded: its next failure starts from the smallest delay again. Does not remove it from the queue. */
  forget(key: Key): void {
    this.#failures.delete(key);
  }

  /** Failures since the last `forget`. */
  failures(key: Key): number {
    return this.#failures.get(key) ?? 0;
  }

  /**
   * The next key, first come first served; waits for one. Undefined when the queue drains or the signal aborts. Whoever takes
   * a key must call `done` with it.
   */
  async take(signal: AbortSignal): Promise<Key | undefined> {
    if (this.#draining || signal.aborted) return undefined;
    const key = this.#shift();
    if (key !== undefined) return key;
    return new Promise((resolve) => {
      const give = (given: Key | undefined) => {
        signal.removeEventListener("abort", onAbort);
        this.#takers.delete(give);
        resolve(given);
      };
      const onAbort = () => give(undefined);
      this.#takers.add(give);
      signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** The worker has finished with the key, well or badly. */
  done(key: Key): void {
    const again = this.#taken.get(key);
    if (again === undefined) throw new Error(`queue ${this.name}: done("${key}") without take`);
    this.#taken.delete(key);
    if (again) this.add(key);
    if (this.#taken.size > 0) return;
    for (const settled of [...this.#idle]) settled();
  }

  /**
   * Takes no more keys in and gives none out; those waiting are dropped, for the next leader lists everything anyway.
   * Resolves when every taken key is done; rejects with the signal's reason when it aborts first.
   */
  async drain(signal: AbortSignal): Promise<void> {
    this.#draining = true;
    for (const key of [...this.#delayed.keys()]) this.#undelay(key);
    this.#ready.clear();
    this.#metrics.queueDepth(this.name, 0);
    for (const give of [...this.#takers]) give(undefined);
    if (this.#taken.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#idle.add(resolve);
    try {
      await untilAborted(promise, signal);
    } finally {
      this.#idle.delete(resolve);
    }
  }

  #serve(): void {
    const [give] = this.#takers;
    if (give === undefined) return;
    const key = this.#shift();
    if (key !== undefined) give(key);
  }

  #shift(): Key | undefined {
    const [first] = this.#ready;
    if (first === undefined) return undefined;
    const [key, dueSince] = first;
    this.#ready.delete(key);
    this.#taken.set(key, false);
    this.#metrics.queueDepth(this.name, this.#ready.size);
    this.#metrics.queueWaited(this.name, monotonicNow(this.#clock) - dueSince);
    return key;
  }

  #undelay(key: Key): void {
    const pending = this.#delayed.get(key);
    if (pending === undefined) return;
    this.#delayed.delete(key);
    pending.timer.abort();
  }
}
