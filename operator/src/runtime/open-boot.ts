/**
 * Boots whose container `status.compute` does not name although there may be one: the field can be removed by hand, and an
 * etcd that was restored is older than its containers. No such container is an orphan while its Sandbox can look for it.
 */
import type { Sandbox, SandboxCompute, SandboxStatus } from "@agentworlds/crds";
import { isComputeOf } from "./contract.ts";

/** Adds and removes the right to compute: present only while compute may exist (DESIGN §4.3). */
export const SANDBOX_FINALIZER = "agentworlds.dev/sandbox";

/**
 * The container that status names, if it is this Sandbox's own: the name is made of what status cannot change, its UID. Any
 * other one is a stranger's, and status counts as naming none.
 */
export function ownCompute({ metadata, status }: Sandbox): SandboxCompute | undefined {
  const compute = status?.compute;
  return compute && isComputeOf(compute.id, { sandboxUid: metadata.uid, boot: compute.boot }) ? compute : undefined;
}

/** Status names a container that is not this Sandbox's own. */
export const namesForeignCompute = (sandbox: Sandbox): boolean =>
  sandbox.status?.compute !== undefined && ownCompute(sandbox) === undefined;

/** Boots up to this one have come to an end that is written down. */
export const lastEndedBoot = ({ status }: Sandbox): number => status?.lastEnding?.boot ?? 0;

/** A boot began, and status says neither where it runs nor how it ended. */
export const isBootUnaccounted = (sandbox: Sandbox): boolean =>
  !ownCompute(sandbox) && (sandbox.status?.boot ?? 0) > lastEndedBoot(sandbox);

/** No boot was Ready yet, so `spec.world.version` still decides: those there were have been given up. */
export const isFirstBoot = ({ boot = 0, failedBoots = 0 }: Partial<SandboxStatus>): boolean => boot === failedBoots;

/** Whether there may be a container that status does not name. False for every session that ended in order. */
export const mayHaveUnnamedCompute = (sandbox: Sandbox): boolean =>
  !ownCompute(sandbox) &&
  (isBootUnaccounted(sandbox) || sandbox.metadata.finalizers?.includes(SANDBOX_FINALIZER) === true);
