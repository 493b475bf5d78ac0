import { z } from "zod";
import { parseJson } from "./answer.ts";
import {
  type Descriptor,
  type Digest,
  type FetchedManifest,
  type ImageIndex,
  type ImageManifest,
  MEDIA_TYPES,
  type RegistryClient,
} from "./contract.ts";
import { isDigest } from "./digest.ts";
import { RegistryError } from "./errors.ts";
import { inParallel } from "./in-parallel.ts";
import { MOST_LAYERS } from "./layer-limit.ts";
import { needsNoUpload } from "./upload.ts";

/** What to copy, and where to. */
export interface CopyImageRequest {
  readonly source: { readonly client: RegistryClient; readonly repository: string; readonly reference: string };
  readonly target: { readonly client: RegistryClient; readonly repository: string };
  /** `os/architecture`, for example `linux/amd64`. */
  readonly platform: string;
  readonly signal: AbortSignal;
}

/** An image of one platform, as found at its source. */
export interface ResolvedImage {
  /** What the reference named: the index if there was one, else the manifest. */
  readonly sourceDigest: Digest;
  /** The manifest of the platform, as the source has it. */
  readonly manifestDigest: Digest;
  /** `os/architecture`, as asked for. */
  readonly platform: string;
  /** In one media type family, OCI, whatever the source used. Config and layers keep their digests. */
  readonly manifest: ImageManifest;
  readonly config: Uint8Array;
}

/** Layers copied at the same time; each keeps one chunk in memory. */
const PARALLEL_COPIES = 3;
/** A config with thousands of history entries stays far below. */
const LONGEST_CONFIG = 8 * 1024 * 1024;

const OCI_LAYER_TYPES: ReadonlyMap<string, string> = new Map([
  [MEDIA_TYPES.ociLayer, MEDIA_TYPES.ociLayer],
  [MEDIA_TYPES.ociLayerGzip, MEDIA_TYPES.ociLayerGzip],
  [MEDIA_TYPES.ociLayerZstd, MEDIA_TYPES.ociLayerZstd],
  ["application/vnd.docker.image.rootfs.diff.tar", MEDIA_TYPES.ociLayer],
  [MEDIA_TYPES.dockerLayerGzip, MEDIA_TYPES.ociLayerGzip],
  ["application/vnd.docker.image.rootfs.diff.tar.zstd", MEDIA_TYPES.ociLayerZstd],
]);
const CONFIG_TYPES: readonly string[] = [MEDIA_TYPES.ociConfig, MEDIA_TYPES.dockerConfig];

const configSchema = z.object({
  os: z.string(),
  architecture: z.string(),
  rootfs: z.object({ type: z.literal("layers"), diff_ids: z.array(z.string().refine(isDigest, "must be a digest")) }),
});

/**
 * Resolves a reference to the image of one platform and checks that it is one we can reproduce. Reads manifests and the
 * config only. Throws `PlatformNotOffered`, naming the platforms there are, and `UnsupportedImage`.
 */
export async function resolveImage(request: Omit<CopyImageRequest, "target">): Promise<ResolvedImage> {
  const { source, platform, signal } = request;
  const named = await source.client.getManifest(source.repository, source.reference, signal);
  const found = await imageManifest(request, named);
  const manifest = toOciManifest(found.image);
  const config = await source.client.getBlob(
    source.repository,
    { digest: manifest.config.digest, maxBytes: LONGEST_CONFIG },
    signal,
  );
  checkConfig(config, { platform, layers: manifest.layers.length });
  return { sourceDigest: named.digest, manifestDigest: found.digest, platform, manifest, config };
}

/**
 * Copies config and layers of one platform's image into a repository: what is proved to be there is skipped, what can be
 * mounted is mounted, the rest is streamed, digests checked. The manifest is not pushed: publishing is the caller's.
 */
export async function copyImage(request: CopyImageRequest): Promise<ResolvedImage> {
  const image = await resolveImage(request);
  const blobs = new Map(image.manifest.layers.map((layer) => [layer.digest, layer]));
  const bounds = { limit: PARALLEL_COPIES, signal: request.signal };
  await inParallel([...blobs.values()], bounds, (layer, signal) => copyBlob({ ...request, signal }, layer));
  await request.target.client.putBlob(request.target.repository, image.config, request.signal);
  return image;
}

/** The same for known blobs of one registry, such as those of a manifest that is put into another repository as it is. */
export async function copyBlobs(request: {
  readonly client: RegistryClient;
  readonly from: string;
  readonly to: string;
  readonly blobs: readonly Descriptor[];
  readonly signal: AbortSignal;
}): Promise<void> {
  const { client, from, to, blobs, signal } = request;
  const unique = [...new Map(blobs.map((blob) => [blob.digest, blob])).values()];
  const places = { source: { client, repository: from }, target: { client, repository: to } };
  await inParallel(unique, { limit: PARALLEL_COPIES, signal }, (blob, until) =>
    copyBlob({ ...places, signal: until }, blob),
  );
}

