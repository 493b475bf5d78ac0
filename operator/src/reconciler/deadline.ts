import type { Clock } from "./clock.ts";

/** The reason a signal made by `startDeadline` aborts with when its time is up. */
export class DeadlineExceeded extends Error {
  override readonly name = "DeadlineExceeded";
  readonly milliseconds: number;
  constructor(milliseconds: number) {
    super(`deadline of ${milliseconds} ms exceeded`);
    this.milliseconds = milliseconds;
  }
}

/** The pass, not the process, has come to its end: nothing is lost but time, and whoever can must say so. */
export class PassDeadlineExceeded extends Error {
  override readonly name = "PassDeadlineExceeded";
  constructor(milliseconds: number) {
    super(`the pass was cut off: it took longer than ${Math.round(milliseconds / 1000)} s`);
  }
}

/** A signal that aborts with its parent or when the time is up. Dispose it when the work is over, or its timer stays. */
export interface Deadline extends Disposable {
  readonly signal: AbortSignal;
  /** True once the time is up; false when the parent aborted first. */
  readonly expired: boolean;
}

export interface DeadlineOptions {
  readonly clock: Clock;
  readonly milliseconds: number;
  readonly parent: AbortSignal;
  /** What it aborts with when the time is up. Default: a `DeadlineExceeded`. */
  readonly reason?: Error;
}

/**
 * Starts a deadline on the given clock. Not `AbortSignal.any` and `AbortSignal.timeout`: those know no other clock, and a
 * parent that lives as long as the process would collect a dependent per call.
 */
export function startDeadline(options: DeadlineOptions): Deadline {
  const { clock, milliseconds, parent } = options;
  const controller = new AbortController();
  const timer = new AbortController();
  let expired = false;
  const onParent = () => controller.abort(parent.reason);
  if (parent.aborted) onParent();
  else parent.addEventListener("abort", onParent, { once: true });
  clock.sleep(milliseconds, timer.signal).then(
    () => {
      if (controller.signal.aborted) return;
      expired = true;
      controller.abort(options.reason ?? new DeadlineExceeded(milliseconds));
    },
    // The sleep rejects only because dispose() below ended it.
    () => undefined,
  );
  return {
    signal: controller.signal,
    get expired() {
      return expired;
    },
    [Symbol.dispose]() {
      parent.removeEventListener("abort", onParent);
      timer.abort();
    },
  };
}

/** Resolves when the signal aborts. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/**
 * Settles as the promise does, or rejects with the signal's reason as soon as it aborts: for work that may ignore its
 * signal. The abandoned promise's later rejection is not reported as unhandled.
 */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
