import { systemClock } from "../reconciler/clock.ts";
import type { Log } from "../reconciler/log.ts";

const RETRY_MS = 2_000;

/** An API server that is away at start heals by itself; a wrong setting does too, once somebody corrects the Secret. */
export async function patiently<R>(open: () => Promise<R>, { log, stop }: { log: Log; stop: AbortSignal }): Promise<R> {
  for (;;) {
    try {
      return await open();
    } catch (error) {
      if (stop.aborted) throw error;
      log.warn({ err: error }, "a part cannot be opened yet; it is tried again");
      await systemClock.sleep(RETRY_MS, stop);
    }
  }
}
