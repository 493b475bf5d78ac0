/** The World controller: one documented scope, ordered phases, one deferred status write. */
import type { Condition } from "@agentworlds/crds";
import { isConflict } from "../kube/errors.ts";
import { findCondition } from "../reconciler/conditions.ts";
import { mergePatchBetween } from "../reconciler/patch.ts";
import type { PassOutcome, Phase } from "../reconciler/phases.ts";
import { runPhases } from "../reconciler/phases.ts";
import { Overtaken } from "../reconciler/policy.ts";
import type { Reconcile, ReconcileContext, ReconcileResult } from "../reconciler/reconcile.ts";
import { adoptRepository } from "./adoption.ts";
import { tellDamage } from "./damage.ts";
import { endDeadReservation } from "./dead-reservation.ts";
import { keepFinalizer, letGo } from "./ending.ts";
import { becomeGenesis } from "./genesis.ts";
import { dropLeftovers } from "./leftovers.ts";
import { keepEntered, SeenInIndex } from "./lineage-index.ts";
import { endLostHold } from "./lost-hold.ts";
import { mendHead } from "./mend-head.ts";
import { recordRepository } from "./own-repository.ts";
import { recoverLineage } from "./recover.ts";
import { lookBeyondHead } from "./registry-ahead.ts";
import { tendRescues } from "./rescue/phase.ts";
import type { WorldDependencies, WorldScope } from "./scope.ts";
import { deriveWorldConditions, eventTypeOf, explain } from "./status.ts";
import { statusOf, WorldGone } from "./status-writer.ts";
import { repairTags, retain } from "./upkeep.ts";

/** The life of a World, in order. */
const phases: readonly Phase<WorldScope>[] = [
  letGo, // a deletion that is far overdue, or that somebody wants to end now
  recordRepository, // where its versions will live
  endDeadReservation, // a reservation that nobody will commit, on proof only
  endLostHold, // a holder whose Sandbox was removed by force, on proof only
  recoverLineage, // a status that was lost, rebuilt from that repository
  mendHead, // head and versions contradict each other: the registry says which is right
  tendRescues, // work that is kept on a host: what people ask of it, then its own next attempt
  keepFinalizer, // held, pending, rescues or deletionPolicy Delete; ends a World that is being deleted
  adoptRepository, // the versions of an earlier World, brought into the own repository
  becomeGenesis, // the source image, copied and published as version 0
  lookBeyondHead, // the registry has newer versions than the status: a restored etcd
  repairTags, // head can be read, each v<n> exists, latest follows head
  keepEntered, // the World is in the index of lineages
  tellDamage, // what the periodic verification found
  dropLeftovers, // captures in the repository that nobody needs
  retain, // versions beyond the limit go
];

export function reconcileWorlds(dependencies: WorldDependencies): Reconcile {
  const seenInIndex = new SeenInIndex();
  return async (key, context) => {
    const world = dependencies.worlds.get(key);
    if (!world) {
      seenInIndex.forget(key);
      return {};
    }
    const { name, namespace, uid } = world.metadata;
    const ref = { name, namespace: namespace ?? "", uid };
    const scope: WorldScope = { dependencies, context, world, ref, seenInIndex, problems: [] };
    try {
      return await runPhases({ phases, scope, context, finish: summarise });
    } catch (error) {
      throw error instanceof WorldGone ? new Overtaken(error.message, { cause: error }) : error;
    }
  };
}

async function summarise(scope: WorldScope, outcome: PassOutcome, context: ReconcileContext): Promise<ReconcileResult> {
  scope.context = context;
  const failure = outcome.kind === "failed" ? outcome.error : undefined;
  const { world } = scope;
  // A stale object, a World that is gone or a lost lease is no finding about the World.
  if (scope.ended || isConflict(failure) || failure instanceof WorldGone || context.signal.aborted) return {};
  const { head, lostHold, problems } = scope;
  const before = statusOf(world);
  const conditions = deriveWorldConditions(world, { failure, head, lostHold, problems, now: context.clock.now() });
  const after = { ...before, observedGeneration: world.metadata.generation ?? 0, conditions };
  const patch = mergePatchBetween(before, after);
  if (patch && (await write(scope, patch))) {
    announceFailure(scope, failure);
    announceChanges(scope, { before: before.conditions, after: conditions });
  }
  return lookAgain(scope);
}

/** False: the World went away in between, with its last finalizer. */
async function write(
  scope: WorldScope,
  patch: Parameters<WorldDependencies["writer"]["summarise"]>[1],
): Promise<boolean> {
  try {
    scope.world = await scope.dependencies.writer.summarise(scope.world, patch, scope.context.signal);
    return true;
  } catch (error) {
    if (!(error instanceof WorldGone)) throw error;
    return false;
  }
}

function announceFailure(scope: WorldScope, failure: unknown): void {
  const explained = explain(failure);
  if (!explained) return;
  scope.dependencies.announce(
    { kind: "World", object: scope.world },
    { type: eventTypeOf(failure), reason: explained.reason, action: "Reconcile", message: explained.message },
  );
}

/** Head that came to be, or ceased to be, proven; problems that were not there before. */
function announceChanges(
  scope: WorldScope,
  { before, after }: { before: readonly Condition[] | undefined; after: readonly Condition[] },
): void {
  for (const { type, status, reason, message } of after) {
    const known = findCondition(before, type);
    const isNew = known?.status !== status || known.reason !== reason;
    // That a World was looked at for the first time and all is well is no news.
    const isSeen = known !== undefined && known.reason !== "NotLookedAt";
    const isTold = type === "HeadAvailable" ? isSeen || status === "False" : isProblem(scope, type);
    if (!isNew || !isTold) continue;
    const isGood = type === "HeadAvailable" && status === "True";
    scope.dependencies.announce(
      { kind: "World", object: scope.world },
      { type: isGood ? "Normal" : "Warning", reason, action: "Look", message },
    );
  }
}

const isProblem = ({ problems }: WorldScope, type: string): boolean =>
  type === "HolderLost" || type === "HeadBehindRegistry" || problems.some((problem) => problem.type === type);

/** Damage is the verification's to look at again, which calls the World when it has. */
const isLookedAtAgain = ({ type }: WorldScope["problems"][number]): boolean => type !== "VersionsDamaged";

/** What is not as it should be is looked at again; a settled World rests. */
function lookAgain({ lostHold, head, problems, rescueDueMs }: WorldScope): ReconcileResult {
  const due = [
    ...(lostHold ? [30_000] : []),
    ...((head && head.status !== "True") || problems.some(isLookedAtAgain) ? [60_000] : []),
    ...(rescueDueMs === undefined ? [] : [rescueDueMs]),
  ];
  return due.length === 0 ? {} : { requeueAfterMs: Math.min(...due) };
}
