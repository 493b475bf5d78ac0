/** What an operation left behind, and its end. */
import type { SandboxOperation } from "@agentworlds/crds";
import type { SandboxScope } from "./scope.ts";
import { refOf, repositoryName } from "./world-of.ts";

/** Drops what an operation left on its host and in the registry, and its reservation. Repeatable. */
export async function dropCapture(
  scope: SandboxScope,
  operation: Pick<SandboxOperation, "id" | "stage">,
): Promise<void> {
  const { driver, world } = scope;
  // Without its World there is no repository to look into, and nobody is kept waiting for it.
  if (driver && world) {
    await scope.dependencies.snapshots.forget(
      { operation: operation.id, driver, repository: repositoryName(scope) },
      scope.context.signal,
    );
  }
  if (world && operation.stage !== "Committed") {
    await scope.dependencies.worldWriter.abandon(refOf(world), operation.id, scope.context.signal);
  }
}
