import { apiFailureOf } from "./api-failure.ts";
import { type BackoffPolicy, backoffMs, REFLECTOR_BACKOFF, retryAfterMs } from "./backoff.ts";
import { type Clock, monotonicNow, systemClock } from "./clock.ts";
import { startDeadline, untilAborted } from "./deadline.ts";
import type { KubeObject, ListWatch, WatchEvent } from "./list-watch.ts";
import { type Log, silentLog } from "./log.ts";
import { noMetrics, type ReconcilerMetrics, type WatchEnd } from "./metrics.ts";
import { isAtOrBefore } from "./resource-version.ts";
import type { ObjectStore } from "./store.ts";

export interface ReflectorOptions<T extends KubeObject> {
  readonly source: ListWatch<T>;
  readonly store: ObjectStore<T>;
  readonly clock?: Clock;
  readonly log?: Log;
  readonly metrics?: ReconcilerMetrics;
  /** 0 ≤ x < 1, for jitter. Default `Math.random`. */
  readonly random?: () => number;
  /** Between tries. Default 500 ms doubling to 30 s: an API server that is back is found within half a minute. */
  readonly backoff?: BackoffPolicy;
  /** Objects per page. Default 500. */
  readonly pageSize?: number;
  /** For each page of a list. Default 60 s. */
  readonly listDeadlineMs?: number;
  /** The server is asked to end a watch after this many seconds, or up to half as many again. Default 240. */
  readonly watchTimeoutSeconds?: number;
  /** A watch that outlives its timeout by this much is half-open and is cut. Default 30 s. */
  readonly watchGraceMs?: number;
  /**
   * A full list is taken again after this long, however healthy the watch looks. It bounds what an event the server never
   * sent can do, and heals a mirror whose server was restored from a backup with lower resourceVersions. Default 1 h.
   */
  readonly relistAfterMs?: number;
}

/** How a reflector is doing; readiness and alerts read it. */
export interface ReflectorHealth {
  /** True once a complete list has been taken over. Stays true during later trouble. */
  readonly synced: boolean;
  /** Epoch ms of the last list, event or bookmark; undefined before the first. */
  readonly lastHeardAt: number | undefined;
  /** Failures since the last good list or watch. */
  readonly failures: number;
}

/** A watch that ends sooner than this is followed by a pause, or a server that closes at once is hammered. */
const SHORT_WATCH_MS = 1_000;

/**
 * Mirrors one resource into a store, for ever: pages through a list, watches from there, resumes by resourceVersion, and
 * answers any trouble with backoff. Nothing but its signal ends it.
 */
export class Reflector<T extends KubeObject> {
  readonly #source: ListWatch<T>;
  readonly #store: ObjectStore<T>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: ReconcilerMetrics;
  readonly #random: () => number;
  readonly #backoff: BackoffPolicy;
  readonly #pageSize: number;
  readonly #listDeadlineMs: number;
  readonly #watchTimeoutSeconds: number;
  readonly #watchGraceMs: number;
  readonly #relistAfterMs: number;

  #running = false;
  /** The resourceVersion everything up to which is in the store; undefined: a list is due. */
  #position: string | undefined;
  /** When a routine list is due, on the monotonic clock. */
  #relistAt = 0;
  #lastHeardAt: number | undefined;
  #failures = 0;
  /** A continue token expired under us: the next list is taken in one piece, so that it cannot expire again. */
  #listWhole = false;
  readonly #synced = Promise.withResolvers<void>();
  #hasSynced = false;

  constructor(options: ReflectorOptions<T>) {
    this.#source = options.source;
    this.#store = options.store;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? silentLog;
    this.#metrics = options.metrics ?? noMetrics;
    this.#random = options.random ?? Math.random;
    this.#backoff = options.backoff ?? REFLECTOR_BACKOFF;
    this.#pageSize = options.pageSize ?? 500;
    this.#listDeadlineMs = options.listDeadlineMs ?? 60_000;
    this.#watchTimeoutSeconds = options.watchTimeoutSeconds ?? 240;
    this.#watchGraceMs = options.watchGraceMs ?? 30_000;
    this.#relistAfterMs = options.relistAfterMs ?? 3_600_000;
  }

