/** Where images come from: source registries under the source policy, with the installation's pull credentials. */
import type { Platform } from "../runtime/contract.ts";
import type { Descriptor, Digest } from "./contract.ts";

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
   * registry. Throws `RegistryError`: `SourceNotAllowed`, `NotFound`, `Unauthorized`, `Refused` (platform), `Unavailable`.
   */
  copyInto(
    image: string,
    target: { readonly repository: string; readonly platform: Platform },
    signal: AbortSignal,
  ): Promise<CopiedSource>;
  /** The digest of the image for a platform, under the same rules. */
  resolve(image: string, platform: Platform, signal: AbortSignal): Promise<Digest>;
  /** `host/repository@digest` of an image reference, as a host pulls it. */
  pin(image: string, digest: Digest): string;
}
