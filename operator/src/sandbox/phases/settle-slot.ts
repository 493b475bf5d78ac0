/**
 * The slot of a boot whose record had no answer. As long as nobody knows whether it was recorded it counts; a session that does
 * not go on with the boot, because its mode was changed say, would never be asked again and keep the slot for ever.
 */
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { readSame } from "../record.ts";
import type { SandboxScope } from "../scope.ts";

export async function settleSlot(scope: SandboxScope): Promise<PhaseResult> {
  const { admission } = scope.dependencies;
  const { uid } = scope.sandbox.metadata;
  const boot = admission.bootGiven(uid);
  if (boot === undefined || (scope.sandbox.status?.boot ?? 0) >= boot) return CONTINUE;
  const { status } = await readSame(scope);
  // One that is recorded after all counts by itself, as soon as the cache shows it.
  if ((status?.boot ?? 0) < boot) admission.takeBack(uid);
  return CONTINUE;
}
