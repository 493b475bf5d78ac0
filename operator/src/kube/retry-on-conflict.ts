/** A compare-and-swap that is decided again when somebody was faster. */
import { isConflict } from "./errors.ts";

/** Gateways move an object all the time while its session runs; whoever loses this often comes back in another pass. */
const MOST_CONFLICTS = 50;

/**
 * Runs `attempt` (read, decide, write under the resourceVersion read) until it is not met by a conflict. `refresh` is for an
 * attempt that begins with what its caller has read already. After too many conflicts the last one is thrown.
 */
export async function retryOnConflict<R>(attempt: () => Promise<R>, refresh?: () => Promise<void>): Promise<R> {
  for (let conflicts = 1; ; conflicts++) {
    try {
      return await attempt();
    } catch (error) {
      if (!isConflict(error) || conflicts > MOST_CONFLICTS) throw error;
    }
    await refresh?.();
  }
}
