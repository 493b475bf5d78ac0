import { randomBytes } from "node:crypto";
import { type Clock, systemClock } from "../reconciler/clock.ts";
import { untilAborted } from "../reconciler/deadline.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import type { Log } from "../reconciler/log.ts";
import { microTime } from "../reconciler/micro-time.ts";
import type { KubeClient, ObjectRef, ResourceClient } from "./contract.ts";
import { isNotFound } from "./errors.ts";
import { EVENTS } from "./resource-types.ts";

/** Annotation on an Event: JSON `{user, agent?, conversation?}` of who caused what it tells (DESIGN §4.10). */
export const CAUSED_BY = "agentworlds.dev/caused-by";

/** The object an event is about. */
export interface Regarding {
  readonly apiVersion: string;
  readonly kind: string;
  /** Absent for a cluster-scoped object, whose events live in `default`. */
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
}

/** Something worth telling a person. Neither note nor annotations hold a secret. */
export interface EventFact {
  readonly regarding: Regarding;
  readonly type: "Normal" | "Warning";
  /** PascalCase; equals the condition's reason. */
  readonly reason: string;
  /** PascalCase verb: what the controller did, for example `Hibernate`. */
  readonly action: string;
  /** A sentence; cut to the API's 1,024 bytes. */
  readonly note: string;
  /** Goes onto the Event, for example who caused it. */
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface EventRecorderOptions {
  readonly client: KubeClient;
  /** `reportingController`, for example `agentworlds.dev/sandbox`. */
  readonly controller: string;
  /** `reportingInstance`, usually the pod's name. */
  readonly instance: string;
  readonly log: Log;
  readonly clock?: Clock;
}

/** How many facts became what; a metrics adapter reads it. */
export interface EventCounts {
  readonly created: number;
  readonly repeated: number;
  /** Left out because the object had too many new events, or too many facts were waiting. */
  readonly dropped: number;
  readonly failed: number;
}

/** A repetition later than this is told as a new Event (as client-go does). */
const SERIES_MS = 360_000;
/** Facts waiting to be sent; beyond it the newest is dropped. */
const MAX_WAITING = 1_000;
/** Remembered series; beyond it the one longest unrepeated is forgotten. */
const MAX_SERIES = 4_096;
/** New Events of one object: this many at once, then one a minute. A note that differs in every pass must not fill etcd. */
const BURST = 25;
const REFILL_MS = 60_000;
/** The API counts the bytes of a note (k8s.io/kubernetes/pkg/apis/core/validation/events.go). */
const NOTE_BYTES = 1_024;

interface EventObject extends KubeObject {
  readonly series?: { readonly count: number; readonly lastObservedTime: string };
}

interface Series {
  readonly ref: ObjectRef;
  count: number;
  lastAt: number;
}

interface Allowance {
  left: number;
  at: number;
}

/**
 * Writes `events.k8s.io/v1` Events, in order and one at a time, behind the caller's back: `record` returns at once and never
 * throws. The same fact again becomes a count on the first Event's `series`. An Event that cannot be written is logged, counted
 * and gone: events are best effort, conditions are the truth.
 */
export class EventRecorder {
  readonly #options: EventRecorderOptions;
  readonly #clock: Clock;
  readonly #events: ResourceClient<EventObject>;
  readonly #waiting: EventFact[] = [];
  /** In the order of their last repetition. */
  readonly #series = new Map<string, Series>();
  readonly #allowances = new Map<string, Allowance>();
  readonly #stop = new AbortController();
  readonly #counts = { created: 0, repeated: 0, dropped: 0, failed: 0 };
  #sending: Promise<void> | undefined;

  constructor(options: EventRecorderOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#events = options.client.resource<EventObject>(EVENTS);
  }

  /** Queues a fact. Never throws, never waits. After `close` it only counts. */
  record(fact: EventFact): void {
    if (this.#stop.signal.aborted || this.#waiting.length >= MAX_WAITING) {
      this.#drop(fact, "too many events are waiting");
      return;
    }
    this.#waiting.push(fact);
    this.#sending ??= this.#sendAll();
  }

