/**
 * The clock every part reads instead of `Date.now()`, so that deadlines can be tested at a chosen time.
 * Times are epoch milliseconds.
 */
export interface Clock {
  /** The time now, in epoch milliseconds. */
  now(): number;
  /** Resolves after `milliseconds`, or rejects with the signal's reason when it aborts first. */
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
  /**
   * Milliseconds since some fixed moment, untouched when somebody sets the machine's clock: for durations and leases. A fake
   * clock may leave it out; then `now` is used.
   */
  monotonic?(): number;
}

/** The time for measuring durations: see `Clock.monotonic`. */
export function monotonicNow(clock: Clock): number {
  return clock.monotonic?.() ?? clock.now();
}

/** `setTimeout` past 2^31−1 ms fires after 1 ms (measured on Node 24), so longer waits are cut and repeated. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  async sleep(milliseconds, signal) {
    let left = milliseconds;
    do {
      const part = Math.min(left, LONGEST_TIMER_MS);
      await sleepOnce(part, signal);
      left -= part;
    } while (left > 0);
  },
};

function sleepOnce(milliseconds: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    }, milliseconds);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
