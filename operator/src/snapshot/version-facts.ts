import type { Digest } from "../registry/contract.ts";
import { isRegistryError } from "../registry/errors.ts";
import type { RepositoryAccess } from "./publish.ts";
import { type RecordedFacts, readAnnotations } from "./version-annotations.ts";

/** What the manifest of this digest says of itself; undefined when there is none, or it is no version. */
export async function readVersionFacts(
  { client, repository }: RepositoryAccess,
  digest: Digest,
  signal: AbortSignal,
): Promise<RecordedFacts | undefined> {
  try {
    const { manifest } = await client.getManifest(repository, digest, signal);
    const reading = manifest.kind === "image" ? readAnnotations(manifest.value.annotations) : undefined;
    return reading?.kind === "version" ? reading.facts : undefined;
  } catch (error) {
    if (isRegistryError(error, "NotFound")) return undefined;
    throw error;
  }
}
