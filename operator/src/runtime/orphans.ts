/** What nobody accounts for is written down as a rescue, so that its time can end one day and a World can take it up. */
import type { RuntimeRescue } from "@agentworlds/crds";
import { digestInName } from "../registry/digest.ts";
import { type ComputeOwner, computeName, type ListedCapture, type ListedCompute } from "./contract.ts";
import { recordKept } from "./late-record.ts";
import { DEFAULT_RESCUE_SECONDS } from "./rescue-time.ts";
import type { SweepContext } from "./sweep-context.ts";

/** Stops it first. Returns what was written down by this call. */
export async function quarantine(sweep: SweepContext, compute: ListedCompute): Promise<RuntimeRescue | undefined> {
  const { driver, signal } = sweep;
  const { id, owner } = compute;
  if ((await driver.inspect(id, signal)).state === "Absent") return undefined;
  await driver.stop(id, signal);
  return record(sweep, compute, {
    operation: `orphan-${owner.sandboxUid}-${owner.boot}`,
    message: "no Sandbox accounts for this container; it is stopped and kept",
  });
}

/** Returns what was written down by this call. */
export const keepCapture = (sweep: SweepContext, capture: ListedCapture): Promise<RuntimeRescue | undefined> =>
  record(sweep, capture, {
    operation: capture.operation,
    capture: capture.localName,
    message: "container and Sandbox are gone, and what was captured of them is in no version; it is kept",
  });

async function record(
  sweep: SweepContext,
  { owner, image }: { readonly owner: ComputeOwner; readonly image?: string },
  facts: Pick<RuntimeRescue, "operation" | "message" | "capture">,
): Promise<RuntimeRescue | undefined> {
  const { runtime, host, driver, now, log, signal } = sweep;
  const bootedFrom = digestInName(image);
  const rescue: RuntimeRescue = {
    ...facts,
    namespace: owner.namespace,
    sandbox: { name: owner.sandbox, uid: owner.sandboxUid },
    host,
    computeId: computeName(owner),
    engine: await driver.identity(signal),
    ...(bootedFrom === undefined ? {} : { bootedFrom }),
    reason: "Orphaned",
    since: new Date(now).toISOString(),
    expiresAt: new Date(now + (runtime.spec.rescueSeconds ?? DEFAULT_RESCUE_SECONDS) * 1000).toISOString(),
  };
  if ((await recordKept(sweep, rescue)) !== "Recorded") return undefined;
  log.warn({ host, ...facts, sandbox: owner.sandbox }, "what nobody accounts for was put aside as a rescue");
  return rescue;
}
