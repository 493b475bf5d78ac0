import { SNAPSHOT_REQUESTED } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { judgeAnnotatedSnapshot, remembering } from "../annotated-snapshot.ts";
import { isoNow, recordIntent } from "../record.ts";
import type { SandboxScope } from "../scope.ts";

/** Request and memory are one write: no id is taken up twice, and none is remembered that was not. */
export async function takeUpSnapshot(scope: SandboxScope): Promise<PhaseResult> {
  const wish = judgeAnnotatedSnapshot(scope.sandbox, isoNow(scope));
  if (wish.kind === "None" || wish.kind === "Later") return CONTINUE;
  await recordIntent(scope, {
    snapshotsRequested: remembering(scope.sandbox, wish.id),
    ...(wish.requests ? { requests: [...wish.requests] } : {}),
  });
  if (wish.kind === "TakenUp") return CONTINUE;
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Warning",
      reason: "SnapshotNotTaken",
      action: "Snapshot",
      message: `the annotation ${SNAPSHOT_REQUESTED}: ${wish.id} makes no version: ${wish.because}`,
    },
  );
  return CONTINUE;
}
