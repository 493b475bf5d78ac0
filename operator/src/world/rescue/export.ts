/**
 * A rescue as an image beside the lineage, for whoever cannot wait for its version or cannot have one: it runs and copies with
 * ordinary tools. It is named by its operation, never `v<n>` or `latest`, and head does not know it.
 */
import type { WorldRescue } from "@agentworlds/crds";
import type { Digest } from "../../registry/contract.ts";
import { PublicationError } from "../../snapshot/errors.ts";
import { configOfVersion } from "../../snapshot/image-config.ts";
import { createTag, manifestOfVersion, putVersion, readBackVersion, rescueTag } from "../../snapshot/publish.ts";
import { creatorOf } from "../creator.ts";
import { repositoryInRegistry } from "../own-repository.ts";
import { descriptionInForce } from "../publication.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";
import { causeOf, uploadWork } from "./publish.ts";

export interface ExportedRescue {
  /** `registry/repository@digest`. */
  readonly image: string;
  readonly digest: Digest;
}

/** Repeatable: the same work makes the same digest. The rescue stays as it is. */
export async function exportRescue(scope: WorldScope, rescue: WorldRescue): Promise<ExportedRescue> {
  const { registry } = scope.dependencies;
  const { signal } = scope.context;
  const { operation } = rescue;
  const repository = repositoryInRegistry(scope);
  const { layers, diffIds } = await uploadWork(scope, rescue);
  const config = configOfVersion({ baseConfig: await baseConfig(scope, rescue), diffIds, createdAt: rescue.since });
  const manifest = manifestOfVersion(factsOf(scope, rescue), { config, layers });
  const digest = await putVersion({ client: registry.client, repository }, { manifest, config }, signal);
  await readBackVersion({ client: registry.client, repository }, digest, signal);
  const tag = rescueTag(operation);
  const tagged = await createTag({ client: registry.client, repository }, { tag, digest }, signal);
  if (tagged.kind !== "tagged") {
    throw new PublicationError("TagTaken", `${repository}:${tag} does not name ${digest}; it is not overwritten`);
  }
  return { image: `${registry.asWeNameIt(repository)}@${digest}`, digest };
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

function factsOf(scope: WorldScope, rescue: WorldRescue): Parameters<typeof manifestOfVersion>[0] {
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
    createdAt: rescue.since,
    genesis,
  };
}
