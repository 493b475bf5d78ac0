/** The World's passes over the work that is kept for it. */
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";
import { adoptRescues } from "./adopt.ts";
import { answerRequest, openRequests } from "./requests.ts";
import { tendRescue } from "./tend.ts";

/** Requests first, because somebody waits; then each rescue that nobody asked about takes its own next step. */
export async function tendRescues(scope: WorldScope): Promise<PhaseResult> {
  await adoptRescues(scope);
  if (openRequests(scope).length === 0 && (statusOf(scope.world).rescues ?? []).length === 0) return CONTINUE;
  await refresh(scope);
  const asked = openRequests(scope);
  for (const request of asked) {
    await answerRequest(scope, request);
    await refresh(scope);
  }
  const answered = new Set(asked.map((request) => request.parameters.operation));
  for (const { operation } of statusOf(scope.world).rescues ?? []) {
    // As it is now: what became of the one before may have moved head.
    const rescue = statusOf(scope.world).rescues?.find((one) => one.operation === operation);
    if (!rescue || answered.has(operation)) continue;
    const tended = await tendRescue(scope, rescue);
    if (tended.kind === "kept") scope.rescueDueMs = Math.min(scope.rescueDueMs ?? tended.ms, tended.ms);
    else await refresh(scope);
  }
  return CONTINUE;
}

async function refresh(scope: WorldScope): Promise<void> {
  scope.world = await scope.dependencies.writer.read(scope.ref, scope.context.signal);
}