  /** True once a complete list has been taken over into the store. */
  hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** Resolves when `hasSynced` becomes true; rejects with the signal's reason when it aborts first. */
  whenSynced(signal: AbortSignal): Promise<void> {
    return untilAborted(this.#synced.promise, signal);
  }

  health(): ReflectorHealth {
    return { synced: this.#hasSynced, lastHeardAt: this.#lastHeardAt, failures: this.#failures };
  }

  /**
   * Runs until the signal aborts and then resolves; it never rejects. May be called again afterwards and resumes where it
   * was. Throws when it is running already: two watches would deliver everything twice.
   */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#running) throw new Error(`the reflector of ${this.#store.resource} is running already`);
    this.#running = true;
    try {
      while (!signal.aborted) {
        const pauseMs = await this.#turn(signal);
        if (pauseMs > 0) await this.#pause(pauseMs, signal);
      }
    } finally {
      this.#running = false;
    }
  }

  /** One list if due, one watch. Returns how long to wait before the next turn. */
  async #turn(signal: AbortSignal): Promise<number> {
    let during: "list" | "watch" = "list";
    try {
      if (this.#position === undefined || monotonicNow(this.#clock) >= this.#relistAt) {
        this.#position = await this.#list(signal);
      }
      signal.throwIfAborted();
      during = "watch";
      return await this.#watch(this.#position, signal);
    } catch (error) {
      if (signal.aborted) return 0;
      return this.#failed(during, error);
    }
  }

