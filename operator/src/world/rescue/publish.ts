/** A rescue becomes the next version: from the stopped container alone, whether or not its Sandbox is still there. */
import type { CausedBy, WorldRescue } from "@agentworlds/crds";
import { isRuntimeError } from "../../runtime/errors.ts";
import type { UploadedCapture } from "../../snapshot/contract.ts";
import { creatorOf } from "../creator.ts";
import { repositoryInRegistry } from "../own-repository.ts";
import { type PublishedVersion, publishVersion } from "../publication.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";
import { captureOwner, hostOf, secureWork, WorkGone } from "./host.ts";

/**
 * Stops, captures, uploads, publishes. Repeatable at any point: the capture and the version are found again by the rescue's
 * operation. Throws what stood in the way; nothing is removed here.
 */
export async function publishRescue(scope: WorldScope, rescue: WorldRescue): Promise<PublishedVersion> {
  const { writer, registry, log } = scope.dependencies;
  const { signal, clock } = scope.context;
  const { operation, base } = rescue;
  const repository = repositoryInRegistry(scope);
  const uploaded = await uploadWork(scope, rescue);
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
      consistency: await consistencyOf(scope, rescue),
      description: rescue.description,
      causedBy: causeOf(scope, rescue),
      recovered: { reason: "Rescued" },
      ignoredRescues: rescue.ignoredRescues,
      at: new Date(clock.now()).toISOString(),
    },
  );
}

/**
 * From its host; where that does not answer or has lost it, what an earlier attempt has brought into the registry whole. Throws
 * `WorkGone` when neither has it.
 */
export async function uploadWork(scope: WorldScope, rescue: WorldRescue): Promise<UploadedCapture> {
  const { snapshots } = scope.dependencies;
  const { signal } = scope.context;
  const { operation, computeId } = rescue;
  const repository = repositoryInRegistry(scope);
  const owner = captureOwner(scope, rescue);
  try {
    const driver = await hostOf(scope, rescue);
    await secureWork(scope, rescue, driver);
    return await snapshots.upload({ operation, driver, computeId, owner, repository }, signal);
  } catch (error) {
    const isWithoutHost = error instanceof WorkGone || isRuntimeError(error, "HostUnreachable");
    const earlier = isWithoutHost ? await snapshots.uploaded({ operation, repository }, signal) : undefined;
    if (!earlier) throw error;
    return earlier;
  }
}

/** As it is written now: the upload may have found that the session had run on. */
async function consistencyOf({ dependencies, ref, context }: WorldScope, { operation }: WorldRescue): Promise<string> {
  const { rescues = [] } = statusOf(await dependencies.writer.read(ref, context.signal));
  return rescues.find((one) => one.operation === operation)?.consistency ?? "Crash";
}

/** Who ended the session; for a container that nobody accounted for, the World's creator stands behind it. */
export const causeOf = ({ world }: WorldScope, { causedBy }: WorldRescue): CausedBy => causedBy ?? creatorOf(world);
