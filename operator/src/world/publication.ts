/**
 * The World's side of a publication (DESIGN §4.1): reserve → config and manifest by digest → read back → commit → tags.
 * A function over plain values, so that work becomes a version whether or not its Sandbox is still there. Repeatable: the
 * operation's reservation gives the same number and time, so a retry makes the same digest.
 */
import type { CausedBy, Recovery, SandboxReference, WorldPending, WorldVersion } from "@agentworlds/crds";
import { clip, LIMITS } from "@agentworlds/crds";
import type { Log } from "../reconciler/log.ts";
import { Waiting } from "../reconciler/policy.ts";
import type { Digest } from "../registry/contract.ts";
import { RegistryError } from "../registry/errors.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import type { UploadedCapture } from "../snapshot/contract.ts";
import { PublicationError } from "../snapshot/errors.ts";
import { configOfVersion, digestOf } from "../snapshot/image-config.ts";
import {
  describedByParent,
  manifestOfVersion,
  ownerOfTag,
  putVersion,
  readBackVersion,
  repairTags,
} from "../snapshot/publish.ts";
import { isSpoilt } from "../snapshot/spoilt-manifest.ts";
import { creatorOf } from "./creator.ts";
import { descriptionInForce } from "./description.ts";
import { statusOf, type WorldRef, type WorldStatusWriter } from "./status-writer.ts";

