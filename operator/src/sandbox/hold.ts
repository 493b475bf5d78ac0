/** A Sandbox's hold on its World, beside the boot that takes it: its end, and what becomes of one that was taken away. */
import type { SandboxSpec } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import type { HoldClaim } from "../world/lineage.ts";
import { statusOf } from "../world/status-writer.ts";
import { isoNow } from "./record.ts";
import type { SandboxScope } from "./scope.ts";
import { refOf } from "./world-of.ts";

/** Somebody removed the holder from the World's status while the session works in it: while the World is free, it is taken back. */
export async function keepHold(scope: SandboxScope): Promise<PhaseResult> {
  const { goal, world, sandbox, savesNothing } = scope;
  const { compute, operation } = sandbox.status ?? {};
  const isWriting = goal.kind === "run" || goal.kind === "snapshot" || (goal.kind === "end" && !goal.discard);
  const isEnding = operation !== undefined && operation.verb !== "Snapshot";
  const isOver = isEnding && (operation.stage === "Committed" || operation.stage === "Discarded");
  if (!isWriting || isOver || !compute || savesNothing || !world || statusOf(world).holder) return CONTINUE;
  await holdIfFree(scope);
  return CONTINUE;
}

export const holdClaim = (scope: SandboxScope, rescuePolicy: SandboxSpec["rescuePolicy"]): HoldClaim => ({
  sandbox: scope.sandbox.metadata.name,
  uid: scope.sandbox.metadata.uid,
  causedBy: scope.createdBy,
  at: isoNow(scope),
  rescuePolicy,
});

/** A World that was restored may not know its holder. One that another session holds refuses the version by name. */
export async function holdIfFree(scope: SandboxScope): Promise<void> {
  const { world, sandbox, dependencies, context } = scope;
  if (!world || world.metadata.deletionTimestamp) return;
  const { name } = sandbox.metadata;
  const claim = holdClaim(scope, sandbox.status?.ignoredRescues ? "Ignore" : "Wait");
  const verdict = await dependencies.worldWriter.hold(refOf(world), claim, context.signal);
  if (verdict.kind === "refused")
    dependencies.log.warn({ sandbox: name, verdict }, "a session with compute does not hold its World");
  if (verdict.kind === "hold")
    dependencies.log.warn({ sandbox: name }, "a session took back the hold on its World, which named nobody");
}

/**
 * Ends the hold of exactly this Sandbox; the caller has made sure that no compute and no unpublished work of it exists
 * (DESIGN §4.2). The World is read fresh, by name: the cache may not show a hold that was taken a moment ago. A hold of another
 * Sandbox, no hold and no World are a success.
 */
export async function letGoOfWorld(scope: SandboxScope): Promise<void> {
  const { metadata, spec } = scope.sandbox;
  if (!spec.world) return;
  await scope.dependencies.worldWriter.letGo(
    { namespace: metadata.namespace ?? "", name: spec.world.name },
    metadata.uid,
    scope.context.signal,
  );
}
