/**
 * A version in the registry: config, then manifest by digest, then read back, then tags (DESIGN §4.1). The reservation
 * before and the commit after belong to world/status-writer.ts. Every function may be repeated.
 */
import type { Descriptor, Digest, ImageManifest, RegistryClient } from "../registry/contract.ts";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { digestOf } from "../registry/digest.ts";
import { isRegistryError } from "../registry/errors.ts";
import { MOST_LAYERS } from "../registry/layer-limit.ts";
import { PublicationError } from "./errors.ts";
import { annotationsOf, type ImageFacts, worldUidIn } from "./version-annotations.ts";

export interface VersionContent {
  readonly config: Uint8Array;
  readonly layers: readonly Descriptor[];
}

export const versionTag = (version: number): string => `v${version}`;

/** Tag of a rescue that was exported beside the lineage. */
export const rescueTag = (operation: string): string => `rescue-${operation}`;

/** The same facts and content make the same bytes. */
export function manifestOfVersion(facts: ImageFacts, content: VersionContent): Uint8Array {
  if (content.layers.length > MOST_LAYERS) {
    throw new PublicationError(
      "TooManyLayers",
      `${content.layers.length} layers; an engine boots at most ${MOST_LAYERS}`,
    );
  }
  const manifest: ImageManifest = {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociManifest,
    config: {
      mediaType: MEDIA_TYPES.ociConfig,
      digest: digestOf(content.config),
      size: content.config.byteLength,
    },
    layers: content.layers.map((layer) => ({
      mediaType: layerMediaType(layer.mediaType),
      digest: layer.digest,
      size: layer.size,
    })),
    annotations: annotationsOf(facts),
  };
  return new TextEncoder().encode(JSON.stringify(manifest));
}

/**
 * The layers of a capture, those of the version it was booted from as that version describes them: an engine pushes every
 * layer as gzip in name, and one that it found in the registry may be plain tar or zstd.
 */
export function describedByParent(layers: readonly Descriptor[], parent: readonly Descriptor[]): readonly Descriptor[] {
  const known = new Map(parent.map((layer) => [layer.digest, layer]));
  return layers.map((layer) => known.get(layer.digest) ?? layer);
}

/** One family of media types per manifest (layers.md, issue ggcr #1427). */
function layerMediaType(mediaType: string): string {
  switch (mediaType) {
    case MEDIA_TYPES.dockerLayerGzip:
    case MEDIA_TYPES.ociLayerGzip:
      return MEDIA_TYPES.ociLayerGzip;
    case MEDIA_TYPES.ociLayer:
    case MEDIA_TYPES.ociLayerZstd:
      return mediaType;
    default:
      throw new PublicationError("CaptureMalformed", `a layer of media type ${mediaType} cannot be published`);
  }
}

/** Where the versions of a World, or images beside them, are put and read. */
export interface RepositoryAccess {
  readonly client: RegistryClient;
  readonly repository: string;
}

/** Puts the config and then the manifest, by digest. Tags come after the commit. */
export async function putVersion(
  { client, repository }: RepositoryAccess,
  version: { readonly manifest: Uint8Array; readonly config: Uint8Array },
  signal: AbortSignal,
): Promise<Digest> {
  await client.putBlob(repository, version.config, signal);
  const digest = digestOf(version.manifest);
  return client.putManifest(
    repository,
    { reference: digest, mediaType: MEDIA_TYPES.ociManifest, bytes: version.manifest },
    signal,
  );
}

/** Proof that a version can be pulled: manifest and config by GET of their bytes, each layer by its ends and length. */
export async function readBackVersion(
  { client, repository }: RepositoryAccess,
  digest: Digest,
  signal: AbortSignal,
): Promise<ImageManifest> {
  const fetched = await client.getManifest(repository, digest, signal);
  if (fetched.digest !== digest || fetched.manifest.kind !== "image") {
    throw new PublicationError("ReadBackFailed", `${repository}@${digest} reads back as ${fetched.digest}`);
  }
  const manifest = fetched.manifest.value;
  await client.getBlob(repository, { digest: manifest.config.digest }, signal);
  for (const layer of manifest.layers) {
    if (!(await client.verifyBlob(repository, layer, signal))) {
      throw new PublicationError("ReadBackFailed", `layer ${layer.digest} of ${repository}@${digest} is not there`);
    }
  }
  return manifest;
}