  counts(): EventCounts {
    return { ...this.#counts };
  }

  /** Resolves when everything recorded so far was sent or given up; rejects with the signal's reason when it aborts first. */
  async flush(signal: AbortSignal): Promise<void> {
    while (this.#sending !== undefined) await untilAborted(this.#sending, signal);
  }

  /** Aborts what is being sent and drops the rest. Call `flush` first for an orderly stop. */
  async close(): Promise<void> {
    for (const fact of this.#waiting.splice(0)) this.#drop(fact, "the recorder was closed");
    this.#stop.abort(new Error("the event recorder was closed"));
    await this.#sending;
  }

  async #sendAll(): Promise<void> {
    // Begins in a later turn, so that `record` returns before anything can go wrong.
    await Promise.resolve();
    for (let fact = this.#waiting.shift(); fact !== undefined; fact = this.#waiting.shift()) {
      try {
        await this.#send(fact);
      } catch (error) {
        this.#counts.failed += 1;
        this.#options.log.warn({ ...about(fact), err: error }, "an event could not be written");
      }
    }
    this.#sending = undefined;
  }

  async #send(fact: EventFact): Promise<void> {
    const key = seriesKey(fact);
    const series = this.#series.get(key);
    if (series !== undefined && this.#clock.now() - series.lastAt < SERIES_MS) {
      if (await this.#repeat(key, series)) return;
    }
    if (!this.#mayCreate(fact.regarding.uid)) {
      this.#drop(fact, "the object has too many new events");
      return;
    }
    await this.#create(key, fact);
  }

  /** Counts one more on the series; false when the Event has expired (they live an hour). */
  async #repeat(key: string, series: Series): Promise<boolean> {
    const now = this.#clock.now();
    const patch = { series: { count: series.count + 1, lastObservedTime: microTime(now) } };
    try {
      await this.#events.patch(series.ref, patch, { signal: this.#stop.signal });
    } catch (error) {
      if (!isNotFound(error)) throw error;
      this.#series.delete(key);
      return false;
    }
    series.count += 1;
    series.lastAt = now;
    this.#remember(key, series);
    this.#counts.repeated += 1;
    return true;
  }

  async #create(key: string, fact: EventFact): Promise<void> {
    const now = this.#clock.now();
    const namespace = fact.regarding.namespace ?? "default";
    // A name may have 253 characters; an object's 63 and a suffix fit.
    const name = `${fact.regarding.name.slice(0, 200)}.${randomBytes(8).toString("hex")}`;
    const annotations = fact.annotations === undefined ? {} : { annotations: fact.annotations };
    const body = {
      apiVersion: "events.k8s.io/v1",
      kind: "Event",
      metadata: { namespace, name, ...annotations },
      eventTime: microTime(now),
      reportingController: this.#options.controller,
      reportingInstance: this.#options.instance,
      type: fact.type,
      reason: fact.reason,
      action: fact.action,
      note: cutNote(fact.note),
      regarding: fact.regarding,
    };
    await this.#events.create(body, { namespace, signal: this.#stop.signal });
    this.#counts.created += 1;
    this.#remember(key, { ref: { namespace, name }, count: 1, lastAt: now });
  }

  #remember(key: string, series: Series): void {
    this.#series.delete(key);
    this.#series.set(key, series);
    forgetOldest(this.#series, MAX_SERIES);
  }

  #mayCreate(uid: string): boolean {
    const now = this.#clock.now();
    const before = this.#allowances.get(uid) ?? { left: BURST, at: now };
    const refilled = Math.floor(Math.max(now - before.at, 0) / REFILL_MS);
    const left = Math.min(BURST, before.left + refilled);
    const at = left === BURST ? now : before.at + refilled * REFILL_MS;
    this.#allowances.delete(uid);
    this.#allowances.set(uid, { left: Math.max(left - 1, 0), at });
    forgetOldest(this.#allowances, MAX_SERIES);
    return left > 0;
  }

  #drop(fact: EventFact, why: string): void {
    this.#counts.dropped += 1;
    this.#options.log.warn(about(fact), `an event was left out: ${why}`);
  }
}

function cutNote(note: string): string {
  if (Buffer.byteLength(note) <= NOTE_BYTES) return note;
  const mark = "…";
  // Takes whole characters only.
  const { read } = new TextEncoder().encodeInto(note, new Uint8Array(NOTE_BYTES - Buffer.byteLength(mark)));
  return note.slice(0, read) + mark;
}

/** Note and annotations are part of it: "published v1" and "published v2" are two facts, and so are two people's deeds. */
function seriesKey(fact: EventFact): string {
  return JSON.stringify([fact.regarding.uid, fact.type, fact.reason, fact.action, fact.note, fact.annotations]);
}

function about(fact: EventFact): object {
  const { kind, namespace, name } = fact.regarding;
  return { kind, namespace, name, reason: fact.reason };
}

function forgetOldest(map: Map<string, unknown>, limit: number): void {
  const [oldest] = map.keys();
  if (map.size > limit && oldest !== undefined) map.delete(oldest);
}
