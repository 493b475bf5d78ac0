/** A rescue becomes the next version: from the stopped container alone, whether or not its Sandbox is still there. */
import type { CausedBy, WorldRescue } from "@agentworlds/crds";
import { creatorOf } from "../creator.ts";
import { repositoryInRegistry } from "../own-repository.ts";
import { type PublishedVersion, publishVersion } from "../publication.ts";
import type { WorldScope } from "../scope.ts";
import { hostOf, secureWork } from "./host.ts";

/**
 * Stops, captures, uploads, publishes. Repeatable at any point: the capture and the version are found again by the rescue's
 * operation. Throws what stood in the way; nothing is removed here.
 */
export async function publishRescue(scope: WorldScope, rescue: WorldRescue): Promise<PublishedVersion> {
  const { snapshots, writer, registry, log } = scope.dependencies;
  const { signal, clock } = scope.context;
  const { operation, computeId, base } = rescue;
  const repository = repositoryInRegistry(scope);
  const driver = await hostOf(scope, rescue);
  await secureWork(scope, rescue, driver);
  const uploaded = await snapshots.upload({ operation, driver, computeId, repository }, signal);
  return publishVersion(
    { worldWriter: writer, registry, log, signal },
    {
      world: scope.ref,
      repository,
      uploaded,
      operation,
      sandbox: rescue.sandbox,
      base,
      bootedFrom: rescue.bootedFrom ?? base,
      reason: rescue.versionReason ?? "Crash",
      consistency: rescue.consistency ?? "Crash",
      description: rescue.description,
      causedBy: causeOf(scope, rescue),
      recovered: { reason: "Rescued" },
      ignoredRescues: rescue.ignoredRescues,
      at: new Date(clock.now()).toISOString(),
    },
  );
}

/** Who ended the session; for a container that nobody accounted for, the World's creator stands behind it. */
export const causeOf = ({ world }: WorldScope, { causedBy }: WorldRescue): CausedBy => causedBy ?? creatorOf(world);
