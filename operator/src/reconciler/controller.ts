import { randomUUID } from "node:crypto";
import { apiFailureOf, isWriteConflict } from "./api-failure.ts";
import { retryAfterMs } from "./backoff.ts";
import { type Clock, monotonicNow, systemClock } from "./clock.ts";
import { type Deadline, PassDeadlineExceeded, startDeadline, untilAborted, whenAborted } from "./deadline.ts";
import { LeadershipLost } from "./lease.ts";
import type { KubeObject } from "./list-watch.ts";
import { type Log, silentLog } from "./log.ts";
import { noMetrics, type PassEnd, type ReconcilerMetrics } from "./metrics.ts";
import { Overtaken, Terminal, Waiting } from "./policy.ts";
import type { Key, Reconcile, ReconcileResult } from "./reconcile.ts";
import type { WorkQueue } from "./workqueue.ts";

/** No timer is longer: status is read again at least this often, and a stale timer then finds nothing to do. */
export const LONGEST_REQUEUE_MS = 600_000;

export interface ControllerOptions {
  /** Names the controller in logs and metrics. */
  readonly name: string;
  readonly queue: WorkQueue;
  readonly reconcile: Reconcile;
  /** Keys worked on at once. Default 4. */
  readonly workers?: number;
  /** A pass that takes longer is aborted and retried with backoff. Default 10 min. */
  readonly passDeadlineMs?: number;
  /**
   * What is asked of the object now, usually `intentOf(store.get(key))`. After a `Terminal` the key is skipped while this is
   * the same. Undefined (or no function): never skipped. Whatever must reach a stalled object, such as a request in its
   * status, belongs into the value.
   */
  readonly intent?: (key: Key) => string | undefined;
  /** Called once per `Terminal` pass. What it throws is logged. */
  readonly onTerminal?: (key: Key, error: Terminal) => void;
  readonly clock?: Clock;
  readonly log?: Log;
  readonly metrics?: ReconcilerMetrics;
  /** 0 ≤ x < 1, for jitter. Default `Math.random`. */
  readonly random?: () => number;
}

export interface Controller {
  readonly name: string;
  /**
   * Works until the signal aborts, which aborts every pass at once (leadership lost), or until `drain` has finished. Resolves
   * when no pass runs any more; one that ignores its signal is waited for during 10 s and then named in the log. Throws when
   * called twice.
   */
  run(signal: AbortSignal): Promise<void>;
  /**
   * Orderly stop: begins nothing new, lets running passes finish for up to `milliseconds`, aborts the rest. Resolves when
   * `run` does.
   */
  drain(milliseconds: number): Promise<void>;
}

/** Identifies what a user asks of an object: a new generation, a deletion or a recreated object is a new intent. */
export function intentOf(object: KubeObject | undefined): string | undefined {
  return object === undefined ? undefined : `${object.metadata.uid}@${object.metadata.generation ?? 0}`;
}

/** How long a pass may take to heed an abort before `run` resolves without it. */
const ABORT_GRACE_MS = 10_000;

/** Makes a controller; nothing runs before `run`. */
export function createController(options: ControllerOptions): Controller {
  return new QueueController(options);
}

/** What a pass came to, and what the queue is to do about it. */
export type Verdict =
  | { readonly end: "settled" | "terminal" | "aborted" }
  | { readonly end: "requeued" | "waiting"; readonly afterMs: number }
  | { readonly end: "conflict" | "error"; readonly atLeastMs: number | undefined };

/** Judges a pass that returned. */
export function judgeResult(result: ReconcileResult): Verdict {
  if (result.requeueAfterMs === undefined) return { end: "settled" };
  return { end: "requeued", afterMs: boundedRequeue(result.requeueAfterMs) };
}

/** Judges a pass that threw. `aborted`: the process is stopping or has lost the lease, so nothing is retried here. */
export function judgeError(error: unknown, aborted: boolean): Verdict {
  if (error instanceof Terminal) return { end: "terminal" };
  if (error instanceof Waiting) return { end: "waiting", afterMs: boundedRequeue(error.afterMs) };
  if (aborted) return { end: "aborted" };
  if (isOvertaken(error)) return { end: "conflict", atLeastMs: undefined };
  return { end: "error", atLeastMs: apiFailureOf(error)?.retryAfterMs };
}

/** A lease that is lost aborts everything in a moment; a guard before an effect may see it sooner. */
const isOvertaken = (error: unknown): boolean =>
  isWriteConflict(error) || error instanceof Overtaken || error instanceof LeadershipLost;

/** Between 0 and 10 minutes; what is no number (a bad date) counts as the longest, so that it cannot spin. */
function boundedRequeue(milliseconds: number): number {
  return Number.isNaN(milliseconds) ? LONGEST_REQUEUE_MS : Math.min(Math.max(milliseconds, 0), LONGEST_REQUEUE_MS);
}

class QueueController implements Controller {
  readonly name: string;
  readonly #options: ControllerOptions;
  readonly #queue: WorkQueue;
  readonly #workers: number;
  readonly #passDeadlineMs: number;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: ReconcilerMetrics;
  readonly #random: () => number;

  /** Keys at rest after a Terminal, with the intent that failed. */
  readonly #stalled = new Map<Key, string>();
  readonly #running = new Map<Key, Promise<void>>();
  readonly #abort = new AbortController();
  readonly #finished = Promise.withResolvers<void>();
  #started = false;
  #busy = 0;

