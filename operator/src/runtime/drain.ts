/** A Runtime that gives its sessions up, because it is deleted or cordoned: by when they hibernate. A pure decision. */
import type { Runtime } from "@agentworlds/crds";

export interface Drain {
  readonly reason: "RuntimeDeleted" | "RuntimeCordoned";
  /** Epoch milliseconds; from then on its sessions hibernate. */
  readonly at: number;
}

export const DEFAULT_DRAIN_SECONDS = 300;

/**
 * A deletion is due at once. A cordon is due after `drainSeconds`, counted from when it was recorded, so that no restart of
 * the operator begins anew; one that is not recorded yet is not due.
 */
export function drainOf(runtime: Runtime | undefined): Drain | undefined {
  if (runtime === undefined) return undefined;
  const { metadata, spec, status } = runtime;
  if (metadata.deletionTimestamp !== undefined) {
    return { reason: "RuntimeDeleted", at: Date.parse(metadata.deletionTimestamp) };
  }
  const cordonedAt = status?.cordonedAt;
  if (spec.scheduling !== "Cordoned" || cordonedAt === undefined) return undefined;
  return {
    reason: "RuntimeCordoned",
    at: Date.parse(cordonedAt) + (spec.drainSeconds ?? DEFAULT_DRAIN_SECONDS) * 1000,
  };
}
