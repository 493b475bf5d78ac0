/**
 * A version in the registry: config, then manifest by digest, then read back, then tags (DESIGN §4.1). The reservation
 * before and the commit after belong to world/status-writer.ts. Every function may be repeated.
 */
import type { CausedBy } from "@agentworlds/crds";
import type { Descriptor, Digest, ImageManifest, RegistryClient } from "../registry/contract.ts";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { isRegistryError } from "../registry/errors.ts";
import { PublicationError } from "./errors.ts";
import { digestOf } from "./image-config.ts";

/** What a version says about itself; becomes the manifest's annotations (DESIGN §11). */
export interface VersionFacts {
  readonly operation: string;
  readonly world: { readonly namespace: string; readonly name: string; readonly uid: string };
  readonly version: number;
  /** Digest of the version it derives from; absent at genesis. */
  readonly parent?: string;
  readonly reason: string;
  readonly consistency: string;
  readonly description: string;
  /** Creator of the World, as stamped at admission. */
  readonly createdBy: CausedBy;
  /** Who caused this version. */
  readonly causedBy: CausedBy;
  /** ISO time of the reservation. */
  readonly createdAt: string;
  /** The genesis image as named by the World, and its digest. */
  readonly genesis: { readonly image: string; readonly digest: string };
}

export interface VersionContent {
  readonly config: Uint8Array;
  readonly layers: readonly Descriptor[];
}

export const versionTag = (version: number): string => `v${version}`;

/** dockerd refuses layer 126 (`maxLayerDepth`), and a container booted at 125 can never be committed again. */
export const MOST_LAYERS = 124;

const ANNOTATION = "dev.agentworlds.";

/** The same facts and content make the same bytes. */
export function manifestOfVersion(facts: VersionFacts, content: VersionContent): Uint8Array {
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
    annotations: {
      [`${ANNOTATION}operation`]: facts.operation,
      [`${ANNOTATION}world`]: `${facts.world.namespace}/${facts.world.name}`,
      [`${ANNOTATION}world-uid`]: facts.world.uid,
      [`${ANNOTATION}version`]: String(facts.version),
      ...(facts.parent === undefined ? {} : { [`${ANNOTATION}parent`]: facts.parent }),
      [`${ANNOTATION}reason`]: facts.reason,
      [`${ANNOTATION}created-by`]: JSON.stringify(facts.createdBy),
      [`${ANNOTATION}caused-by`]: JSON.stringify(facts.causedBy),
      [`${ANNOTATION}consistency`]: facts.consistency,
      [`${ANNOTATION}description`]: facts.description,
      "org.opencontainers.image.created": facts.createdAt,
      "org.opencontainers.image.base.name": facts.genesis.image,
      "org.opencontainers.image.base.digest": facts.genesis.digest,
    },
  };
  return new TextEncoder().encode(JSON.stringify(manifest));
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

/** Puts the config and then the manifest, by digest. Tags come after the commit. */
export async function putVersion(
  client: RegistryClient,
  repository: string,
  version: { readonly manifest: Uint8Array; readonly config: Uint8Array },
  signal: AbortSignal,
): Promise<Digest> {
  await client.putBlob(repository, version.config, signal);
  const digest = digestOf(version.manifest);
  return client.putManifest(
    repository,
    digest,
    { mediaType: MEDIA_TYPES.ociManifest, bytes: version.manifest },
    signal,
  );
}

/** Proof that a version can be pulled: manifest and config by GET of their bytes, each layer by its ends and length. */
export async function readBackVersion(
  client: RegistryClient,
  repository: string,
  digest: Digest,
  signal: AbortSignal,
): Promise<ImageManifest> {
  const fetched = await client.getManifest(repository, digest, signal);
  if (fetched.digest !== digest || fetched.manifest.kind !== "image") {
    throw new PublicationError("ReadBackFailed", `${repository}@${digest} reads back as ${fetched.digest}`);
  }
  const manifest = fetched.manifest.value;
  await client.getBlob(repository, manifest.config.digest, signal);
  for (const layer of manifest.layers) {
    if (!(await client.verifyBlob(repository, layer, signal))) {
      throw new PublicationError("ReadBackFailed", `layer ${layer.digest} of ${repository}@${digest} is not there`);
    }
  }
  return manifest;
}

/** True when the version's tag is free or already ours. A listing or reading failure throws; it is never "free". */
export async function isTagFree(
  client: RegistryClient,
  repository: string,
  tag: { readonly version: number; readonly digest: Digest },
  signal: AbortSignal,
): Promise<boolean> {
  const holder = await digestOfTag(client, repository, versionTag(tag.version), signal);
  return holder === undefined || holder === tag.digest;
}

/**
 * Observes the tags of the head and repairs them: `v<n>` is only ever created, `latest` follows head.
 * Throws `TagTaken` when `v<n>` names another digest.
 */
export async function repairTags(
  client: RegistryClient,
  repository: string,
  head: { readonly version: number; readonly digest: Digest },
  signal: AbortSignal,
): Promise<void> {
  const tag = versionTag(head.version);
  const [tagged, latest] = await Promise.all([
    digestOfTag(client, repository, tag, signal),
    digestOfTag(client, repository, "latest", signal),
  ]);
  if (tagged !== undefined && tagged !== head.digest) {
    throw new PublicationError(
      "TagTaken",
      `${repository}:${tag} names ${tagged}, not ${head.digest}; it is not overwritten`,
    );
  }
  if (tagged === head.digest && latest === head.digest) return;
  const { bytes, mediaType } = await client.getManifest(repository, head.digest, signal);
  if (tagged === undefined) await client.putManifest(repository, tag, { mediaType, bytes }, signal);
  if (latest !== head.digest) await client.putManifest(repository, "latest", { mediaType, bytes }, signal);
}

async function digestOfTag(
  client: RegistryClient,
  repository: string,
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
