/** Where images come from: source registries under the source policy, with the installation's pull credentials. */
import type { Platform } from "@agentworlds/crds";
import type { Descriptor, Digest, RegistryLogin } from "./contract.ts";
import type { RegistryError } from "./errors.ts";

/** The installation's own registry failed, not the source: what is wrong is no property of the image. */
export class TargetRegistryError extends Error {
  override readonly name = "TargetRegistryError";
  readonly failure: RegistryError;
  constructor(failure: RegistryError) {
    super(failure.message, { cause: failure });
    this.failure = failure;
  }
}

/** A source image whose blobs are in the World's repository; its manifest is not: publishing is the caller's. */
export interface CopiedSource {
  /** Digest of the source's manifest for the one platform. */
  readonly sourceDigest: Digest;
  readonly config: Uint8Array;
  readonly layers: readonly Descriptor[];
}

export interface ImageSources {
  /**
   * Resolves the image to the platform's digest and copies config and layers into a repository of the installation's
   * registry. Throws `RegistryError` about the source (`SourceNotAllowed`, `NotFound`, `Unauthorized`, `PlatformNotOffered`,
   * `UnsupportedImage`, `Unavailable`) and `TargetRegistryError` about the installation's registry.
   */
  copyInto(
    image: string,
    target: { readonly repository: string; readonly platform: Platform },
    signal: AbortSignal,
  ): Promise<CopiedSource>;
  /** The digest of the image for a platform, under the same rules. */
  resolve(image: string, platform: Platform, signal: AbortSignal): Promise<Digest>;
  /** What a host needs to pull the image; undefined: it is pulled anonymously. Throws as `resolve`; never enters compute. */
  login(image: string, signal: AbortSignal): Promise<RegistryLogin | undefined>;
  /** `host/repository@digest` of an image reference, as a host pulls it. */
  pin(image: string, digest: Digest): string;
}
