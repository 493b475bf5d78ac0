/**
 * Captures in the repository that nobody needs any more: the registry did not answer when their operation was given up. Each
 * keeps layers alive that retention thinks it has deleted.
 */
import type { Sandbox } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { operationOfTag } from "../snapshot/docker-commit.ts";
import { dropPushedCapture } from "./pushed-capture.ts";
import { isRescued } from "./rescue/named.ts";
import type { WorldScope } from "./scope.ts";
import { sessionsThenWorld } from "./sessions.ts";
import { statusOf } from "./status-writer.ts";

/** By the tags that this pass has listed. An operation is written down before its capture is pushed. */
export async function dropLeftovers(scope: WorldScope): Promise<PhaseResult> {
  const operations = (scope.tags ?? []).flatMap((tag) => operationOfTag(tag) ?? []);
  // Of a holder that is gone the captures here may be all that is left: they are judged with its hold.
  if (operations.length === 0 || scope.lostHold) return CONTINUE;
  const sessions = await sessionsThenWorld(scope);
  for (const operation of operations) {
    if (!isNeeded(scope, sessions, operation)) await dropPushedCapture(scope, operation);
  }
  return CONTINUE;
}

/** Whether anybody goes on with the operation; the World of the pass is not older than the sessions. */
export function isNeeded(scope: WorldScope, sessions: readonly Sandbox[], operation: string): boolean {
  return (
    statusOf(scope.world).pending?.operation === operation ||
    isRescued(scope, operation) ||
    sessions.some(({ status }) => status?.operation?.id === operation || status?.operation?.supersedes === operation)
  );
}
