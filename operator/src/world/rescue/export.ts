/**
 * A rescue as an image beside the lineage, for whoever cannot wait for its version or cannot have one: it runs and copies with
 * ordinary tools. It is named by its operation, never `v<n>` or `latest`, and head does not know it.
 */
import type { WorldRescue } from "@agentworlds/crds";
import type { Digest } from "../../registry/contract.ts";
import { isRegistryError } from "../../registry/errors.ts";
import type { UploadedCapture } from "../../snapshot/contract.ts";
import { PublicationError } from "../../snapshot/errors.ts";
import { configOfVersion } from "../../snapshot/image-config.ts";
import {
  createTag,
  manifestOfVersion,
  putVersion,
  type RepositoryAccess,
  readBackVersion,
  rescueTag,
} from "../../snapshot/publish.ts";
import { isSpoilt, timeAfter } from "../../snapshot/spoilt-manifest.ts";
import { type ImageFacts, isImageOf } from "../../snapshot/version-annotations.ts";
import { creatorOf } from "../creator.ts";
import { descriptionInForce } from "../description.ts";
import { repositoryInRegistry } from "../own-repository.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";
import { causeOf, uploadWork } from "./publish.ts";

export interface ExportedRescue {
  /** `registry/repository@digest`. */
  readonly image: string;
  readonly digest: Digest;
}

/** Repeatable: an export that is tagged is the one. The rescue stays as it is. */
export async function exportRescue(scope: WorldScope, rescue: WorldRescue): Promise<ExportedRescue> {
  const { registry } = scope.dependencies;
  const { signal } = scope.context;
  const access = { client: registry.client, repository: repositoryInRegistry(scope) };
  const digest = (await exportedBefore(scope, rescue, access)) ?? (await exportNow(scope, rescue, access));
  await readBackVersion(access, digest, signal);
  return { image: `${registry.asWeNameIt(access.repository)}@${digest}`, digest };
}

/** What the tag names, if that is this World's image of this work. */
async function exportedBefore(
  { ref, context }: WorldScope,
  { operation }: WorldRescue,
  { client, repository }: RepositoryAccess,
): Promise<Digest | undefined> {
  try {
    const { digest, manifest } = await client.getManifest(repository, rescueTag(operation), context.signal);
    const annotations = manifest.kind === "image" ? manifest.value.annotations : undefined;
    return isImageOf(annotations, { worldUid: ref.uid, operation }) ? digest : undefined;
  } catch (error) {
    if (isRegistryError(error, "NotFound")) return undefined;
    throw error;
  }
}

async function exportNow(scope: WorldScope, rescue: WorldRescue, access: RepositoryAccess): Promise<Digest> {
  const { signal } = scope.context;
  const work = await uploadWork(scope, rescue);
  const digest = await putUnspoilt(scope, rescue, { access, work });
  const tag = rescueTag(rescue.operation);
  const tagged = await createTag(access, { tag, digest }, signal);
  if (tagged.kind !== "tagged") {
    const named = `${access.repository}:${tag}`;
    throw new PublicationError("TagTaken", `${named} does not name ${digest}; it is not overwritten`);
  }
  return digest;
}

/** The same work makes the same digest, unless its manifest is spoilt: then the time is another one, until the tag stands. */
async function putUnspoilt(
  scope: WorldScope,
  rescue: WorldRescue,
  { access, work }: { readonly access: RepositoryAccess; readonly work: UploadedCapture },
): Promise<Digest> {
  const { signal, clock } = scope.context;
  const baseConfigBytes = await baseConfig(scope, rescue);
  const put = async (createdAt: string): Promise<Digest> => {
    const config = configOfVersion({ baseConfig: baseConfigBytes, diffIds: work.diffIds, createdAt });
    const manifest = manifestOfVersion({ ...factsOf(scope, rescue), createdAt }, { config, layers: work.layers });
    const digest = await putVersion(access, { manifest, config }, signal);
    await readBackVersion(access, digest, signal);
    return digest;
  };
  try {
    return await put(rescue.since);
  } catch (error) {
    if (!(await isSpoilt(access, error, signal))) throw error;
    return put(timeAfter(rescue.since, clock.now()));
  }
}

/** The layers of the version it was booted from are the first of the capture. Any older version's are, too. */
async function baseConfig(scope: WorldScope, { bootedFrom, base }: WorldRescue): Promise<Uint8Array> {
  const { registry } = scope.dependencies;
  const { signal } = scope.context;
  const repository = repositoryInRegistry(scope);
  const booted = bootedFrom ?? base ?? statusOf(scope.world).versions?.[0]?.digest;
  if (booted === undefined) throw new PublicationError("LineageUnreadable", "the World's status names no version");
  const { config } = await readBackVersion({ client: registry.client, repository }, booted, signal);
  return registry.client.getBlob(repository, { digest: config.digest }, signal);
}

function factsOf(scope: WorldScope, rescue: WorldRescue): Omit<ImageFacts, "createdAt"> {
  const { genesis } = statusOf(scope.world);
  if (!genesis) throw new PublicationError("LineageUnreadable", "the World's status names no genesis");
  return {
    operation: rescue.operation,
    world: scope.ref,
    ...(rescue.base === undefined ? {} : { parent: rescue.base }),
    reason: "RescueExported",
    consistency: rescue.consistency ?? "Crash",
    description: rescue.description ?? descriptionInForce(scope.world),
    createdBy: creatorOf(scope.world),
    causedBy: causeOf(scope, rescue),
    ...(rescue.ignoredRescues ? { ignoredRescues: rescue.ignoredRescues } : {}),
    genesis,
  };
}
