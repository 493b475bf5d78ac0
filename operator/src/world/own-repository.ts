/** Where a World's versions live: written down before the first byte goes there. */
import { Terminal } from "../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { isRepositoryOf, worldRepository } from "../registry/installation.ts";
import type { WorldScope } from "./scope.ts";
import { statusOf, WORLD_FINALIZER } from "./status-writer.ts";

/** Writes where the World's versions will live, before the first byte goes there. */
export async function recordRepository(scope: WorldScope): Promise<PhaseResult> {
  const { metadata, status } = scope.world;
  const isGoing = metadata.deletionTimestamp !== undefined && !metadata.finalizers?.includes(WORLD_FINALIZER);
  const found = status?.repository;
  if ((found !== undefined && isRepositoryOf(found, ownerOf(scope))) || isGoing) return CONTINUE;
  const { registry, writer, announce } = scope.dependencies;
  const repository = registry.asWeNameIt(worldRepository(registry.prefix, ownerOf(scope)));
  scope.world = await writer.summarise(scope.world, { repository }, scope.context.signal);
  if (found === undefined) return CONTINUE;
  announce(
    { kind: "World", object: scope.world },
    {
      type: "Warning",
      reason: "ForeignRepository",
      action: "Mend",
      message: `status.repository was ${found}, which is not of this World; it is ${repository} again`,
    },
  );
  return CONTINUE;
}

const ownerOf = ({ dependencies, ref }: WorldScope) => ({
  installation: dependencies.installation,
  namespace: ref.namespace,
  world: ref.name,
  uid: ref.uid,
});

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
  if (!isRepositoryOf(repository, ownerOf(scope))) {
    throw new Terminal("ForeignRepository", {
      message: `status.repository is ${repository}, which is not of this World`,
      remediation: "remove status.repository; find out who has the right to worlds/status",
    });
  }
  return repository.slice(prefix.length);
}
