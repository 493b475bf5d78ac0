/** What became of work that this session left as a rescue: the Sandbox says so until it is a version, discarded or lost. */
import type { SandboxStatus, World } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { settledOperations } from "../../runtime/kept-work.ts";
import { versionTag } from "../../snapshot/publish.ts";
import { unpublishedRescues } from "../../world/lineage.ts";
import { rescuesOf } from "../../world/lost-hold.ts";
import { statusOf } from "../../world/status-writer.ts";
import { publishedFields } from "../publish-operation.ts";
import { isoNow, type SandboxStatusPatch } from "../record.ts";
import { recordEnding } from "../record-ending.ts";
import type { SandboxScope } from "../scope.ts";
import { refOf } from "../world-of.ts";

type Ending = NonNullable<SandboxStatus["lastEnding"]>;

/** A World that is gone tells nothing more; what its Runtime keeps is over when its time is. */
export async function followRescue(scope: SandboxScope): Promise<PhaseResult> {
  const { lastEnding } = scope.sandbox.status ?? {};
  const { world } = scope;
  const rescue = lastEnding?.outcome === "Rescued" ? lastEnding.rescue : undefined;
  if (!lastEnding || !rescue || !world || isKept(world, rescue.operation)) return CONTINUE;
  // The cache may not show the rescue yet.
  const fresh = await scope.dependencies.worldWriter.read(refOf(world), scope.context.signal);
  scope.world = fresh;
  if (isKept(fresh, rescue.operation) || isForgotten(scope, fresh, rescue.operation)) return CONTINUE;
  await recordEnding(scope, () => outcomeOf(scope, fresh, { lastEnding, operation: rescue.operation }));
  return CONTINUE;
}

const isKept = (world: World, operation: string): boolean =>
  unpublishedRescues(statusOf(world)).some((rescue) => rescue.operation === operation);

/** Somebody removed it from the World, and its Runtime still has it: the World writes it down anew. */
function isForgotten({ dependencies, sandbox }: SandboxScope, world: World, operation: string): boolean {
  if (settledOperations(world.status).has(operation)) return false;
  return rescuesOf(dependencies.runtimes, sandbox.metadata).some((one) => one.operation === operation);
}

function outcomeOf(
  scope: SandboxScope,
  world: World,
  { lastEnding, operation }: { readonly lastEnding: Ending; readonly operation: string },
): SandboxStatusPatch {
  const { rescue: _, ...ending } = lastEnding;
  const at = isoNow(scope);
  const { versions, lostWork } = statusOf(world);
  const version = versions?.find((one) => one.operation === operation);
  if (version) {
    const message = `${versionTag(version.version)} is ${version.digest}, published from rescue ${operation}`;
    const { closed } = scope.sandbox.status ?? {};
    return {
      ...publishedFields(scope, version),
      lastEnding: { ...ending, outcome: "Published", reason: "RescuePublished", message, at },
      ...(closed ? { closed: { ...closed, version: version.version, digest: version.digest } } : {}),
    };
  }
  const lost = lostWork?.find((one) => one.operation === operation);
  const isDiscarded = lost?.cause === "Discarded";
  return {
    lastEnding: {
      ...ending,
      outcome: isDiscarded ? "Discarded" : "Lost",
      reason: isDiscarded ? "RescueDiscarded" : "WorkLost",
      message: lost?.message ?? `World ${world.metadata.name} does not name rescue ${operation} any more`,
      at,
    },
  };
}
