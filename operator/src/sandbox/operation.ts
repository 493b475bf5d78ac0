/** The operation of a pass: what `status.operation` says of the snapshot or ending under way, and who is behind it. */
import type { CausedBy, SandboxOperation } from "@agentworlds/crds";
import { Overtaken } from "../reconciler/policy.ts";
import { creatorOf } from "../world/creator.ts";
import type { EndReason } from "./judge.ts";
import { recordProgress } from "./record.ts";
import type { SandboxScope } from "./scope.ts";

/** What an operation works on is gone: its container, and the capture of it. The next pass judges again. */
export class OperationLost extends Error {
  override readonly name = "OperationLost";
}

/** Somebody removed or replaced `status.operation` in the middle of it. */
export class OperationOvertaken extends Overtaken {
  override readonly name = "OperationOvertaken";
}

/** Throws `OperationOvertaken` when there is none. */
export function currentOperation(scope: SandboxScope): SandboxOperation {
  const operation = scope.sandbox.status?.operation;
  if (!operation) throw new OperationOvertaken(`Sandbox ${scope.sandbox.metadata.name} has no operation`);
  return operation;
}

/** Writes progress of the operation of this pass, and only of that one. */
export async function recordStage(scope: SandboxScope, change: Partial<SandboxOperation>): Promise<void> {
  const { id } = currentOperation(scope);
  await recordProgress(scope, ({ status }) => {
    if (status?.operation?.id !== id) throw new OperationOvertaken(`operation ${id} is not the current one any more`);
    return { operation: { ...status.operation, ...change } };
  });
}

/** What an operation of a running session is about, beside the reasons of endings. */
export const SNAPSHOT_REQUESTED = "SnapshotRequested";

/** Reasons of a version by what made it. */
const VERSION_REASONS: ReadonlyMap<string, string> = new Map<EndReason | typeof SNAPSHOT_REQUESTED, string>([
  ["DeadlinePassed", "Deadline"],
  ["LifetimePassed", "Lifetime"],
  ["CloseRequested", "Close"],
  ["SandboxDeleted", "Delete"],
  ["ModeHibernated", "Mode"],
  ["WorldDeleted", "Delete"],
  ["RuntimeDeleted", "Drain"],
  ["RuntimeCordoned", "Drain"],
  ["ContainerExited", "Crash"],
  ["OutOfMemory", "Crash"],
  ["ContainerGone", "Crash"],
  [SNAPSHOT_REQUESTED, "Snapshot"],
]);

/** An operation of a newer operator may have a reason that this one does not know; its version says so. */
export const versionReasonOf = (operation: Pick<SandboxOperation, "reason">): string =>
  VERSION_REASONS.get(operation.reason) ?? "Unknown";

/** Who asked for it; the creator of the session stands behind what nobody asked for. */
export function causeOf(scope: SandboxScope): CausedBy {
  const asked = scope.sandbox.status?.operation?.causedBy;
  const creator = creatorOf(scope.sandbox);
  return asked === undefined || asked.user === creator.user ? creator : asked;
}
