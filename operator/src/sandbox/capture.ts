/** What an operation left behind, and its end. */
import type { SandboxOperation } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import { RegistryError } from "../registry/errors.ts";
import { isRuntimeError } from "../runtime/errors.ts";
import { isVersionOf } from "../world/pushed-capture.ts";
import type { SandboxScope } from "./scope.ts";
import { captureOwner, refOf, repositoryName } from "./world-of.ts";

/**
 * Drops what an operation left on its host and in the registry, and its reservation. Repeatable. What host or registry does not
 * give up holds nobody up: a registry may delete nothing at all, and the host refuses an image that somebody made a container
 * of. The tag that stays is the World's to remove (world/leftovers.ts), the image is the sweep's.
 */
export async function dropCapture(
  scope: SandboxScope,
  operation: Pick<SandboxOperation, "id" | "stage">,
): Promise<void> {
  const { driver, world } = scope;
  // Without its World there is no repository to look into, and nobody is kept waiting for it.
  if (driver && world) {
    const { snapshots, worldWriter } = scope.dependencies;
    const { signal } = scope.context;
    const capture = { operation: operation.id, driver, owner: captureOwner(scope) };
    await leaveRefused(scope, operation, () => snapshots.forgetCapture(capture, signal));
    await leaveRefused(scope, operation, () => {
      const isVersion = isVersionOf(worldWriter, refOf(world), signal);
      return snapshots.forgetUploaded(
        { operation: operation.id, repository: repositoryName(scope), isVersion },
        signal,
      );
    });
  }
  if (world && operation.stage !== "Committed") {
    await scope.dependencies.worldWriter.abandon(refOf(world), operation.id, scope.context.signal);
  }
}

async function leaveRefused(
  { dependencies }: SandboxScope,
  { id }: Pick<SandboxOperation, "id">,
  drop: () => Promise<unknown>,
): Promise<void> {
  try {
    await drop();
  } catch (error) {
    const isRefused = error instanceof RegistryError || isRuntimeError(error, "HostRefused");
    if (!isRefused && !(error instanceof Waiting && error.reason === "RegistryMoved")) throw error;
    dependencies.log.warn({ err: error, operation: id }, "what is left of a capture stays for now");
  }
}
