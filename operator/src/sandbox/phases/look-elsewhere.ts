/**
 * The container is not where status says it is. Somebody may have altered the place, the boot or the engine, so before it
 * counts as lost the hosts are asked for it.
 */
import type { SandboxCompute } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { isHostLost } from "../../runtime/host-loss.ts";
import type { SandboxScope } from "../scope.ts";
import { adopt, askHosts } from "./find-compute.ts";
import { observe } from "./resolve.ts";

export async function lookElsewhere(scope: SandboxScope): Promise<PhaseResult> {
  const compute = scope.sandbox.status?.compute;
  if (!compute || !isMissing(scope, compute)) return CONTINUE;
  const discovery = await askHosts(scope);
  if (discovery.kind === "nothing") return CONTINUE;
  if (discovery.kind === "unproven") {
    const isProven = scope.hostProblem !== undefined || compute.engine !== undefined;
    // Its own engine says that it has gone, or a silence is waited for in any case: other hosts need not answer for that.
    if (discovery.problem.reason === "HostsNotAsked" && isProven) return CONTINUE;
    throw discovery.problem;
  }
  const { remnant } = discovery;
  // What its own engine has a capture of is looked at by the next phase.
  if (remnant.state === "Absent" && scope.hostProblem === undefined && remnant.engine === compute.engine)
    return CONTINUE;
  await adopt(scope, remnant, `status said that it was ${compute.id} on ${compute.runtime}/${compute.host}`);
  delete scope.driver;
  delete scope.observed;
  delete scope.hostProblem;
  delete scope.isOtherEngine;
  return observe(scope);
}

/** Only what may be lost is looked for: a session that was never Ready, that is dropped or that is a version has no such work. */
function isMissing(scope: SandboxScope, compute: SandboxCompute): boolean {
  const { operation } = scope.sandbox.status;
  const isVersion = operation?.stage === "Committed" && operation.verb !== "Snapshot";
  if (compute.provisionedAt === undefined || operation?.outcome === "Discard" || isVersion) return false;
  if (scope.hostProblem === undefined) return scope.observed?.state === "Absent";
  // Or its host has been silent for so long that it counts as gone from now on.
  const runtime = scope.dependencies.runtimes.get(compute.runtime);
  return isElsewhere(scope, compute) || isHostLost(compute.unreachableAt, runtime, scope.context.clock.now());
}

/** The host that status names does not exist, or is another engine. */
function isElsewhere({ dependencies, isOtherEngine }: SandboxScope, { runtime, host }: SandboxCompute): boolean {
  const hosts = dependencies.runtimes.get(runtime)?.spec.docker?.hosts ?? [];
  return isOtherEngine === true || !hosts.some(({ name }) => name === host);
}
