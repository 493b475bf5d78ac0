/** Where a World's versions live: written down before the first byte goes there. */
import { Terminal } from "../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { worldRepository } from "../registry/installation.ts";
import type { WorldScope } from "./scope.ts";
import { statusOf, WORLD_FINALIZER } from "./status-writer.ts";

/** Writes where the World's versions will live, before the first byte goes there. */
export async function recordRepository(scope: WorldScope): Promise<PhaseResult> {
  const { metadata, status } = scope.world;
  const isGoing = metadata.deletionTimestamp !== undefined && !metadata.finalizers?.includes(WORLD_FINALIZER);
  if (status?.repository || isGoing) return CONTINUE;
  const { registry, installation, writer } = scope.dependencies;
  const { namespace, name, uid } = scope.ref;
  const repository = registry.asWeNameIt(
    worldRepository(registry.prefix, { installation, namespace, world: name, uid }),
  );
  scope.world = await writer.summarise(scope.world, { repository }, scope.context.signal);
  return CONTINUE;
}

/** The World's repository without the registry's host. */
export function repositoryInRegistry(scope: WorldScope): string {
  const repository = statusOf(scope.world).repository;
  const prefix = `${scope.dependencies.registry.host}/`;
  if (!repository?.startsWith(prefix)) {
    throw new Terminal("RegistryMoved", {
      message: `the World lives in ${repository ?? "no repository"}, this installation's registry is ${scope.dependencies.registry.host}`,
      remediation: "set registry.url back to the registry that holds the World",
    });
  }
  return repository.slice(prefix.length);
}
