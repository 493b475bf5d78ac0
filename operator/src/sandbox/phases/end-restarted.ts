/**
 * A container that somebody started anew from outside (`docker restart`) runs, and nothing of the session does: its processes
 * ended with the first start. Such a session has ended like any whose container did, so the container is stopped, and the pass
 * goes on with what is left of it.
 *
 * The first process says so, and not the time of the start: an engine that comes back to live containers (live-restore) may
 * write that anew, and no live session is to be stopped for it.
 */
import type { SandboxCompute } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import type { ObservedCompute } from "../../runtime/contract.ts";
import { demandSameBoot } from "../record.ts";
import type { SandboxScope } from "../scope.ts";

export async function endRestarted(scope: SandboxScope): Promise<PhaseResult> {
  const { driver, observed } = scope;
  if (!driver || !isRestarted(scope.sandbox.status?.compute, observed)) return CONTINUE;
  await demandSameBoot(scope);
  const { compute } = scope.sandbox.status;
  // The cache may not have shown which process it is.
  if (!compute || !isRestarted(compute, observed)) return CONTINUE;
  const { signal } = scope.context;
  await driver.stop(compute.id, signal);
  const since = observed.startedAt === undefined ? "" : ` at ${observed.startedAt}`;
  const message = `container ${compute.id} on ${compute.runtime}/${compute.host}, of boot ${compute.boot}, was started anew${since}, not by the operator: what ran in it had ended, and so has this session`;
  scope.dependencies.log.warn({ compute, pid: observed.pid }, message);
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    { type: "Warning", reason: "ContainerRestarted", action: "Observe", message },
  );
  scope.observed = await driver.inspect(compute.id, signal);
  return CONTINUE;
}

type Started = Extract<ObservedCompute, { readonly startedAt: unknown }>;

function isRestarted(compute: SandboxCompute | undefined, observed: ObservedCompute | undefined): observed is Started {
  if (compute?.pid === undefined || (observed?.state !== "Running" && observed?.state !== "Frozen")) return false;
  return observed.pid !== undefined && observed.pid !== compute.pid;
}
