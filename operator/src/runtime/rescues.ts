/** Unpublished work that is kept on a host, written where it survives its Sandbox and namespace: `Runtime.status.rescues[]`. */
import type { Runtime, RuntimeRescue } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isConflict } from "../kube/errors.ts";

export interface RuntimeRescues {
  /** Adds the rescue unless its operation or its container is recorded already. Throws when the Runtime does not exist. */
  record(runtime: string, rescue: RuntimeRescue, signal: AbortSignal): Promise<void>;
}

/** The list is full: nothing may be dropped from it to make room. */
export class RescuesFull extends Error {
  override readonly name = "RescuesFull";
}

const MOST_RESCUES = 64;
const MOST_CONFLICTS = 20;

/** A sweep with an older view of the Runtime finds the container of a rescue that was written down a moment ago. */
const isSameWork = (known: RuntimeRescue, rescue: RuntimeRescue): boolean =>
  known.operation === rescue.operation || (known.host === rescue.host && known.computeId === rescue.computeId);

export function createRuntimeRescues(runtimes: ResourceClient<Runtime>): RuntimeRescues {
  return {
    async record(name, rescue, signal) {
      for (let conflicts = 0; ; conflicts++) {
        const runtime = await runtimes.get({ name }, { signal });
        const rescues = runtime.status?.rescues ?? [];
        if (rescues.some((known) => isSameWork(known, rescue))) return;
        if (rescues.length >= MOST_RESCUES)
          throw new RescuesFull(`Runtime ${name} keeps ${MOST_RESCUES} rescues already`);
        try {
          await runtimes.patchStatus(
            { name },
            {
              metadata: { resourceVersion: runtime.metadata.resourceVersion },
              status: { rescues: [...rescues, rescue] },
            },
            { signal },
          );
          return;
        } catch (error) {
          if (!isConflict(error) || conflicts >= MOST_CONFLICTS) throw error;
        }
      }
    },
  };
}