  constructor(options: ControllerOptions) {
    this.name = options.name;
    this.#options = options;
    this.#queue = options.queue;
    this.#workers = options.workers ?? 4;
    this.#passDeadlineMs = options.passDeadlineMs ?? 600_000;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? silentLog;
    this.#metrics = options.metrics ?? noMetrics;
    this.#random = options.random ?? Math.random;
  }

  async run(signal: AbortSignal): Promise<void> {
    if (this.#started) throw new Error(`controller ${this.name} was started before`);
    this.#started = true;
    const onAbort = () => this.#abort.abort(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    try {
      await Promise.all(Array.from({ length: this.#workers }, () => this.#work()));
      await this.#awaitPasses();
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#finished.resolve();
    }
  }

  async drain(milliseconds: number): Promise<void> {
    using deadline = startDeadline({ clock: this.#clock, milliseconds, parent: this.#abort.signal });
    try {
      await this.#queue.drain(deadline.signal);
    } catch (error) {
      if (!deadline.signal.aborted) throw error;
      this.#log.warn({ controller: this.name, milliseconds }, "passes outlived the drain deadline and are aborted");
    }
    this.#abort.abort(new Error(`controller ${this.name} is stopping`));
    if (this.#started) await this.#finished.promise;
  }

  async #work(): Promise<void> {
    for (;;) {
      const key = await this.#queue.take(this.#abort.signal);
      if (key === undefined) return;
      await this.#serve(key);
    }
  }

  async #awaitPasses(): Promise<void> {
    if (this.#running.size === 0) return;
    using grace = startDeadline({ clock: this.#clock, milliseconds: ABORT_GRACE_MS, parent: NEVER });
    try {
      await untilAborted(Promise.all(this.#running.values()), grace.signal);
    } catch (error) {
      const keys = [...this.#running.keys()];
      this.#log.error({ controller: this.name, keys, err: error }, "passes ignore their abort and are left behind");
    }
  }

  /** One key, from taken to done. Never throws. */
  async #serve(key: Key): Promise<void> {
    if (this.#isStalled(key)) {
      this.#metrics.reconciled(this.name, { outcome: "stalled", milliseconds: 0 });
      this.#queue.done(key);
      return;
    }
    this.#metrics.workersBusy(this.name, ++this.#busy);
    const deadline = startDeadline({
      clock: this.#clock,
      milliseconds: this.#passDeadlineMs,
      parent: this.#abort.signal,
      reason: new PassDeadlineExceeded(this.#passDeadlineMs),
    });
    const pass = this.#pass(key, deadline).finally(() => {
      deadline[Symbol.dispose]();
      this.#running.delete(key);
      this.#queue.done(key);
    });
    this.#running.set(key, pass);
    // A pass that ignores its signal keeps its key, so that no second one runs beside it, but not its worker.
    await Promise.race([pass, whenAborted(deadline.signal)]);
    this.#metrics.workersBusy(this.name, --this.#busy);
  }

  /** Runs one pass and does what its end asks for. Never throws. */
  async #pass(key: Key, deadline: Deadline): Promise<void> {
    const reconcileId = randomUUID();
    const startedAt = monotonicNow(this.#clock);
    const intent = this.#intent(key);
    const fields = { controller: this.name, key, reconcileId };
    let verdict: Verdict;
    try {
      const context = { signal: deadline.signal, process: this.#abort.signal, clock: this.#clock, reconcileId };
      verdict = judgeResult(await this.#options.reconcile(key, context));
    } catch (error) {
      verdict = judgeError(error, this.#abort.signal.aborted);
      this.#report(verdict.end, error, fields);
      if (error instanceof Terminal) this.#stall(key, intent, error);
    }
    this.#schedule(key, verdict);
    const milliseconds = monotonicNow(this.#clock) - startedAt;
    this.#metrics.reconciled(this.name, { outcome: verdict.end, milliseconds });
  }

  #schedule(key: Key, verdict: Verdict): void {
    switch (verdict.end) {
      case "settled":
      case "terminal":
        this.#queue.forget(key);
        return;
      case "requeued":
      case "waiting":
        this.#queue.forget(key);
        this.#queue.addAfter(key, verdict.afterMs);
        return;
      case "aborted":
        return;
      default: {
        const asked = verdict.atLeastMs;
        this.#queue.addBackoff(key, asked === undefined ? 0 : retryAfterMs(asked, this.#random()));
      }
    }
  }

  #report(end: PassEnd, error: unknown, fields: object): void {
    if (end === "error") this.#log.error({ ...fields, err: error }, "a pass failed and will be retried");
    else if (end === "terminal") this.#log.warn({ ...fields, err: error }, "a pass stopped until the object changes");
    else this.#log.debug({ ...fields, err: error }, `a pass ended: ${end}`);
  }

  #stall(key: Key, intent: string | undefined, error: Terminal): void {
    if (intent === undefined) this.#stalled.delete(key);
    else this.#stalled.set(key, intent);
    try {
      this.#options.onTerminal?.(key, error);
    } catch (thrown) {
      this.#log.error({ controller: this.name, key, err: thrown }, "onTerminal threw");
    }
  }

  #isStalled(key: Key): boolean {
    const failed = this.#stalled.get(key);
    if (failed === undefined) return false;
    if (failed === this.#intent(key)) return true;
    this.#stalled.delete(key);
    return false;
  }

  #intent(key: Key): string | undefined {
    try {
      return this.#options.intent?.(key);
    } catch (thrown) {
      this.#log.error({ controller: this.name, key, err: thrown }, "intent threw; the key counts as not stalled");
      return undefined;
    }
  }
}

const NEVER: AbortSignal = new AbortController().signal;
