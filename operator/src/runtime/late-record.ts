/**
 * A record that a sweep makes of what it saw some calls ago. Whoever publishes the work removes what is on the host first and
 * the records last: a look after the write sees whether it came too late.
 */
import type { RuntimeRescue } from "@agentworlds/crds";
import { keepsCapture } from "./kept-work.ts";
import type { RescueOutcome } from "./rescues.ts";
import type { SweepContext } from "./sweep-context.ts";

/** `Gone`: nothing of it is on the host, and no record stays. */
export async function recordKept(sweep: SweepContext, record: RuntimeRescue): Promise<RescueOutcome | "Gone"> {
  const { rescues, runtime, signal } = sweep;
  const outcome = await rescues.record(runtime.metadata.name, record, signal);
  if (outcome !== "Recorded" || (await isOnHost(sweep, record))) return outcome;
  await rescues.forget(runtime.metadata.name, record, signal);
  return "Gone";
}

async function isOnHost({ driver, installation, signal }: SweepContext, record: RuntimeRescue): Promise<boolean> {
  if ((await driver.inspect(record.computeId, signal)).state !== "Absent") return true;
  const captures = await driver.listCaptures(installation, signal);
  return captures.some(
    (capture) =>
      keepsCapture(record, capture) && (capture.operation === record.operation || capture.localName === record.capture),
  );
}
