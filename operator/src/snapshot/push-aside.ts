/**
 * A registry whose disk was full for a moment keeps records of blobs that name nothing: from then on it answers 500 for
 * such a blob in that repository (seen on distribution 3.0.0). An engine asks before it sends, so it can never push the
 * blob there, and does not say which one it is. In another repository it can; from there every blob is given to the World's
 * repository, whose records are written anew by that.
 */
import { copyBlobs } from "../registry/copy.ts";
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import type { CaptureRequest } from "./contract.ts";

/** The repository beside that of a World. */
const aside = (repository: string): string => `${repository}/aside`;

/** An image of the engine, and the tag it gets in the World's repository. */
export interface AsidePush {
  readonly request: CaptureRequest;
  /** Its name on the engine. */
  readonly image: string;
  readonly tag: string;
}

/** Brings the image to its tag by way of the other repository. Throws what kept it from there. */
export async function pushAside(
  registry: InstallationRegistry,
  { request, image, tag }: AsidePush,
  signal: AbortSignal,
): Promise<void> {
  const { client } = registry;
  const { repository } = request;
  const from = aside(repository);
  await request.driver.push(image, { repository: registry.asHostsNameIt(from), tag, login: registry.login }, signal);
  const { digest, mediaType, bytes, manifest } = await client.getManifest(from, tag, signal);
  if (manifest.kind !== "image") throw new RegistryError("Malformed", `the engine pushed an index to ${from}:${tag}`);
  const { config, layers } = manifest.value;
  await copyBlobs({ client, from, to: repository, blobs: [config, ...layers], signal });
  await client.putManifest(repository, { reference: tag, mediaType, bytes }, signal);
  signal.throwIfAborted();
  try {
    await client.deleteManifest(from, digest, signal);
  } catch (error) {
    // Where a registry deletes nothing, it stays beside everything else that should be gone.
    if (!isRegistryError(error, "Refused") && !isRegistryError(error, "Unauthorized")) throw error;
  }
}
