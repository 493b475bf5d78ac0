/**
 * What the runtime measures. The telemetry folder turns these calls into Prometheus series; the runtime itself depends on
 * no metrics library. Durations are milliseconds, times epoch milliseconds. Implementations must not throw.
 */
export interface ReconcilerMetrics {
  /** A complete list was taken over into the store. */
  listed(resource: string, sample: { items: number; milliseconds: number }): void;
  /** Something arrived on the watch (an event or a bookmark). `now − at` is the age to alert on. */
  watchHeard(resource: string, sample: { type: string; at: number }): void;
  /** A watch ended. `silent`: the watchdog cut a stream that outlived its own timeout. */
  watchClosed(resource: string, cause: WatchEnd): void;
  /** A list or a watch failed and will be tried again. */
  reflectorFailed(resource: string, during: "list" | "watch"): void;
  /** A listener of the store threw; the others were still called. */
  listenerFailed(resource: string): void;
  /** Keys waiting for a worker, after each change. */
  queueDepth(queue: string, depth: number): void;
  /** Time a key waited between becoming due and being taken. */
  queueWaited(queue: string, milliseconds: number): void;
  /** One pass ended. */
  reconciled(controller: string, sample: { outcome: PassEnd; milliseconds: number }): void;
  /** Workers busy now. */
  workersBusy(controller: string, busy: number): void;
  /** This process could lead and does not yet, began to lead, or ceased to; the last may be told twice. */
  leading(lease: string, leads: boolean): void;
}

/** Why a watch ended; every value is a label, so a metrics adapter can start them all at zero. */
export const WATCH_ENDS = ["ended", "expired", "silent", "failed"] as const;
export type WatchEnd = (typeof WATCH_ENDS)[number];

/** How a pass ended; every value is a label, so a metrics adapter can start them all at zero. */
export const PASS_ENDS = [
  "settled",
  "requeued",
  "waiting",
  "terminal",
  "stalled",
  "conflict",
  "error",
  "aborted",
] as const;
export type PassEnd = (typeof PASS_ENDS)[number];

/** Measures nothing: the default where no metrics are given. */
export const noMetrics: ReconcilerMetrics = {
  listed: drop,
  watchHeard: drop,
  watchClosed: drop,
  reflectorFailed: drop,
  listenerFailed: drop,
  queueDepth: drop,
  queueWaited: drop,
  reconciled: drop,
  workersBusy: drop,
  leading: drop,
};

function drop(): undefined {
  return undefined;
}