/**
 * Whose the version's tag is. `Free`: nobody's, or it names this very version. `Taken`: somebody else's image, which is never
 * overwritten. `Newer`: another version of this World, which `World.status` has forgotten. A failure to read throws.
 */
export async function ownerOfTag(
  { client, repository }: RepositoryAccess,
  tag: { readonly version: number; readonly digest: Digest; readonly worldUid: string },
  signal: AbortSignal,
): Promise<"Free" | "Taken" | "Newer"> {
  try {
    const { digest, manifest } = await client.getManifest(repository, versionTag(tag.version), signal);
    if (digest === tag.digest) return "Free";
    const owner = manifest.kind === "image" ? worldUidIn(manifest.value.annotations) : undefined;
    return owner === tag.worldUid ? "Newer" : "Taken";
  } catch (error) {
    if (isRegistryError(error, "NotFound")) return "Free";
    throw error;
  }
}

/** A version as its tag names it. */
export interface VersionPointer {
  readonly version: number;
  readonly digest: Digest;
}

/** What stands behind head now. */
export interface HeadProof {
  /** `There`: the manifest was read. `Missing`: the registry says it has none. `Corrupt`: other bytes than its digest says. */
  readonly manifest: "There" | "Missing" | "Corrupt";
  /** What `v<n>` names; undefined when there is no such tag. */
  readonly tagged: Digest | undefined;
}

/** Reads head, by its tag when that is right. A failure to read throws; it is never "missing". */
export async function proveHead(
  { client, repository }: RepositoryAccess,
  head: VersionPointer,
  signal: AbortSignal,
): Promise<HeadProof> {
  const tagged = await digestOfTag({ client, repository }, versionTag(head.version), signal);
  if (tagged === head.digest) return { manifest: "There", tagged };
  try {
    await client.getManifest(repository, head.digest, signal);
    return { manifest: "There", tagged };
  } catch (error) {
    if (isRegistryError(error, "NotFound")) return { manifest: "Missing", tagged };
    if (isRegistryError(error, "DigestMismatch")) return { manifest: "Corrupt", tagged };
    throw error;
  }
}

/** A World's versions, all of which must stay tagged: an untagged manifest can be lost to a registry's garbage collection. */
export interface TaggedLineage {
  /** The repository's tags, when this pass has listed them already. */
  readonly tags?: readonly string[] | undefined;
  readonly versions: readonly VersionPointer[];
  readonly head: VersionPointer;
  /** As found by `proveHead` in this pass. */
  readonly proof: HeadProof;
  /** Head's digest read afresh; asked right before `latest` moves. */
  readonly readHead: () => Promise<string | undefined>;
}

export interface TagFindings {
  /** Versions whose tag names another digest. It is never overwritten. */
  readonly taken: readonly (VersionPointer & { readonly holder: Digest })[];
  /** Versions that have no tag and whose manifest cannot be read. */
  readonly lost: readonly VersionPointer[];
}

/**
 * Observes the tags of a lineage and repairs them: `v<n>` is only ever created, `latest` follows head. One listing tells
 * which tags exist; only those that are missing are looked at one by one. A listing failure throws; it is never "empty".
 */
