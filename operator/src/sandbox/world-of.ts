/** The World of a pass, as the calls on it name it. */
import type { World } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import { isRepositoryOf } from "../registry/installation.ts";
import type { CaptureOwner } from "../snapshot/contract.ts";
import { WorldGone, type WorldRef } from "../world/status-writer.ts";
import type { SandboxScope } from "./scope.ts";

/** Name and UID: a World of the same name and another UID is a stranger. */
export const refOf = ({ metadata }: World): WorldRef => ({
  namespace: metadata.namespace ?? "",
  name: metadata.name,
  uid: metadata.uid,
});

/** Throws `WorldGone`: `resolveWorld` has asked the API server before it left the World out. */
export function worldRef(scope: SandboxScope): WorldRef {
  if (scope.world) return refOf(scope.world);
  throw new WorldGone(`World ${scope.sandbox.spec.world?.name} does not exist any more`);
}

/** Whose captures are this session's. */
export const captureOwner = ({ dependencies, sandbox }: SandboxScope): CaptureOwner => ({
  installation: dependencies.installation,
  namespace: sandbox.metadata.namespace ?? "",
  sandboxUid: sandbox.metadata.uid,
});

/** The World's repository without the registry's host. Throws `WorldGone`, and `Waiting` when the registry was moved. */
export function repositoryName(scope: SandboxScope): string {
  const { name } = worldRef(scope);
  const { host } = scope.dependencies.registry;
  const repository = scope.world?.status?.repository;
  if (repository?.startsWith(`${host}/`)) {
    demandOwnRepository(scope, repository);
    return repository.slice(host.length + 1);
  }
  throw new Waiting("RegistryMoved", {
    message: `World ${name} lives in ${repository ?? "no repository"}, this installation's registry is ${host}`,
    remediation: "set registry.url back to the registry that holds the World",
    afterMs: 60_000,
  });
}

/** Another World's images are neither booted nor published into. */
function demandOwnRepository(scope: SandboxScope, repository: string): void {
  const { namespace, name, uid } = worldRef(scope);
  const { installation } = scope.dependencies;
  if (isRepositoryOf(repository, { installation, namespace, world: name, uid })) return;
  throw new Waiting("ForeignRepository", {
    message: `status.repository of World ${name} is ${repository}, which is not that World's`,
    remediation: "the World puts it right; it is tried again",
    afterMs: 5_000,
  });
}
