/** What an operation brought into the World's repository before its version was made. */
import type { Digest } from "../registry/contract.ts";
import { RegistryError } from "../registry/errors.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import type { WorldScope } from "./scope.ts";
import { statusOf, type WorldRef, type WorldStatusWriter } from "./status-writer.ts";

/**
 * Removes the capture of an operation that nobody goes on with. A tag can name anything: a manifest that is a version stays.
 * What cannot be removed now costs bytes and nothing else.
 */
export async function dropPushedCapture(scope: WorldScope, operation: string): Promise<void> {
  const { snapshots, writer, log } = scope.dependencies;
  const { signal } = scope.context;
  if (!statusOf(scope.world).repository) return;
  try {
    const pushed = {
      operation,
      repository: repositoryInRegistry(scope),
      isVersion: isVersionOf(writer, scope.ref, signal),
    };
    const end = await snapshots.forgetUploaded(pushed, signal);
    if (end === "Dropped") log.info({ operation }, "a capture that nobody needs was removed from the registry");
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    log.warn({ err: error, operation }, "a capture could not be dropped");
  }
}

/** As the World is stored now: the pass may have it from before a commit. */
export const isVersionOf =
  (writer: Pick<WorldStatusWriter, "read">, ref: WorldRef, signal: AbortSignal) =>
  async (digest: Digest): Promise<boolean> => {
    const { versions = [] } = statusOf(await writer.read(ref, signal));
    return versions.some((version) => version.digest === digest);
  };
