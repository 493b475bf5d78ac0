/** A rescue becomes the next version: from the stopped container alone, whether or not its Sandbox is still there. */
import { type CausedBy, CONSISTENCIES, VERSION_REASONS, type WorldRescue } from "@agentworlds/crds";
import { isRuntimeError } from "../../runtime/errors.ts";
import type { UploadedCapture } from "../../snapshot/contract.ts";
import { creatorOf } from "../creator.ts";
import { repositoryInRegistry } from "../own-repository.ts";
import { type PublishedVersion, publishVersion } from "../publication.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";
import { captureOwner, hostOf, secureWork, WorkGone } from "./host.ts";
import { baseOf } from "./judge.ts";

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
      base: baseOf(statusOf(scope.world), rescue),
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
 * What a snapshot that was under way had captured, where the container is not to be had any more. Repeatable. Undefined when
 * there was none, or nothing is left of it.
 */
export async function publishSnapshotOf(scope: WorldScope, rescue: WorldRescue): Promise<PublishedVersion | undefined> {
  const { snapshot, base } = rescue;
  const uploaded = snapshot && (await uploadSnapshot(scope, rescue, snapshot.operation));
  if (!uploaded) return undefined;
  const { writer, registry, log } = scope.dependencies;
  const { signal, clock } = scope.context;
  return publishVersion(
    { worldWriter: writer, registry, log, signal },
    {
      world: scope.ref,
      repository: repositoryInRegistry(scope),
      uploaded,
      operation: snapshot.operation,
      sandbox: rescue.sandbox,
      base,
      bootedFrom: rescue.bootedFrom ?? base,
      reason: VERSION_REASONS.Snapshot,
      consistency: snapshot.consistency ?? CONSISTENCIES.Fuzzy,
      description: snapshot.description,
      causedBy: causeOf(scope, snapshot),
      recovered: { reason: "Rescued" },
      ignoredRescues: rescue.ignoredRescues,
      at: new Date(clock.now()).toISOString(),
    },
  );
}

async function uploadSnapshot(
  scope: WorldScope,
  rescue: WorldRescue,
  operation: string,
): Promise<UploadedCapture | undefined> {
  const { snapshots } = scope.dependencies;
  const { signal } = scope.context;
  const { computeId } = rescue;
  const repository = repositoryInRegistry(scope);
  const owner = captureOwner(scope, rescue);
  try {
    const driver = await hostOf(scope, rescue);
    if (await snapshots.isCaptured({ operation, driver, owner }, signal)) {
      return await snapshots.upload({ operation, driver, computeId, owner, repository }, signal);
    }
  } catch (error) {
    if (!isRuntimeError(error, "HostUnreachable")) throw error;
  }
  return snapshots.uploaded({ operation, repository }, signal);
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
export const causeOf = ({ world }: WorldScope, { causedBy }: Pick<WorldRescue, "causedBy">): CausedBy =>
  causedBy ?? creatorOf(world);
