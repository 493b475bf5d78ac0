import { setTimeout as sleep } from "node:timers/promises";
import { NeverHappened } from "./errors.ts";

/** How long and how often `eventually` looks. */
export interface EventuallyOptions {
  /** Ends the wait early with the signal's reason. */
  signal?: AbortSignal;
  /** How long to wait, in milliseconds; default 30 000. */
  timeoutMs?: number;
  /** Pause between two looks, in milliseconds; default 50. */
  intervalMs?: number;
  /** What is waited for, named in the error. */
  what?: string;
}

/**
 * Looks again and again until `check` returns something other than `undefined` or `false`, and returns that.
 * A throwing check counts as "not yet". For a check that returns nothing see `eventuallyHolds`.
 * @throws NeverHappened after the time is over, with the last thrown error as `cause`; the reason of `signal` when it aborts.
 */
export async function eventually<T>(
  check: (signal: AbortSignal) => T | Promise<T>,
  options: EventuallyOptions = {},
): Promise<Exclude<T, undefined | false>> {
  const timeoutMs = options.timeoutMs ?? 30_000;
  const deadline = AbortSignal.timeout(timeoutMs);
  const signal = options.signal === undefined ? deadline : AbortSignal.any([options.signal, deadline]);
  let last: unknown;
  while (!signal.aborted) {
    try {
      const seen = await check(signal);
      if (seen !== undefined && seen !== false) return seen as Exclude<T, undefined | false>;
      last = undefined;
    } catch (error) {
      // The abort that ended the wait says less than what was wrong before it.
      if (!signal.aborted || last === undefined) last = error;
    }
    await pause(options.intervalMs ?? 50, signal);
  }
  options.signal?.throwIfAborted();
  const why = last instanceof Error ? `: ${last.message}` : "";
  throw new NeverHappened(`${options.what ?? "the awaited condition"} did not hold within ${timeoutMs} ms${why}`, {
    cause: last,
  });
}

/**
 * Runs an assertion again and again until it no longer throws.
 * @throws like `eventually`, with what the assertion threw last as `cause`.
 */
export async function eventuallyHolds(
  assertion: (signal: AbortSignal) => void | Promise<void>,
  options: EventuallyOptions = {},
): Promise<void> {
  const holds = async (signal: AbortSignal): Promise<true> => {
    await assertion(signal);
    return true;
  };
  await eventually(holds, options);
}

async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(milliseconds, undefined, { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
