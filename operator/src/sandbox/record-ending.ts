/**
 * How a boot ended, and the conditions that say so, in one write. The deferred write of a pass is too late for them: an
 * operator that dies before it leaves lost work without a condition, and where a deletion comes next none is written at all.
 */
import type { Sandbox, SandboxStatus } from "@agentworlds/crds";
import { failedBootsAfter } from "./boot-limit.ts";
import { recordProgress, type SandboxStatusPatch } from "./record.ts";
import type { SandboxScope } from "./scope.ts";
import { deriveSandboxStatus } from "./status.ts";

/** As `recordProgress`, for a patch that sets `lastEnding`. */
export async function recordEnding(
  scope: SandboxScope,
  patch: (sandbox: Sandbox) => SandboxStatusPatch,
): Promise<void> {
  await recordProgress(scope, (sandbox) => {
    const fields = { failedBoots: failedBootsAfter(sandbox.status), ...patch(sandbox) };
    const ended = { ...sandbox, status: patched(sandbox.status, fields) };
    const findings = { failure: undefined, now: scope.context.clock.now() };
    const { conditions = [], phase = null } = deriveSandboxStatus(ended, findings);
    return { ...fields, conditions, phase };
  });
}

function patched(status: SandboxStatus, fields: SandboxStatusPatch): SandboxStatus {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  const { observedGeneration } = status;
  const merged = Object.entries({ ...status, ...Object.fromEntries(given) }).filter(([, value]) => value !== null);
  return { observedGeneration, ...Object.fromEntries(merged) };
}