export async function repairLineageTags(
  { client, repository }: RepositoryAccess,
  lineage: TaggedLineage,
  signal: AbortSignal,
): Promise<TagFindings> {
  const { head, proof } = lineage;
  const listed = new Set(lineage.tags ?? (await client.listTags(repository, signal)));
  const taken: (VersionPointer & { holder: Digest })[] = [];
  const lost: VersionPointer[] = [];
  for (const version of lineage.versions) {
    const isHead = version.digest === head.digest && version.version === head.version;
    if (isHead ? proof.tagged === head.digest : listed.has(versionTag(version.version))) continue;
    const tag = versionTag(version.version);
    const outcome = await createTag({ client, repository }, { tag, digest: version.digest }, signal);
    if (outcome.kind === "taken") taken.push({ ...version, holder: outcome.holder });
    if (outcome.kind === "lost") lost.push(version);
  }
  const isHeadTagged = ![...taken, ...lost].some((version) => version.version === head.version);
  if (isHeadTagged) {
    await moveLatest(
      { client, repository },
      { ...head, isHead: async () => (await lineage.readHead()) === head.digest },
      signal,
    );
  }
  return { taken, lost };
}

export type TagOutcome = { kind: "tagged" } | { kind: "taken"; holder: Digest } | { kind: "lost" };

/** A tag is only ever created. `taken`: it names another digest. `lost`: the digest's manifest cannot be read. */
export async function createTag(
  { client, repository }: RepositoryAccess,
  { tag, digest }: { readonly tag: string; readonly digest: Digest },
  signal: AbortSignal,
): Promise<TagOutcome> {
  const holder = await digestOfTag({ client, repository }, tag, signal);
  if (holder === digest) return { kind: "tagged" };
  if (holder !== undefined) return { kind: "taken", holder };
  try {
    const { bytes, mediaType } = await client.getManifest(repository, digest, signal);
    await client.putManifest(repository, { reference: tag, mediaType, bytes }, signal);
    return { kind: "tagged" };
  } catch (error) {
    if (isRegistryError(error, "NotFound") || isRegistryError(error, "DigestMismatch")) return { kind: "lost" };
    throw error;
  }
}

/** A head whose tags are looked at. */
interface TaggedHead extends VersionPointer {
  /** Asked right before `latest` moves: a stale caller must not move it back. Default: it is head. */
  readonly isHead?: () => Promise<boolean>;
}

async function moveLatest(
  { client, repository }: RepositoryAccess,
  head: TaggedHead,
  signal: AbortSignal,
): Promise<void> {
  if ((await digestOfTag({ client, repository }, "latest", signal)) === head.digest) return;
  const { bytes, mediaType } = await client.getManifest(repository, head.digest, signal);
  if (head.isHead && !(await head.isHead())) return;
  await client.putManifest(repository, { reference: "latest", mediaType, bytes }, signal);
}

/**
 * Tags a version that has just become head: `v<n>` is only ever created, `latest` follows.
 * Throws `TagTaken` when `v<n>` names another digest.
 */
export async function repairTags(
  { client, repository }: RepositoryAccess,
  head: TaggedHead,
  signal: AbortSignal,
): Promise<void> {
  const tag = versionTag(head.version);
  const [tagged, latest] = await Promise.all([
    digestOfTag({ client, repository }, tag, signal),
    digestOfTag({ client, repository }, "latest", signal),
  ]);
  if (tagged !== undefined && tagged !== head.digest) {
    throw new PublicationError(
      "TagTaken",
      `${repository}:${tag} names ${tagged}, not ${head.digest}; it is not overwritten`,
    );
  }
  if (tagged === head.digest && latest === head.digest) return;
  const { bytes, mediaType } = await client.getManifest(repository, head.digest, signal);
  if (tagged === undefined) await client.putManifest(repository, { reference: tag, mediaType, bytes }, signal);
  if (latest === head.digest || (head.isHead && !(await head.isHead()))) return;
  await client.putManifest(repository, { reference: "latest", mediaType, bytes }, signal);
}

async function digestOfTag(
  { client, repository }: RepositoryAccess,
  tag: string,
  signal: AbortSignal,
): Promise<Digest | undefined> {
  try {
    return (await client.getManifest(repository, tag, signal)).digest;
  } catch (error) {
    if (isRegistryError(error, "NotFound")) return undefined;
    throw error;
  }
}