interface CopyPlaces {
  readonly source: Pick<CopyImageRequest["source"], "client" | "repository">;
  readonly target: CopyImageRequest["target"];
  readonly signal: AbortSignal;
}

async function copyBlob(request: CopyPlaces, blob: Descriptor): Promise<void> {
  const { source, target, signal } = request;
  if (await needsNoUpload(() => target.client.verifyBlob(target.repository, blob, signal))) return;
  const isSameRegistry = new URL(source.client.endpoint.url).origin === new URL(target.client.endpoint.url).origin;
  if (
    isSameRegistry &&
    (await target.client.mountBlob(target.repository, { from: source.repository, digest: blob.digest }, signal))
  ) {
    // A mount trusts the registry's cache as HEAD does; only bytes are a proof.
    if (await target.client.verifyBlob(target.repository, blob, signal)) return;
  }
  const content = source.client.streamBlob(source.repository, blob, signal);
  const stored = await target.client.uploadBlob(target.repository, content, signal);
  if (stored.digest !== blob.digest || stored.size !== blob.size) {
    throw new RegistryError("DigestMismatch", `blob ${blob.digest} arrived as ${stored.digest}`);
  }
}

/** The index's child for the platform, or the manifest itself. */
async function imageManifest(
  request: Omit<CopyImageRequest, "target">,
  named: FetchedManifest,
): Promise<{ digest: Digest; image: ImageManifest }> {
  if (named.manifest.kind === "image") return { digest: named.digest, image: named.manifest.value };
  const { source, platform, signal } = request;
  const child = selectPlatform(named.manifest.value, platform);
  const fetched = await source.client.getManifest(source.repository, child.digest, signal);
  if (fetched.manifest.kind === "index") throw unsupported("its index leads to another index");
  return { digest: fetched.digest, image: fetched.manifest.value };
}

/** The entry of an index for `os/architecture`; of several variants the plainest. Throws `PlatformNotOffered`. */
export function selectPlatform(index: ImageIndex, platform: string): Descriptor {
  const candidates = index.manifests.filter((entry) => platformOf(entry) === platform);
  // No variant, or arm64's v8, is what the platform means when it is not said more precisely.
  const plain = candidates.find(({ platform: p }) => p?.variant === undefined || p.variant === "v8");
  const chosen = plain ?? candidates[0];
  if (chosen !== undefined) return chosen;
  throw notOffered(platform, [...new Set(index.manifests.map(platformOf))]);
}

/** Build attestations are listed as `unknown/unknown`; they are no platform to offer. */
function platformOf(entry: Descriptor): string {
  return entry.platform === undefined ? "unknown/unknown" : `${entry.platform.os}/${entry.platform.architecture}`;
}

/** The manifest in the OCI family of media types. Throws `UnsupportedImage` for what a registry pull could not boot. */
export function toOciManifest(image: ImageManifest): ImageManifest {
  if (!CONFIG_TYPES.includes(image.config.mediaType)) {
    throw unsupported(`it is an artifact of type ${image.config.mediaType}, not a container image`);
  }
  if (image.layers.length > MOST_LAYERS) {
    throw unsupported(`it has ${image.layers.length} layers, and an engine boots at most ${MOST_LAYERS}`);
  }
  return {
    ...image,
    mediaType: MEDIA_TYPES.ociManifest,
    config: { ...image.config, mediaType: MEDIA_TYPES.ociConfig },
    layers: image.layers.map(toOciLayer),
  };
}

function toOciLayer(layer: Descriptor): Descriptor {
  if (layer.urls !== undefined) throw unsupported(`its layer ${layer.digest} is foreign: it is kept at another place`);
  const mediaType = OCI_LAYER_TYPES.get(layer.mediaType);
  if (mediaType === undefined) throw unsupported(`its layer ${layer.digest} is of type ${layer.mediaType}`);
  return { ...layer, mediaType };
}

function checkConfig(bytes: Uint8Array, expected: { platform: string; layers: number }): void {
  const config = parseJson(bytes, configSchema, "the image config");
  const platform = `${config.os}/${config.architecture}`;
  if (platform !== expected.platform) throw notOffered(expected.platform, [platform]);
  const count = config.rootfs.diff_ids.length;
  if (count !== expected.layers) {
    throw unsupported(`its manifest has ${expected.layers} layers and its config ${count} diff ids`);
  }
}

function notOffered(wanted: string, offered: readonly string[]): RegistryError {
  const known = offered.filter((platform) => platform !== "unknown/unknown").sort();
  const list = known.length === 0 ? "none" : known.join(", ");
  return new RegistryError("PlatformNotOffered", `the image is not offered for ${wanted}; it is offered for: ${list}`);
}

const unsupported = (because: string): RegistryError =>
  new RegistryError("UnsupportedImage", `the image cannot be used: ${because}`);
