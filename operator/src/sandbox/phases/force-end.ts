/**
 * The last bound of a deletion. Whatever the phases wait for or fail on, a Sandbox does not hold its namespace for longer than
 * twice the deletion's deadline, and not at all when somebody says so. What is left is written down wherever that is possible.
 */
import { clip, LIMITS, type SandboxCompute } from "@agentworlds/crds";
import { isConflict } from "../../kube/errors.ts";
import { LeadershipLost } from "../../reconciler/lease.ts";
import { Waiting } from "../../reconciler/policy.ts";
import { CONTINUE, type PhaseResult, STOP } from "../../reconciler/reconcile.ts";
import { wordsOf } from "../../reconciler/words-of.ts";
import { RuntimeError } from "../../runtime/errors.ts";
import { SANDBOX_FINALIZER } from "../../runtime/open-boot.ts";
import { whyForced } from "../../world/forced-end.ts";
import { dropFinalizer, SandboxGone } from "../record.ts";
import { rescue } from "../rescue.ts";
import type { SandboxScope } from "../scope.ts";

export async function forceEnd(scope: SandboxScope): Promise<PhaseResult> {
  const { metadata } = scope.sandbox;
  const { deletionDeadlineMs } = scope.dependencies.limits;
  const why = whyForced(metadata, { now: scope.context.clock.now(), deletionDeadlineMs });
  if (why === undefined || !metadata.finalizers?.includes(SANDBOX_FINALIZER)) return CONTINUE;
  const { compute } = scope.sandbox.status ?? {};
  const failure = await keepWhatIsLeft(scope, why);
  await dropFinalizer(scope);
  tell(scope, { why, failure, compute });
  return STOP;
}

/** As a rescue. Returns why that could not be. */
async function keepWhatIsLeft(scope: SandboxScope, why: string): Promise<string | undefined> {
  const compute = scope.sandbox.status?.compute;
  if (!compute) return undefined;
  try {
    scope.driver = await scope.dependencies.driverFor(compute.runtime, compute.host, scope.context.signal);
  } catch (error) {
    if (!(error instanceof RuntimeError) && !(error instanceof Waiting)) throw error;
    scope.hostProblem = error.message;
  }
  try {
    await rescue(scope, scope.hostProblem === undefined ? why : `${why}; ${scope.hostProblem}`);
    return undefined;
  } catch (error) {
    const isOtherPass = isConflict(error) || error instanceof SandboxGone || error instanceof LeadershipLost;
    if (isOtherPass || scope.context.signal.aborted) throw error;
    return wordsOf(error);
  }
}

/** On the Runtime as well: in a namespace that goes nobody can write an Event any more. */
function tell(
  scope: SandboxScope,
  { why, failure, compute }: { why: string; failure: string | undefined; compute: SandboxCompute | undefined },
): void {
  const { dependencies, sandbox } = scope;
  const { namespace, name, uid } = sandbox.metadata;
  const left = compute && `${compute.runtime}/${compute.host} as ${compute.id}`;
  const about = `Sandbox ${namespace}/${name} (${uid}) is gone: ${why}`;
  const message = clip(
    [
      about,
      ...(left === undefined ? [] : [`its container is left on ${left}`]),
      ...(failure === undefined ? [] : [`and could not be written down: ${failure}`]),
    ].join("; "),
    LIMITS.message,
  );
  dependencies.log.error({ sandbox: name, namespace, uid, left, failure }, message);
  const event = { type: "Warning", reason: "FinalizerSkipped", action: "Delete", message } as const;
  dependencies.announce({ kind: "Sandbox", object: sandbox }, event);
  const keeper = compute && dependencies.runtimes.get(compute.runtime);
  if (keeper) dependencies.announce({ kind: "Runtime", object: keeper }, event);
}
