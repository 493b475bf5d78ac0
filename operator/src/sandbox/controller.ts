/** The Sandbox controller: one documented scope, ordered phases, one deferred status write. */
import type { Sandbox, SandboxStatus } from "@agentworlds/crds";
import { isConflict } from "../kube/errors.ts";
import { findCondition } from "../reconciler/conditions.ts";
import { mergePatchBetween } from "../reconciler/patch.ts";
import { type PassOutcome, type Phase, runPhases } from "../reconciler/phases.ts";
import { Overtaken } from "../reconciler/policy.ts";
import type { Reconcile, ReconcileContext, ReconcileResult } from "../reconciler/reconcile.ts";
import { creatorOf } from "../world/creator.ts";
import { eventTypeOf, explain } from "../world/status.ts";
import { WorldGone } from "../world/status-writer.ts";
import { drainOf } from "./drain.ts";
import { keepHold } from "./hold.ts";
import { watchHost } from "./host-loss.ts";
import { admit } from "./phases/admit.ts";
import { confirmCapture } from "./phases/confirm-capture.ts";
import { disownCompute } from "./phases/disown-compute.ts";
import { endRestarted } from "./phases/end-restarted.ts";
import { findCompute } from "./phases/find-compute.ts";
import { followRescue } from "./phases/follow-rescue.ts";
import { forceEnd } from "./phases/force-end.ts";
import { endCutOffAttempt, hibernate } from "./phases/hibernate.ts";
import { lookElsewhere } from "./phases/look-elsewhere.ts";
import { mendReady, provision } from "./phases/provision.ts";
import { acknowledgeLoss, cleanUp, closeAsleep, release, rescueOverdue } from "./phases/release.ts";
import { judge, observe, resolveWorld } from "./phases/resolve.ts";
import { settleSlot } from "./phases/settle-slot.ts";
import { takeUpSnapshot } from "./phases/take-up-snapshot.ts";
import { watchDeadline } from "./phases/watch-deadline.ts";
import { recordProgress, SandboxGone } from "./record.ts";
import type { SandboxDependencies, SandboxScope } from "./scope.ts";
import { deriveSandboxStatus } from "./status.ts";

/** The life of a Sandbox, in order. Each phase either finds nothing to do, acts once, or says when to come back. */
const phases: readonly Phase<SandboxScope>[] = [
  disownCompute, // status names a stranger's container: from here on it names none
  mendReady, // a session whose clock runs has been Ready
  settleSlot, // the record of a boot had no answer: whether it has its slot
  takeUpSnapshot, // one that is asked for by annotation becomes a request
  resolveWorld, // which World; is it still the one this session booted from
  forceEnd, // a deletion that is far overdue, or that somebody wants to end now
  findCompute, // status names no container and there may be one: the hosts are asked
  followRescue, // what became of work that could not be published
  observe, // what the host says of the container
  endRestarted, // it was started anew from outside: nothing of the session runs in it
  lookElsewhere, // the container is not where status says: the hosts are asked before it counts as lost
  confirmCapture, // the container is gone, but its capture may be there
  watchHost, // since when its host is silent; one that is gone for good
  rescueOverdue, // a silent host may not hold a deletion for ever
  judge, // the one decision: boot, run, snapshot, end, lost, asleep, finished
  keepHold, // the World names nobody, and this session works in it
  acknowledgeLoss, // the container is gone: say so
  closeAsleep, // a close of a session that does not run
  admit, // World held and slot taken, in one pass or neither
  provision, // compute exists, exactly once, and answers; the clock starts
  hibernate, // intend → freeze → capture → upload → publish → verify
  release, // compute gone, hold ended, requests answered
  cleanUp, // finalizer off; a closed Sandbox goes after its time
  watchDeadline, // when to look again
];

export function reconcileSandboxes(dependencies: SandboxDependencies): Reconcile {
  return async (key, context) => {
    const sandbox = dependencies.sandboxes.get(key);
    if (!sandbox) return {};
    const scope: SandboxScope = {
      dependencies,
      context,
      sandbox,
      createdBy: creatorOf(sandbox),
      worldEnding: false,
      savesNothing: false,
      goal: { kind: "asleep" },
    };
    try {
      return await runPhases({ phases, scope, context, finish: summarise });
    } catch (error) {
      // Deleted between two steps: the next pass finds no World, and says so.
      throw error instanceof WorldGone ? new Overtaken(error.message, { cause: error }) : error;
    }
  };
}

async function summarise(
  scope: SandboxScope,
  outcome: PassOutcome,
  context: ReconcileContext,
): Promise<ReconcileResult> {
  scope.context = context;
  const failure = await failureOf(scope, outcome);
  // A stale object, a lost lease or an object that is gone is no finding about the session.
  if (isConflict(failure) || failure instanceof Overtaken || scope.context.signal.aborted) return {};
  if (scope.sandbox.metadata.deletionTimestamp && !scope.sandbox.metadata.finalizers?.length) return {};
  const before = scope.sandbox;
  try {
    await recordProgress(scope, (sandbox) => {
      const status: SandboxStatus = sandbox.status ?? { observedGeneration: -1 };
      const drain = drainOf({ ...scope, sandbox });
      const findings = { failure, observed: scope.observed, drain, now: scope.context.clock.now() };
      const derived = deriveSandboxStatus(sandbox, findings);
      return mergePatchBetween(status, { ...status, ...derived });
    });
  } catch (error) {
    if (error instanceof SandboxGone) return {};
    throw error;
  }
  announceDraining(scope, before);
  const explained = explain(failure);
  const isNew = before.metadata.resourceVersion !== scope.sandbox.metadata.resourceVersion;
  if (explained && isNew) {
    scope.dependencies.announce(
      { kind: "Sandbox", object: scope.sandbox },
      {
        type: eventTypeOf(failure),
        reason: explained.reason,
        action: "Reconcile",
        message: explained.message,
      },
    );
  }
  return {};
}

async function failureOf(scope: SandboxScope, outcome: PassOutcome): Promise<unknown> {
  if (outcome.kind !== "failed") return undefined;
  if (!outcome.isCutOff || outcome.phase !== hibernate.name) return outcome.error;
  try {
    await endCutOffAttempt(scope, outcome.error);
    return undefined;
  } catch (error) {
    return error;
  }
}

function announceDraining({ dependencies, sandbox }: SandboxScope, before: Sandbox): void {
  const draining = findCondition(sandbox.status?.conditions, "Draining");
  if (!draining || findCondition(before.status?.conditions, "Draining")) return;
  const { reason, message } = draining;
  dependencies.announce({ kind: "Sandbox", object: sandbox }, { type: "Warning", reason, action: "Drain", message });
}
