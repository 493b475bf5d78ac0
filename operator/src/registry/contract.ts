/** `sha256:<64 hex>`. */
export type Digest = `sha256:${string}`;

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: Digest;
  readonly size: number;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Where a foreign layer is to be had. Images with such layers are refused as a source. */
  readonly urls?: readonly string[];
  readonly platform?: { readonly os: string; readonly architecture: string; readonly variant?: string };
}

export interface ImageManifest {
  readonly schemaVersion: 2;
  readonly mediaType: string;
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface ImageIndex {
  readonly schemaVersion: 2;
  readonly mediaType: string;
  readonly manifests: readonly Descriptor[];
}

/** A manifest as read: the exact bytes, their digest (computed, not believed), and the parsed value. */
export interface FetchedManifest {
  readonly digest: Digest;
  readonly mediaType: string;
  readonly bytes: Uint8Array;
  readonly manifest: { kind: "image"; value: ImageManifest } | { kind: "index"; value: ImageIndex };
}

/** Basic credentials of a registry. Never enter compute, argv, a log line or a status. */
export interface RegistryLogin {
  readonly username: string;
  readonly password: string;
}

/** A registry and how to talk to it. */
export interface RegistryEndpoint {
  /** `https://host[:port]` or, on loopback only, `http://…`. */
  readonly url: string;
  readonly login?: RegistryLogin | undefined;
  /** PEM of an own CA. */
  readonly ca?: string | undefined;
}

export interface ManifestToPut {
  /** A tag, or the digest of the bytes. */
  readonly reference: string;
  readonly mediaType: string;
  readonly bytes: Uint8Array;
}

export interface BlobToGet {
  readonly digest: Digest;
  /** Default 4 MiB. */
  readonly maxBytes?: number;
}

export interface BlobToMount {
  /** The repository that has it. */
  readonly from: string;
  readonly digest: Digest;
}

/**
 * One registry. Every call takes a signal and has a deadline; streams have a progress deadline instead of a total one.
 * Errors: `RegistryError` (errors.ts), by class of outcome. A failed call is never reported as "empty" or "absent".
 */
export interface RegistryClient {
  readonly endpoint: RegistryEndpoint;
  /** `reference` is a tag or a digest. Throws `NotFound`; a digest that does not match the bytes throws `DigestMismatch`. */
  getManifest(repository: string, reference: string, signal: AbortSignal): Promise<FetchedManifest>;
  /** Puts the exact bytes under their digest, or under a tag. Returns the digest of the bytes. */
  putManifest(repository: string, manifest: ManifestToPut, signal: AbortSignal): Promise<Digest>;
  /** By digest. Absent is a success. */
  deleteManifest(repository: string, digest: Digest, signal: AbortSignal): Promise<void>;
  /** Every tag, all pages. A repository that does not exist has none; any other failure throws. */
  listTags(repository: string, signal: AbortSignal): Promise<string[]>;
  /**
   * Repositories whose names begin with the prefix, by the registry's catalog. `NoCatalog`: it offers none. Throws
   * `Unauthorized` where it is not shown to us.
   */
  listRepositories(prefix: string, signal: AbortSignal): Promise<readonly string[] | "NoCatalog">;
  /** Whole blob in memory, digest checked; for configs. Refuses more than `maxBytes` (default 4 MiB). */
  getBlob(repository: string, blob: BlobToGet, signal: AbortSignal): Promise<Uint8Array>;
  /** Streamed blob; the stream throws at its end when length or digest differ. */
  streamBlob(repository: string, descriptor: Descriptor, signal: AbortSignal): AsyncIterable<Uint8Array>;
  /** Proof by ranged GET of the first and the last byte and the total length (HEAD proves nothing after a GC). */
  verifyBlob(
    repository: string,
    descriptor: Pick<Descriptor, "digest" | "size">,
    signal: AbortSignal,
  ): Promise<boolean>;
  /** Uploads a stream of unknown length, digest computed on the way; checks what the registry stored. */
  uploadBlob(
    repository: string,
    content: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<{ digest: Digest; size: number }>;
  /** Uploads known bytes unless they are there already (proved by `verifyBlob`). */
  putBlob(repository: string, bytes: Uint8Array, signal: AbortSignal): Promise<{ digest: Digest; size: number }>;
  /** Mounts from another repository of the same registry. False: the registry would not; copy instead. */
  mountBlob(repository: string, blob: BlobToMount, signal: AbortSignal): Promise<boolean>;
  close(): Promise<void>;
}

export const MEDIA_TYPES = {
  ociManifest: "application/vnd.oci.image.manifest.v1+json",
  ociIndex: "application/vnd.oci.image.index.v1+json",
  ociEmpty: "application/vnd.oci.empty.v1+json",
  ociConfig: "application/vnd.oci.image.config.v1+json",
  ociLayer: "application/vnd.oci.image.layer.v1.tar",
  ociLayerGzip: "application/vnd.oci.image.layer.v1.tar+gzip",
  ociLayerZstd: "application/vnd.oci.image.layer.v1.tar+zstd",
  dockerManifest: "application/vnd.docker.distribution.manifest.v2+json",
  dockerList: "application/vnd.docker.distribution.manifest.list.v2+json",
  dockerConfig: "application/vnd.docker.container.image.v1+json",
  dockerLayerGzip: "application/vnd.docker.image.rootfs.diff.tar.gzip",
} as const;
