/**
 * The World's side of a session's snapshot (DESIGN §4.1): reserve → config and manifest by digest → read back → commit →
 * tags. Repeatable: the operation's reservation gives the same number and time, so a retry makes the same digest.
 */
import type { World, WorldPending, WorldVersion } from "@agentworlds/crds";
import { clip, LIMITS } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import type { Digest } from "../registry/contract.ts";
import { RegistryError } from "../registry/errors.ts";
import type { UploadedCapture } from "../snapshot/contract.ts";
import { PublicationError } from "../snapshot/errors.ts";
import { configOfVersion, digestOf } from "../snapshot/image-config.ts";
import { isTagFree, manifestOfVersion, putVersion, readBackVersion, repairTags } from "../snapshot/publish.ts";
import { creatorOf } from "../world/creator.ts";
import { statusOf } from "../world/status-writer.ts";
import { causeOf, currentOperation, versionReasonOf } from "./operation.ts";
import { isoNow } from "./record.ts";
import type { SandboxScope } from "./scope.ts";
import { worldRef } from "./world-of.ts";

export interface Publication {
  readonly uploaded: UploadedCapture;
  readonly repository: string;
  readonly consistency: string;
  /** Called when the stage is reached, before the next begins. */
  readonly onStage: (stage: "Manifested" | "Verified") => Promise<void>;
}

export interface PublishedVersion {
  readonly version: number;
  readonly digest: Digest;
  readonly reason: string;
}

export async function publishVersion(scope: SandboxScope, publication: Publication): Promise<PublishedVersion> {
  const { worldWriter, registry } = scope.dependencies;
  const { signal } = scope.context;
  const ref = worldRef(scope);
  const reservation = await reserveFreeNumber(scope, publication);
  if (reservation.kind === "committed") {
    const { version, digest, reason } = reservation.version;
    await tag(scope, publication.repository, { version, digest });
    return { version, digest, reason };
  }
  const { content, manifest, version } = reservation.draft;
  const digest = await putVersion(
    registry.client,
    publication.repository,
    { manifest, config: content.config },
    signal,
  );
  await publication.onStage("Manifested");
  await readBackVersion(registry.client, publication.repository, digest, signal);
  await publication.onStage("Verified");
  await worldWriter.commit(
    ref,
    {
      operation: version.operation,
      image: `${registry.asWeNameIt(publication.repository)}@${digest}`,
      version: { ...version, digest },
    },
    signal,
  );
  await tag(scope, publication.repository, { version: version.version, digest });
  return { version: version.version, digest, reason: version.reason };
}

/** Tags are no stage: the version stands, and the World's own passes repair them (DESIGN §4.1). */
async function tag(scope: SandboxScope, repository: string, head: { version: number; digest: Digest }): Promise<void> {
  const { registry, worldWriter } = scope.dependencies;
  const { signal } = scope.context;
  // A retry may find its version committed long ago: `latest` does not move back to it.
  const isHead = async () => (await worldWriter.read(worldRef(scope), signal)).status?.head?.digest === head.digest;
  try {
    await repairTags(registry.client, repository, { ...head, isHead }, signal);
  } catch (error) {
    if (!(error instanceof RegistryError) && !(error instanceof PublicationError)) throw error;
    scope.dependencies.log.warn(
      { err: error, repository, ...head },
      "a version could not be tagged; the World's passes try again",
    );
  }
}

/** What an operation has committed although its Sandbox does not say so: the operator ended in between. */
export async function committedVersion(scope: SandboxScope, operation: string): Promise<PublishedVersion | undefined> {
  if (!scope.world) return undefined;
  const world = await scope.dependencies.worldWriter.read(worldRef(scope), scope.context.signal);
  const found = statusOf(world).versions?.find((version) => version.operation === operation);
  return found && { version: found.version, digest: found.digest, reason: found.reason };
}

/** A version that this session made is the base of its next. */
export const publishedFields = (scope: SandboxScope, { version, digest, reason }: PublishedVersion) => ({
  base: { version, digest },
  lastSnapshot: { version, digest, reason, at: isoNow(scope) },
});

interface Draft {
  readonly content: { readonly config: Uint8Array; readonly layers: UploadedCapture["layers"] };
  readonly manifest: Uint8Array;
  readonly version: WorldVersion;
}

