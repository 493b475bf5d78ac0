/** When a host that does not answer counts as gone for good. A pure decision, for the host itself and for a session on it. */
import type { Runtime } from "@agentworlds/crds";

/** Also for a Runtime that does not exist any more. Longer than a reboot takes, and than a clock that jumps by an hour. */
const DEFAULT_HOST_LOSS_SECONDS = 7_200;

/** Epoch milliseconds; undefined while the host answers. */
export function hostLostAt(unreachableAt: string | undefined, runtime: Runtime | undefined): number | undefined {
  if (unreachableAt === undefined) return undefined;
  return Date.parse(unreachableAt) + (runtime?.spec.hostLossSeconds ?? DEFAULT_HOST_LOSS_SECONDS) * 1000;
}

/** Whether that time has come. */
export function isHostLost(unreachableAt: string | undefined, runtime: Runtime | undefined, now: number): boolean {
  const lostAt = hostLostAt(unreachableAt, runtime);
  return lostAt !== undefined && now >= lostAt;
}
