/** The end of a Sandbox's hold on its World. */
import type { SandboxScope } from "./scope.ts";

/**
 * Ends the hold of exactly this Sandbox; the caller has made sure that no compute and no unpublished work of it exists
 * (DESIGN §4.2). The World is read fresh, by name: the cache may not show a hold that was taken a moment ago. A hold of another
 * Sandbox, no hold and no World are a success.
 */
export async function letGoOfWorld(scope: SandboxScope): Promise<void> {
  const { metadata, spec } = scope.sandbox;
  if (!spec.world) return;
  await scope.dependencies.worldWriter.letGo(
    { namespace: metadata.namespace ?? "", name: spec.world.name },
    metadata.uid,
    scope.context.signal,
  );
}
