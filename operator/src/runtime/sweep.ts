/**
 * Containers that no Sandbox accounts for. They may hold unpublished work, so they are stopped, written down as a rescue, and
 * removed only after the Runtime's `rescueSeconds` (DESIGN §4.3).
 */
import type { Runtime, RuntimeRescue, Sandbox } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import type { Log } from "../reconciler/log.ts";
import type { ListedCompute, RuntimeDriver } from "./contract.ts";
import type { RuntimeRescues } from "./rescues.ts";

export interface SweepContext {
  readonly runtime: Runtime;
  readonly host: string;
  readonly driver: RuntimeDriver;
  readonly installation: string;
  readonly sandboxes: ResourceClient<Sandbox>;
  readonly rescues: RuntimeRescues;
  readonly now: number;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Quarantines what is an orphan on one host, and removes rescues whose time is over. Returns the rescues that are over. */
export async function sweepHost(sweep: SweepContext): Promise<readonly RuntimeRescue[]> {
  const { runtime, host, driver, signal } = sweep;
  const kept = (runtime.status?.rescues ?? []).filter((rescue) => rescue.host === host);
  for (const compute of await driver.list(sweep.installation, signal)) {
    if (kept.some((rescue) => rescue.computeId === compute.id)) continue;
    if (!(await isAccountedFor(sweep, compute))) await quarantine(sweep, compute);
  }
  const over = kept.filter((rescue) => isOver(rescue, runtime, sweep.now));
  for (const rescue of over) {
    signal.throwIfAborted();
    await driver.remove(rescue.computeId, signal);
    sweep.log.warn(
      { host, computeId: rescue.computeId, operation: rescue.operation },
      "rescued work was removed: its time is over",
    );
  }
  return over;
}

const isOver = (rescue: RuntimeRescue, runtime: Runtime, now: number): boolean =>
  now >= Date.parse(rescue.since) + (runtime.spec.rescueSeconds ?? 86_400) * 1000;

/**
 * A fresh read decides, not the cache: intent is recorded before a container is made, so a container that was listed and is
 * not in its Sandbox's status now belongs to nobody.
 */
async function isAccountedFor(sweep: SweepContext, { owner, id }: ListedCompute): Promise<boolean> {
  try {
    const sandbox = await sweep.sandboxes.get(
      { namespace: owner.namespace, name: owner.sandbox },
      { signal: sweep.signal },
    );
    return sandbox.metadata.uid === owner.sandboxUid && sandbox.status?.compute?.id === id;
  } catch (error) {
    if (isNotFound(error)) return false;
    throw error;
  }
}

async function quarantine(sweep: SweepContext, { owner, id }: ListedCompute): Promise<void> {
  const { driver, signal } = sweep;
  if ((await driver.inspect(id, signal)).state === "Absent") return;
  await driver.stop(id, signal);
  await sweep.rescues.record(
    sweep.runtime.metadata.name,
    {
      operation: `orphan-${owner.sandboxUid}-${owner.boot}`,
      namespace: owner.namespace,
      sandbox: { name: owner.sandbox, uid: owner.sandboxUid },
      host: sweep.host,
      computeId: id,
      reason: "Orphaned",
      message: "no Sandbox accounts for this container; it is stopped and kept",
      since: new Date(sweep.now).toISOString(),
    },
    signal,
  );
  sweep.log.warn({ host: sweep.host, computeId: id, sandbox: owner.sandbox }, "an orphaned container was quarantined");
}
