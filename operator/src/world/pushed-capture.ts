/** What an operation brought into the World's repository before its version was made. */
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import { captureTag } from "../snapshot/docker-commit.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import type { WorldScope } from "./scope.ts";
import { statusOf } from "./status-writer.ts";

/**
 * Removes the capture of an operation that nobody goes on with. A tag can name anything: a manifest that is a version stays.
 * What cannot be removed now costs bytes and nothing else.
 */
export async function dropPushedCapture(scope: WorldScope, operation: string): Promise<void> {
  const { registry, log } = scope.dependencies;
  const { signal } = scope.context;
  const { repository, versions = [] } = statusOf(scope.world);
  if (!repository) return;
  try {
    const name = repositoryInRegistry(scope);
    const { digest } = await registry.client.getManifest(name, captureTag(operation), signal);
    if (versions.some((version) => version.digest === digest)) return;
    signal.throwIfAborted();
    await registry.client.deleteManifest(name, digest, signal);
    log.info({ operation }, "a capture that nobody needs was removed from the registry");
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    if (!isRegistryError(error, "NotFound")) log.warn({ err: error, operation }, "a capture could not be dropped");
  }
}
