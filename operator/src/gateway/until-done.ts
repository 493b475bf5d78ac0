import type { Logger } from "pino";
import type { Clock } from "../reconciler/clock.ts";

/** Tries again with a growing pause until it succeeds or the signal aborts: an outage of any length heals by itself. */
export async function untilDone<R>(
  attempt: () => Promise<R>,
  options: { clock: Clock; logger: Logger; signal: AbortSignal },
): Promise<R> {
  for (let pauseMs = 200; ; pauseMs = Math.min(pauseMs * 2, 10_000)) {
    try {
      return await attempt();
    } catch (error) {
      options.signal.throwIfAborted();
      options.logger.warn({ err: error }, "the gateway cannot start yet; trying again");
    }
    await options.clock.sleep(pauseMs, options.signal);
  }
}
