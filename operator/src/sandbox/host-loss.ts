/**
 * A host that does not answer. A silence of any length loses nothing: the session waits. But it may not wait for ever for a
 * host that is gone for good, so after the Runtime's `hostLossSeconds` its work is written down as a rescue: it is found if
 * the host comes back, and until then no writer boots an older state silently.
 */
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { isHostLost } from "../runtime/host-loss.ts";
import { isBootOverdue } from "./boot-limit.ts";
import { demandSameBoot, isoNow, recordProgress } from "./record.ts";
import { rescue } from "./rescue.ts";
import type { SandboxScope } from "./scope.ts";

/** Writes down since when the host is silent, and ends what has been silent for too long. */
export async function watchHost(scope: SandboxScope): Promise<PhaseResult> {
  const compute = scope.sandbox.status?.compute;
  if (!compute) return CONTINUE;
  const { hostProblem } = scope;
  if ((hostProblem !== undefined) !== (compute.unreachableAt !== undefined)) await recordReach(scope);
  if (hostProblem === undefined) return CONTINUE;
  if (await giveBootUp(scope, hostProblem)) return CONTINUE;
  const { unreachableAt } = scope.sandbox.status?.compute ?? {};
  const runtime = scope.dependencies.runtimes.get(compute.runtime);
  if (!isHostLost(unreachableAt, runtime, scope.context.clock.now())) return CONTINUE;
  await rescue(scope, `no answer since ${unreachableAt}: ${hostProblem}`, "HostLost");
  return CONTINUE;
}

/** A boot that was never Ready has no work to wait for: its container, if there is one, is left to the sweep. */
async function giveBootUp(scope: SandboxScope, hostProblem: string): Promise<boolean> {
  const isOverdue = () => isBootOverdue(scope.sandbox.status, scope.context.clock.now());
  if (!isOverdue()) return false;
  // The cache may not show that it was Ready.
  await demandSameBoot(scope);
  if (!isOverdue()) return false;
  await rescue(scope, `HostUnreachable: ${hostProblem}`);
  return true;
}

async function recordReach(scope: SandboxScope): Promise<void> {
  const isSilent = scope.hostProblem !== undefined;
  await recordProgress(scope, ({ status }) => {
    if (!status?.compute) return undefined;
    const { unreachableAt: _, ...compute } = status.compute;
    return { compute: isSilent ? { ...compute, unreachableAt: isoNow(scope) } : compute };
  });
}
