import { CONTINUE, type PhaseResult, requeueAfter } from "../../reconciler/reconcile.ts";
import { judgeDeadline } from "../deadline.ts";
import { drainOf } from "../drain.ts";
import { epoch } from "../judge.ts";
import type { SandboxScope } from "../scope.ts";

/** How often a running session's container is looked at, in case the host said nothing about its end. */
const LOOK_EVERY_MS = 30_000;

/** Comes back when the deadline is due; a timer that fires late or early only reads status again (DESIGN §4.4). */
export async function watchDeadline(scope: SandboxScope): Promise<PhaseResult> {
  const { status } = scope.sandbox;
  if (!status?.compute) return CONTINUE;
  const now = scope.context.clock.now();
  const verdict = judgeDeadline(
    { expiresAt: epoch(status.expiresAt), lifetimeEndsAt: epoch(status.lifetimeEndsAt) },
    now,
  );
  switch (verdict.kind) {
    case "expired":
      return requeueAfter(0);
    case "notStarted":
      return requeueAfter(LOOK_EVERY_MS);
    case "alive": {
      const untilDrainMs = Math.max(0, (drainOf(scope)?.at ?? Number.POSITIVE_INFINITY) - now);
      return requeueAfter(Math.min(verdict.wakeInMs, untilDrainMs, LOOK_EVERY_MS));
    }
  }
}
