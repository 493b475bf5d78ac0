/** What the registry really has of a version: its manifest by GET, its config and layers by their first and last bytes. */
import { createHash } from "node:crypto";
import type { WorldVersion } from "@agentworlds/crds";
import type { Descriptor, Digest, RegistryClient } from "../registry/contract.ts";
import { isRegistryError } from "../registry/errors.ts";

export type VersionName = Pick<WorldVersion, "version" | "digest">;

/** A version that cannot be booted any more. */
export interface DamagedVersion extends VersionName {
  /** What is missing or wrong: `manifest sha256:…`, `layer sha256:…`. */
  readonly because: string;
}

/** When the versions of a World were last looked at, and what was found. */
export interface LineageFindings {
  /** Epoch milliseconds. */
  readonly at: number;
  readonly damaged: readonly DamagedVersion[];
}

/** Waits for its turn before each call to the registry. */
export type Pace = (signal: AbortSignal) => Promise<void>;

/** One look at a lineage: layers that several versions share are asked for once. */
export class LineageLook {
  readonly #client: RegistryClient;
  readonly #repository: string;
  readonly #pace: Pace;
  readonly #blobs = new Map<Digest, boolean>();

  constructor(client: RegistryClient, repository: string, pace: Pace = () => Promise.resolve()) {
    this.#client = client;
    this.#repository = repository;
    this.#pace = pace;
  }

  /** What is wrong with a version; undefined when it is whole. A registry that cannot be asked throws. */
  async damageOf(version: VersionName, signal: AbortSignal): Promise<DamagedVersion | undefined> {
    const { version: number, digest } = version;
    const damaged = (because: string): DamagedVersion => ({ version: number, digest, because });
    await this.#pace(signal);
    try {
      const { manifest } = await this.#client.getManifest(this.#repository, digest, signal);
      if (manifest.kind !== "image") return damaged(`manifest ${digest} is no image`);
      const { config, layers } = manifest.value;
      if (!(await this.#isThere(config, signal))) return damaged(`config ${config.digest} is not there or not whole`);
      for (const layer of layers) {
        if (!(await this.#isThere(layer, signal))) return damaged(`layer ${layer.digest} is not there or not whole`);
      }
      return undefined;
    } catch (error) {
      if (isRegistryError(error, "NotFound")) return damaged(`manifest ${digest} is not there`);
      const isCorrupt = isRegistryError(error, "DigestMismatch") || isRegistryError(error, "Malformed");
      if (isCorrupt) return damaged(`manifest ${digest}: ${error.message}`);
      throw error;
    }
  }

  async #isThere(blob: Descriptor, signal: AbortSignal): Promise<boolean> {
    const known = this.#blobs.get(blob.digest);
    if (known !== undefined) return known;
    await this.#pace(signal);
    const isThere = await this.#client.verifyBlob(this.#repository, blob, signal);
    this.#blobs.set(blob.digest, isThere);
    return isThere;
  }
}

/**
 * Which turn of its verification a World is in: turns are as long as the interval, and begin for each World at another moment
 * of it, so that many Worlds are spread over the whole interval, and over restarts of the operator.
 */
export function turnOf(
  uid: string,
  { now, intervalMs }: { readonly now: number; readonly intervalMs: number },
): number {
  return Math.floor((now + hashOf(uid) * intervalMs) / intervalMs);
}

/** A hash of the text as a fraction of 1. */
const hashOf = (text: string): number => createHash("sha256").update(text).digest().readUInt32BE() / 2 ** 32;