  /** Takes a complete list over into the store; returns the resourceVersion to watch from. */
  async #list(signal: AbortSignal): Promise<string> {
    const startedAt = monotonicNow(this.#clock);
    const limit = this.#listWhole ? 0 : this.#pageSize;
    const items: T[] = [];
    let continueToken: string | undefined;
    let resourceVersion: string;
    do {
      using deadline = startDeadline({ clock: this.#clock, milliseconds: this.#listDeadlineMs, parent: signal });
      const request = { limit, signal: deadline.signal, ...(continueToken === undefined ? {} : { continueToken }) };
      const page = await untilAborted(this.#source.list(request), deadline.signal);
      items.push(...page.items);
      ({ continueToken, resourceVersion } = page);
    } while (continueToken !== undefined && continueToken !== "");
    signal.throwIfAborted();

    this.#store.replace(items);
    this.#listWhole = false;
    this.#lastHeardAt = this.#clock.now();
    const finishedAt = monotonicNow(this.#clock);
    this.#relistAt = finishedAt + this.#relistAfterMs;
    this.#metrics.listed(this.#store.resource, { items: items.length, milliseconds: finishedAt - startedAt });
    if (!this.#hasSynced) {
      this.#hasSynced = true;
      this.#synced.resolve();
    }
    return resourceVersion;
  }

  /** Follows one watch to its end. Returns the pause before the next; throws what broke it. */
  async #watch(from: string, signal: AbortSignal): Promise<number> {
    const timeoutSeconds = Math.round(this.#watchTimeoutSeconds * (1 + this.#random() / 2));
    const milliseconds = timeoutSeconds * 1_000 + this.#watchGraceMs;
    using watchdog = startDeadline({ clock: this.#clock, milliseconds, parent: signal });
    const startedAt = monotonicNow(this.#clock);
    let heard = false;
    let end: WatchEnd = "failed";

    const request = { resourceVersion: from, timeoutSeconds, signal: watchdog.signal };
    const stream = this.#source.watch(request)[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await untilAborted(stream.next(), watchdog.signal);
        if (next.done === true) break;
        if (this.#take(next.value)) heard = true;
      }
      end = "ended";
    } catch (error) {
      if (!watchdog.expired || signal.aborted) {
        end = apiFailureOf(error)?.status === 410 ? "expired" : "failed";
        throw error;
      }
      end = "silent";
      this.#log.warn(
        { resource: this.#store.resource, timeoutSeconds },
        "a watch outlived its timeout; dialling again",
      );
    } finally {
      this.#metrics.watchClosed(this.#store.resource, end);
      if (heard) this.#failures = 0;
      this.#close(stream);
    }
    if (monotonicNow(this.#clock) - startedAt >= SHORT_WATCH_MS) {
      this.#failures = 0;
      return 0;
    }
    this.#failures += 1;
    return backoffMs(this.#backoff, this.#failures, this.#random());
  }

  /** Applies one event; false when it is a duplicate or older than what the store holds. */
  #take(event: WatchEvent<T>): boolean {
    const version = event.type === "BOOKMARK" ? event.resourceVersion : event.object.metadata.resourceVersion;
    // One resource's events arrive in the order of their resourceVersions, so anything at or before the position was seen.
    // Applying it again could bring a deleted object back.
    if (this.#position !== undefined && isAtOrBefore(version, this.#position)) return false;
    if (event.type === "DELETED") this.#store.delete(event.object);
    else if (event.type !== "BOOKMARK") this.#store.set(event.object);
    this.#position = version;
    this.#lastHeardAt = this.#clock.now();
    this.#metrics.watchHeard(this.#store.resource, { type: event.type, at: this.#lastHeardAt });
    return true;
  }

  /** Records a failure, decides whether to list again, and returns the pause. */
  #failed(during: "list" | "watch", error: unknown): number {
    this.#failures += 1;
    this.#metrics.reflectorFailed(this.#store.resource, during);
    const failure = apiFailureOf(error);
    const fields = { resource: this.#store.resource, during, failures: this.#failures, err: error };
    if (failure?.status === 410) this.#log.info(fields, "the resourceVersion is gone; listing again");
    else this.#log.warn(fields, "list or watch failed; trying again");

    if (during === "list") {
      this.#listWhole = failure?.status === 410;
      // A routine list that fails must not keep the watch, which may work, from going on.
      if (this.#position !== undefined) this.#relistAt = monotonicNow(this.#clock) + this.#relistAfterMs / 10;
    }
    // The server refuses this position (or this watch) rather than the moment: a fresh list gives a new one.
    else if (failure !== undefined && refusesPosition(failure.status)) this.#position = undefined;
    // A watch from exactly the compacted revision is answered with an error 500 again and again (seen on 1.37): a position
    // that only ever fails is given up, or the mirror would stand still until the next routine list.
    else if (failure !== undefined && failure.status >= 500 && this.#failures >= MOST_POSITION_FAILURES) {
      this.#position = undefined;
    }

    const grown = backoffMs(this.#backoff, this.#failures, this.#random());
    const asked = failure?.retryAfterMs;
    return asked === undefined ? grown : Math.max(grown, retryAfterMs(asked, this.#random()));
  }

  async #pause(milliseconds: number, signal: AbortSignal): Promise<void> {
    try {
      await this.#clock.sleep(milliseconds, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Ends the stream without waiting for it: a half-open one would never answer. */
  #close(stream: AsyncIterator<WatchEvent<T>>): void {
    stream.return?.()?.catch((error: unknown) => {
      this.#log.debug({ resource: this.#store.resource, err: error }, "closing a watch failed");
    });
  }
}

/** Server errors in a row after which a watch's position is taken for the cause. */
const MOST_POSITION_FAILURES = 3;

/** 401, 403 and 429 say nothing about the resourceVersion; 5xx neither. */
function refusesPosition(status: number): boolean {
  return status >= 400 && status < 500 && status !== 401 && status !== 403 && status !== 429;
}