/** A tag that names somebody else's digest burns the number: the next one is taken, nothing is overwritten. */
const MOST_TAKEN_NUMBERS = 16;

async function reserveFreeNumber(
  scope: SandboxScope,
  publication: Publication,
): Promise<{ kind: "committed"; version: WorldVersion } | { kind: "drafted"; draft: Draft }> {
  const { worldWriter, registry } = scope.dependencies;
  const { signal } = scope.context;
  const ref = worldRef(scope);
  const { id: operation } = currentOperation(scope);
  const base = scope.sandbox.status?.base?.digest;
  for (let taken = 0; taken < MOST_TAKEN_NUMBERS; taken++) {
    const verdict = await worldWriter.reserve(
      ref,
      {
        operation,
        sandbox: { name: scope.sandbox.metadata.name, uid: scope.sandbox.metadata.uid },
        ...(base === undefined ? {} : { base }),
        at: isoNow(scope),
      },
      signal,
    );
    if (verdict.kind === "committed") return verdict;
    if (verdict.kind === "refused") throw new Waiting(verdict.reason, { message: verdict.message, afterMs: 15_000 });
    const draft = await draftVersion(scope, publication, verdict.pending);
    const tag = { version: verdict.pending.version, digest: draft.version.digest };
    if (await isTagFree(registry.client, publication.repository, tag, signal)) return { kind: "drafted", draft };
    await worldWriter.abandon(ref, operation, signal);
  }
  throw new PublicationError("TagTaken", `${MOST_TAKEN_NUMBERS} version tags in a row are taken by other digests`);
}

/** The version as bytes: its config from the version the session booted from, which derives from the genesis image's. */
async function draftVersion(scope: SandboxScope, publication: Publication, pending: WorldPending): Promise<Draft> {
  const { registry, worldWriter } = scope.dependencies;
  const { signal } = scope.context;
  const world = await worldWriter.read(worldRef(scope), signal);
  const status = statusOf(world);
  const operation = currentOperation(scope);
  const bootedFrom = scope.sandbox.status?.bootedFrom?.digest;
  if (!bootedFrom || !status.genesis) {
    throw new PublicationError("LineageUnreadable", `status of World ${world.metadata.name} names no genesis`);
  }
  const booted = await readBackVersion(registry.client, publication.repository, bootedFrom, signal);
  const config = configOfVersion({
    baseConfig: await registry.client.getBlob(publication.repository, booted.config.digest, signal),
    diffIds: publication.uploaded.diffIds,
    createdAt: pending.since,
  });
  const description = operation.description ?? descriptionInForce(world);
  const causedBy = causeOf(scope);
  const reason = versionReasonOf(operation);
  const content = { config, layers: publication.uploaded.layers };
  const manifest = manifestOfVersion(
    {
      operation: operation.id,
      world: worldRef(scope),
      version: pending.version,
      ...(pending.base === undefined ? {} : { parent: pending.base }),
      reason,
      consistency: publication.consistency,
      description,
      createdBy: creatorOf(world),
      causedBy,
      createdAt: pending.since,
      genesis: status.genesis,
    },
    content,
  );
  const inherited = new Set(booted.layers.map((layer) => layer.digest));
  const bytesOf = (layers: typeof content.layers) => layers.reduce((sum, layer) => sum + layer.size, 0);
  return {
    content,
    manifest,
    version: {
      version: pending.version,
      digest: digestOf(manifest),
      operation: operation.id,
      ...(pending.base === undefined ? {} : { parent: pending.base }),
      sizeBytes: bytesOf(content.layers.filter((layer) => !inherited.has(layer.digest))),
      totalBytes: bytesOf(content.layers),
      layers: content.layers.length,
      createdAt: pending.since,
      reason,
      consistency: publication.consistency,
      description: clip(description, LIMITS.description),
      causedBy,
      sandbox: { name: scope.sandbox.metadata.name, uid: scope.sandbox.metadata.uid },
    },
  };
}

/** What was stated last: a new text in the spec, else what the newest version carries. */
export function descriptionInForce(world: World): string {
  const versions = statusOf(world).versions ?? [];
  const stated = world.spec.description;
  const isNew = stated !== undefined && !versions.some((version) => version.description === stated);
  return isNew ? stated : (versions.at(-1)?.description ?? "");
}
