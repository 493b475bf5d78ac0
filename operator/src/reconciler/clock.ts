/**
 * The clock every part reads instead of `Date.now()`, so that deadlines can be tested at a chosen time.
 * Times are epoch milliseconds.
 */
export interface Clock {
  /** The time now, in epoch milliseconds. */
  now(): number;
  /** Resolves after `milliseconds`, or rejects with the signal's reason when it aborts first. */
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
}

/** `setTimeout` past 2^31−1 ms fires after 1 ms (measured on Node 24), so longer waits are cut and repeated. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
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
