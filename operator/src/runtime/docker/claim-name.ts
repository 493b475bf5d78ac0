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

export type ClaimedContainer =
  | { readonly kind: "Made"; readonly id: string }
  | { readonly kind: "Found"; readonly container: InspectedContainer };

/**
 * Creates the container, or returns the one that has the name already, whosever it is. An engine
 * reserves a name before it shows the container and releases it after it no longer does, so what is neither free nor
 * visible is tried again.
 */
export async function createOrFind(
  { containers, clock }: { containers: Containers; clock: Clock },
  { name, config }: NamedContainer,
  signal: AbortSignal,
): Promise<ClaimedContainer> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      return { kind: "Made", id: await containers.create(name, config, signal) };
    } catch (error) {
      if (!isStatus(error, 409)) throw error;
    }
    const existing = await containers.inspect(name, signal);
    if (existing !== undefined) return { kind: "Found", container: existing };
    await clock.sleep(PAUSE_MS, signal);
  }
  throw new RuntimeError("HostRefused", `the host keeps the name ${name} for a container that it does not show`);
}