/** What a publication is made with. */
export interface PublicationContext {
  readonly worldWriter: WorldStatusWriter;
  readonly registry: InstallationRegistry;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Work that was captured and uploaded, and all that its version says about it. */
export interface Publication {
  readonly world: WorldRef;
  /** The World's repository without the registry's host; the blobs are in it. */
  readonly repository: string;
  readonly uploaded: UploadedCapture;
  /** Id of the operation; a retry finds by it what an earlier try reserved or committed. */
  readonly operation: string;
  readonly sandbox: SandboxReference;
  /** Digest the work is based on; head must be there. */
  readonly base: Digest | undefined;
  /** Digest the container was booted from: its layers are the first of the capture, and its config is carried on. */
  readonly bootedFrom: Digest | undefined;
  readonly reason: string;
  readonly consistency: string;
  /** Prose that was stated for this version. Unset: the one in force. */
  readonly description: string | undefined;
  readonly causedBy: CausedBy;
  /** Set when the session had not ended in order. */
  readonly recovered?: Recovery | undefined;
  /** Rescues whose work is not in it because the session was told to ignore them. */
  readonly ignoredRescues?: readonly string[] | undefined;
  /** How the hook before the capture ended. */
  readonly hook?: WorldVersion["hook"] | undefined;
  /** ISO time of the reservation, unless one is there. */
  readonly at: string;
  /** Called when the stage is reached, before the next begins. */
  readonly onStage?: (stage: "Manifested" | "Verified") => Promise<void>;
}

export interface PublishedVersion {
  readonly version: number;
  readonly digest: Digest;
  readonly reason: string;
}

export async function publishVersion(context: PublicationContext, publication: Publication): Promise<PublishedVersion> {
  const { worldWriter, registry, signal } = context;
  const reservation = await reserveFreeNumber(context, publication);
  if (reservation.kind === "committed") {
    const { version, digest, reason } = reservation.version;
    await tag(context, publication, { version, digest });
    return { version, digest, reason };
  }
  const { content, manifest, version } = reservation.draft;
  const digest = await putVersion(
    { client: registry.client, repository: publication.repository },
    { manifest, config: content.config },
    signal,
  );
  await publication.onStage?.("Manifested");
  await readBack(context, publication, digest);
  await publication.onStage?.("Verified");
  await worldWriter.commit(
    publication.world,
    {
      operation: version.operation,
      image: `${registry.asWeNameIt(publication.repository)}@${digest}`,
      version: { ...version, digest },
    },
    signal,
  );
  await tag(context, publication, { version: version.version, digest });
  return { version: version.version, digest, reason: version.reason };
}

/** A manifest that is spoilt burns its number: the next reservation has another time, and so makes other bytes. */
async function readBack(context: PublicationContext, publication: Publication, digest: Digest): Promise<void> {
  const { worldWriter, registry, signal } = context;
  const { world, operation, repository } = publication;
  try {
    await readBackVersion({ client: registry.client, repository }, digest, signal);
  } catch (error) {
    if (await isSpoilt({ client: registry.client, repository }, error, signal)) {
      await worldWriter.abandon(world, operation, signal);
    }
    throw error;
  }
}

/** Tags are no stage: the version stands, and the World's own passes repair them (DESIGN §4.1). */
async function tag(
  { registry, worldWriter, log, signal }: PublicationContext,
  { world, repository }: Publication,
  head: { version: number; digest: Digest },
): Promise<void> {
  // A retry may find its version committed long ago: `latest` does not move back to it.
  const isHead = async () => (await worldWriter.read(world, signal)).status?.head?.digest === head.digest;
  try {
    await repairTags({ client: registry.client, repository }, { ...head, isHead }, signal);
  } catch (error) {
    if (!(error instanceof RegistryError) && !(error instanceof PublicationError)) throw error;
    log.warn({ err: error, repository, ...head }, "a version could not be tagged; the World's passes try again");
  }
}

/** What an operation has committed, whatever else is written of it: the operator may have ended in between. */
export async function committedVersion(
  { worldWriter, signal }: Pick<PublicationContext, "worldWriter" | "signal">,
  world: WorldRef,
  operation: string,
): Promise<PublishedVersion | undefined> {
  const { versions } = statusOf(await worldWriter.read(world, signal));
  const found = versions?.find((version) => version.operation === operation);
  return found && { version: found.version, digest: found.digest, reason: found.reason };
}

interface Draft {
  readonly content: { readonly config: Uint8Array; readonly layers: UploadedCapture["layers"] };
  readonly manifest: Uint8Array;
  readonly version: WorldVersion;
}

/** A tag that names somebody else's digest burns the number: the next one is taken, nothing is overwritten. */
const MOST_TAKEN_NUMBERS = 16;

async function reserveFreeNumber(
  context: PublicationContext,
  publication: Publication,
): Promise<{ kind: "committed"; version: WorldVersion } | { kind: "drafted"; draft: Draft }> {
  const { worldWriter, registry, signal } = context;
  const { world, operation, sandbox, base, at, repository } = publication;
  for (let taken = 0; taken < MOST_TAKEN_NUMBERS; taken++) {
    const verdict = await worldWriter.reserve(
      world,
      { operation, sandbox, ...(base === undefined ? {} : { base }), at },
      signal,
    );
    if (verdict.kind === "committed") return verdict;
    if (verdict.kind === "refused") throw new Waiting(verdict.reason, { message: verdict.message, afterMs: 15_000 });
    const draft = await draftVersion(context, publication, verdict.pending);
    const tag = { version: verdict.pending.version, digest: draft.version.digest, worldUid: world.uid };
    const owner = await ownerOfTag({ client: registry.client, repository }, tag, signal);
    if (owner === "Free") return { kind: "drafted", draft };
    if (owner === "Newer") throw forgottenVersion(verdict.pending.version);
    await worldWriter.abandon(world, operation, signal);
  }
  throw new PublicationError("TagTaken", `${MOST_TAKEN_NUMBERS} version tags in a row are taken by other digests`);
}

/** A restored etcd: to publish beside the newer version would make an older state the head. */
const forgottenVersion = (version: number): Waiting =>
  new Waiting("HeadBehindRegistry", {
    message: `the registry has a version ${version} of this World that its status does not know`,
    remediation: "see the World's condition HeadBehindRegistry; the work is kept",
    afterMs: 30_000,
  });

/** The version as bytes: its config from the version the session booted from, which derives from the genesis image's. */
async function draftVersion(
  { registry, worldWriter, signal }: PublicationContext,
  publication: Publication,
  pending: WorldPending,
): Promise<Draft> {
  const { repository, uploaded, operation, sandbox, bootedFrom, reason, consistency, causedBy } = publication;
  const world = await worldWriter.read(publication.world, signal);
  const { genesis } = statusOf(world);
  if (!bootedFrom || !genesis) {
    throw new PublicationError("LineageUnreadable", `status of World ${world.metadata.name} names no genesis`);
  }
  const booted = await readBackVersion({ client: registry.client, repository }, bootedFrom, signal);
  const config = configOfVersion({
    baseConfig: await registry.client.getBlob(repository, { digest: booted.config.digest }, signal),
    diffIds: uploaded.diffIds,
    createdAt: pending.since,
  });
  const description = publication.description ?? descriptionInForce(world);
  const content = { config, layers: describedByParent(uploaded.layers, booted.layers) };
  const inherited = new Set(booted.layers.map((layer) => layer.digest));
  const bytesOf = (layers: typeof content.layers) => layers.reduce((sum, layer) => sum + layer.size, 0);
  const facts = {
    operation,
    version: pending.version,
    ...(pending.base === undefined ? {} : { parent: pending.base }),
    reason,
    consistency,
    ...(publication.recovered === undefined ? {} : { recovered: publication.recovered }),
    ...(publication.hook === undefined ? {} : { hook: publication.hook }),
    causedBy,
    createdAt: pending.since,
    sandbox: { name: sandbox.name, uid: sandbox.uid },
    sizeBytes: bytesOf(content.layers.filter((layer) => !inherited.has(layer.digest))),
    ...(publication.ignoredRescues?.length ? { ignoredRescues: [...publication.ignoredRescues] } : {}),
  };
  const manifest = manifestOfVersion(
    { ...facts, world: publication.world, description, createdBy: creatorOf(world), genesis },
    content,
  );
  return {
    content,
    manifest,
    version: {
      ...facts,
      digest: digestOf(manifest),
      totalBytes: bytesOf(content.layers),
      layers: content.layers.length,
      description: clip(description, LIMITS.description),
    },
  };
}
