/** What an operation left behind, and its end. */
import type { SandboxOperation } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import { RegistryError } from "../registry/errors.ts";
import { isVersionOf } from "../world/pushed-capture.ts";
import type { SandboxScope } from "./scope.ts";
import { captureOwner, refOf, repositoryName } from "./world-of.ts";

/**
 * Drops what an operation left on its host and in the registry, and its reservation. Repeatable. With `registry: Optional` a
 * registry that does not answer, or was moved, holds nobody up: the tag that stays is the World's to remove.
 */
export async function dropCapture(
  scope: SandboxScope,
  operation: Pick<SandboxOperation, "id" | "stage">,
  { registry }: { readonly registry: "Required" | "Optional" },
): Promise<void> {
  const { driver, world } = scope;
  // Without its World there is no repository to look into, and nobody is kept waiting for it.
  if (driver && world) {
    try {
      await scope.dependencies.snapshots.forget(
        {
          operation: operation.id,
          driver,
          owner: captureOwner(scope),
          repository: repositoryName(scope),
          isVersion: isVersionOf(scope.dependencies.worldWriter, refOf(world), scope.context.signal),
        },
        scope.context.signal,
      );
    } catch (error) {
      const isAboutRegistry =
        error instanceof RegistryError || (error instanceof Waiting && error.reason === "RegistryMoved");
      if (registry === "Required" || !isAboutRegistry) throw error;
      scope.dependencies.log.warn({ err: error, operation: operation.id }, "a capture stays in the registry for now");
    }
  }
  if (world && operation.stage !== "Committed") {
    await scope.dependencies.worldWriter.abandon(refOf(world), operation.id, scope.context.signal);
  }
}
