/** The World controller: one documented scope, ordered phases, one deferred status write. */
import { isConflict } from "../kube/errors.ts";
import { mergePatchBetween } from "../reconciler/patch.ts";
import type { PassOutcome, Phase } from "../reconciler/phases.ts";
import { runPhases } from "../reconciler/phases.ts";
import type { Reconcile, ReconcileResult } from "../reconciler/reconcile.ts";
import { becomeGenesis, recordRepository } from "./genesis.ts";
import type { WorldDependencies, WorldScope } from "./scope.ts";
import { deriveWorldConditions, explain } from "./status.ts";
import { statusOf } from "./status-writer.ts";
import { keepFinalizer, repairHeadTags, retain } from "./upkeep.ts";

/** The life of a World, in order. */
const phases: readonly Phase<WorldScope>[] = [
  keepFinalizer, // held, pending or deletionPolicy Delete; ends a World that is being deleted
  recordRepository, // where its versions will live
  becomeGenesis, // the source image, copied and published as version 0
  repairHeadTags, // v<n> exists, latest follows head
  retain, // versions beyond the limit go
];

export function reconcileWorlds(dependencies: WorldDependencies): Reconcile {
  return async (key, context) => {
    const world = dependencies.worlds.get(key);
    if (!world) return {};
    const { name, namespace, uid } = world.metadata;
    const scope: WorldScope = { dependencies, context, world, ref: { name, namespace: namespace ?? "", uid } };
    return runPhases({ phases, scope, context, finish: summarise });
  };
}

async function summarise(scope: WorldScope, outcome: PassOutcome): Promise<ReconcileResult> {
  const failure = outcome.kind === "failed" ? outcome.error : undefined;
  const { world, context } = scope;
  // A stale object or a lost lease is no finding about the World.
  if (world.metadata.deletionTimestamp || isConflict(failure) || context.signal.aborted) return {};
  const before = statusOf(world);
  const after = {
    ...before,
    observedGeneration: world.metadata.generation ?? 0,
    conditions: deriveWorldConditions(world, { failure, headProblem: scope.headProblem, now: context.clock.now() }),
  };
  const patch = mergePatchBetween(before, after);
  if (!patch) return scope.headProblem === undefined ? {} : { requeueAfterMs: 60_000 };
  scope.world = await scope.dependencies.writer.summarise(world, patch, context.signal);
  const explained = explain(failure);
  if (explained) {
    scope.dependencies.announce(
      { kind: "World", object: scope.world },
      { type: "Warning", reason: explained.reason, action: "Reconcile", message: explained.message },
    );
  }
  return scope.headProblem === undefined ? {} : { requeueAfterMs: 60_000 };
}
