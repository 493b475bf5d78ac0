/**
 * The end of a reservation that nobody will commit: left over, or written by hand. Never by a time, only by proof: an operation
 * is in its Sandbox's status before it reserves and until it is over, and afterwards in a rescue or nowhere. A number that was
 * reserved stays used.
 */
import type { Sandbox, WorldPending } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { genesisOperation } from "./genesis.ts";
import { dropPushedCapture } from "./pushed-capture.ts";
import { isRescued } from "./rescue/named.ts";
import type { WorldScope } from "./scope.ts";
import { sessionsThenWorld } from "./sessions.ts";
import { statusOf } from "./status-writer.ts";

export async function endDeadReservation(scope: WorldScope): Promise<PhaseResult> {
  const { sandboxes, writer, announce } = scope.dependencies;
  const { signal } = scope.context;
  if (isAlive(scope, sandboxes.list())) return CONTINUE;
  // The World before the Sandboxes: whatever has reserved by then is in the status of its Sandbox.
  const { pending } = statusOf(await writer.read(scope.ref, signal));
  const sessions = await sessionsThenWorld(scope);
  const { pending: still, holder } = statusOf(scope.world);
  if (!pending || still?.operation !== pending.operation || isAlive(scope, sessions)) return CONTINUE;
  // What a holder that is gone had pushed may be the only copy of its work: judged with its hold.
  if (holder && holder.uid === pending.sandbox?.uid && !sessions.some(({ metadata }) => metadata.uid === holder.uid)) {
    return CONTINUE;
  }
  await dropPushedCapture(scope, pending.operation);
  await writer.abandon(scope.ref, pending.operation, signal);
  scope.world = await writer.read(scope.ref, signal);
  announce(
    { kind: "World", object: scope.world },
    {
      type: "Warning",
      reason: "ReservationAbandoned",
      action: "Abandon",
      message: `version ${pending.version} was reserved by operation ${pending.operation}${ofSession(pending)}, and neither a Sandbox nor a rescue works on it: the number stays unused`,
    },
  );
  return CONTINUE;
}

const ofSession = ({ sandbox }: WorldPending): string => (sandbox ? ` of Sandbox ${sandbox.name}` : "");

/** Nothing is reserved, or somebody will commit it or give it up. */
function isAlive(scope: WorldScope, sandboxes: readonly Sandbox[]): boolean {
  const { pending, head } = statusOf(scope.world);
  if (!pending) return true;
  if (pending.operation === genesisOperation(scope.world)) return !head;
  return (
    sandboxes.some((sandbox) => sandbox.status?.operation?.id === pending.operation) ||
    isRescued(scope, pending.operation)
  );
}
