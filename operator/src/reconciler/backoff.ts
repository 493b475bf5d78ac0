/** Exponential growth from `baseMs` to `capMs`. */
export interface BackoffPolicy {
  readonly baseMs: number;
  readonly capMs: number;
}

/** Between tries of a list or watch: an API server that is back is found within half a minute. */
export const REFLECTOR_BACKOFF: BackoffPolicy = { baseMs: 500, capMs: 30_000 };

/** Between tries of one key. The cap bounds how long an object lags behind a healed outage. */
export const KEY_BACKOFF: BackoffPolicy = { baseMs: 100, capMs: 60_000 };

/**
 * Delay before try number `failures + 1`, with up to 25 % added so that many waiters do not return in step.
 * `random` yields 0 ≤ x < 1. Never exceeds the cap by more than the jitter.
 */
export function backoffMs(policy: BackoffPolicy, failures: number, random: number): number {
  // 2^30 alone would pass any cap; beyond it the power overflows to Infinity.
  const grown = policy.baseMs * 2 ** Math.min(Math.max(failures - 1, 0), 30);
  return Math.round(Math.min(grown, policy.capMs) * (1 + random / 4));
}

/** What the server asked for, with up to half added so that the refused do not all come back at once. */
export function retryAfterMs(asked: number, random: number): number {
  return Math.round(asked * (1 + random / 2));
}
