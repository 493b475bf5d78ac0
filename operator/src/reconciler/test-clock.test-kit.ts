import type { Clock } from "./clock.ts";

/** A clock that stands still until a test moves it. */
export interface TestClock extends Clock {
  /**
   * Moves the time on, waking each sleeper at its own moment and in order, and lets what was woken run before the next.
   * Sleepers that those start are woken too when they fall into the span.
   */
  advance(milliseconds: number): Promise<void>;
  /** Moves the time shown by `now()` without waking anybody: an operator who sets the machine's clock. */
  jump(milliseconds: number): void;
  /** Sleepers waiting now, as milliseconds left, soonest first. */
  pending(): readonly number[];
  /** Milliseconds moved by `advance` only, whatever `jump` did. */
  monotonic(): number;
}

interface Sleeper {
  readonly at: number;
  readonly order: number;
  readonly wake: () => void;
}

/** A clock at `startMs` (default 2026-01-01T00:00:00Z), for tests. */
export function createTestClock(startMs: number = Date.UTC(2026, 0, 1)): TestClock {
  const sleepers = new Set<Sleeper>();
  let elapsed = 0;
  let offset = startMs;
  let order = 0;

  const soonest = (): Sleeper | undefined => [...sleepers].sort((a, b) => a.at - b.at || a.order - b.order)[0];

  return {
    now: () => offset + elapsed,
    monotonic: () => elapsed,
    pending: () => [...sleepers].map((sleeper) => sleeper.at - elapsed).sort((a, b) => a - b),
    jump(milliseconds) {
      offset += milliseconds;
    },
    sleep(milliseconds, signal) {
      return new Promise((resolve, reject) => {
        if (signal.aborted) {
          reject(signal.reason);
          return;
        }
        const onAbort = () => {
          sleepers.delete(sleeper);
          reject(signal.reason);
        };
        const sleeper: Sleeper = {
          at: elapsed + Math.max(0, milliseconds),
          order: order++,
          wake() {
            sleepers.delete(sleeper);
            signal.removeEventListener("abort", onAbort);
            resolve();
          },
        };
        sleepers.add(sleeper);
        signal.addEventListener("abort", onAbort, { once: true });
      });
    },
    async advance(milliseconds) {
      const target = elapsed + milliseconds;
      await settle();
      for (let next = soonest(); next !== undefined && next.at <= target; next = soonest()) {
        elapsed = Math.max(elapsed, next.at);
        next.wake();
        await settle();
      }
      elapsed = target;
      await settle();
    },
  };
}

/** Lets every promise that can settle without time or I/O settle. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
}
