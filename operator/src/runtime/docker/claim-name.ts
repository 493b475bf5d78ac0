import type { Clock } from "../../reconciler/clock.ts";
import { RuntimeError } from "../errors.ts";
import type { Containers, InspectedContainer } from "./containers.ts";
import { isStatus } from "./engine-errors.ts";

/** How often, and with what pause, a name is tried that is taken by nothing visible: 10 s in all. */
const ATTEMPTS = 100;
const PAUSE_MS = 100;

export interface NamedContainer {
  readonly name: string;
  /** Body of the create call. */
  readonly config: unknown;
}

/**
 * Creates the container, or returns the one that has the name already; undefined means that this call made it. An engine
 * reserves a name before it shows the container and releases it after it no longer does, so what is neither free nor
 * visible is tried again.
 */
export async function createOrFind(
  { containers, clock }: { containers: Containers; clock: Clock },
  { name, config }: NamedContainer,
  signal: AbortSignal,
): Promise<InspectedContainer | undefined> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      await containers.create(name, config, signal);
      return undefined;
    } catch (error) {
      if (!isStatus(error, 409)) throw error;
    }
    const existing = await containers.inspect(name, signal);
    if (existing !== undefined) return existing;
    await clock.sleep(PAUSE_MS, signal);
  }
  throw new RuntimeError("HostRefused", `the host keeps the name ${name} for a container that it does not show`);
}
