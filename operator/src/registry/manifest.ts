import { z } from "zod";
import { parseJson } from "./answer.ts";
import { type Descriptor, type FetchedManifest, type ImageIndex, type ImageManifest, MEDIA_TYPES } from "./contract.ts";
import { digestOf, isDigest } from "./digest.ts";
import { RegistryError } from "./errors.ts";

/** A larger manifest is refused; the distribution specification asks registries to take at least this much. */
export const LONGEST_MANIFEST = 4 * 1024 * 1024;

const IMAGE_TYPES: readonly string[] = [MEDIA_TYPES.ociManifest, MEDIA_TYPES.dockerManifest];
const INDEX_TYPES: readonly string[] = [MEDIA_TYPES.ociIndex, MEDIA_TYPES.dockerList];

/** What a GET of a manifest accepts. */
export const ACCEPTED_MANIFESTS = [...IMAGE_TYPES, ...INDEX_TYPES].join(", ");

const digestSchema = z.string().refine(isDigest, "must be sha256 with 64 hex digits");
const annotationsSchema = z.record(z.string(), z.string());

const descriptorSchema = z.object({
  mediaType: z.string().min(1).max(255),
  digest: digestSchema,
  size: z.int().nonnegative(),
  annotations: annotationsSchema.nullish(),
  urls: z.array(z.string()).nullish(),
  platform: z.object({ os: z.string(), architecture: z.string(), variant: z.string().nullish() }).nullish(),
});

const imageSchema = z.object({
  schemaVersion: z.literal(2),
  mediaType: z.string().nullish(),
  config: descriptorSchema,
  layers: z.array(descriptorSchema),
  annotations: annotationsSchema.nullish(),
});

const indexSchema = z.object({
  schemaVersion: z.literal(2),
  mediaType: z.string().nullish(),
  manifests: z.array(descriptorSchema),
});

const shapeSchema = z.object({
  schemaVersion: z.int(),
  mediaType: z.string().nullish(),
  manifests: z.unknown().optional(),
  layers: z.unknown().optional(),
});

/**
 * Reads the bytes of a manifest. The media type is the body's own; the Content-Type must agree, or stands in when the
 * body names none. Throws `Malformed` when the two disagree or the body could be read as either kind, because then two
 * readers would see two images under one digest (CVE-2021-41190).
 */
export function parseManifest(bytes: Uint8Array, contentType: string | undefined): FetchedManifest {
  const shape = parseJson(bytes, shapeSchema, "the manifest");
  if (shape.schemaVersion === 1) throw malformed("it is of schema 1, which is not supported");
  if (shape.manifests !== undefined && shape.layers !== undefined) throw malformed("it is both an index and an image");

  const announced = manifestType(contentType);
  const own = shape.mediaType ?? undefined;
  if (own !== undefined && announced !== undefined && own !== announced) {
    throw malformed(`it calls itself ${own} and was sent as ${announced}`);
  }
  const isIndex = shape.manifests !== undefined;
  const mediaType = own ?? announced ?? (isIndex ? MEDIA_TYPES.ociIndex : MEDIA_TYPES.ociManifest);
  if (!(isIndex ? INDEX_TYPES : IMAGE_TYPES).includes(mediaType)) throw malformed(`its media type is ${mediaType}`);

  const manifest: FetchedManifest["manifest"] = isIndex
    ? { kind: "index", value: readIndex(bytes, mediaType) }
    : { kind: "image", value: readImage(bytes, mediaType) };
  return { digest: digestOf(bytes), mediaType, bytes, manifest };
}

function readImage(bytes: Uint8Array, mediaType: string): ImageManifest {
  const image = parseJson(bytes, imageSchema, "the image manifest");
  const { annotations } = image;
  return {
    schemaVersion: 2,
    mediaType,
    config: toDescriptor(image.config),
    layers: image.layers.map(toDescriptor),
    ...(annotations == null ? {} : { annotations }),
  };
}

function readIndex(bytes: Uint8Array, mediaType: string): ImageIndex {
  const index = parseJson(bytes, indexSchema, "the image index");
  return { schemaVersion: 2, mediaType, manifests: index.manifests.map(toDescriptor) };
}

function toDescriptor(parsed: z.infer<typeof descriptorSchema>): Descriptor {
  const { mediaType, digest, size, annotations, urls, platform } = parsed;
  if (!isDigest(digest)) throw malformed(`${digest} is not a digest`);
  return {
    mediaType,
    digest,
    size,
    ...(annotations == null ? {} : { annotations }),
    ...(urls == null || urls.length === 0 ? {} : { urls }),
    ...(platform == null ? {} : { platform: toPlatform(platform) }),
  };
}

const toPlatform = (platform: { os: string; architecture: string; variant?: string | null | undefined }) => ({
  os: platform.os,
  architecture: platform.architecture,
  ...(platform.variant == null || platform.variant === "" ? {} : { variant: platform.variant }),
});

/** The Content-Type without parameters, when it says more than "some bytes" or "some JSON". */
function manifestType(contentType: string | undefined): string | undefined {
  const type = contentType?.split(";")[0]?.trim().toLowerCase();
  const isGeneric =
    type === undefined || ["", "application/json", "application/octet-stream", "text/plain"].includes(type);
  return isGeneric ? undefined : type;
}

const malformed = (because: string): RegistryError =>
  new RegistryError("Malformed", `the manifest cannot be used: ${because}`);
