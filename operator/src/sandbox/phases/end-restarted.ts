/**
 * A container that somebody started anew from outside (`docker restart`) runs, and nothing of the session does: its processes
 * ended with the first start. Such a session has ended like any whose container did, so the container is stopped, and the pass
 * goes on with what is left of it.
 *
 * The first process says so, and not the time of the start: an engine that comes back to live containers (live-restore) may
 * write that anew, and no live session is to be stopped for it.
 */
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { demandSameBoot } from "../record.ts";
import type { SandboxScope } from "../scope.ts";

export async function endRestarted(scope: SandboxScope): Promise<PhaseResult> {
  const { driver, observed } = scope;
  const before = scope.sandbox.status?.compute?.pid;
  if (!driver || before === undefined || (observed?.state !== "Running" && observed?.state !== "Frozen"))
    return CONTINUE;
  if (observed.pid === undefined || observed.pid === before) return CONTINUE;
  await demandSameBoot(scope);
  const { compute } = scope.sandbox.status;
  if (!compute) return CONTINUE;
  const { signal } = scope.context;
  await driver.stop(compute.id, signal);
  scope.observed = await driver.inspect(compute.id, signal);
  const message = `container ${compute.id} on ${compute.runtime}/${compute.host}, of boot ${compute.boot}, was started anew at ${observed.startedAt}, not by the operator: what ran in it had ended; what is on its disk is saved`;
  scope.dependencies.log.warn({ compute, pid: observed.pid }, message);
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    { type: "Warning", reason: "ContainerRestarted", action: "Observe", message },
  );
  return CONTINUE;
}
