/** The intent to snapshot or to end, won by compare-and-swap before anything is frozen (DESIGN §4.4, §4.5). */
import { randomUUID } from "node:crypto";
import type { Sandbox, SandboxOperation, SandboxRequest, SandboxRequestResult } from "@agentworlds/crds";
import { askedBy } from "../../world/creator.ts";
import type { PublishedVersion } from "../../world/publication.ts";
import { BOOT_TIMED_OUT, whyNotReady } from "../boot-limit.ts";
import { dropCapture } from "../capture.ts";
import { openRequests, type SessionGoal } from "../judge.ts";
import { causeOf, SNAPSHOT_REQUESTED } from "../operation.ts";
import { committedBy, missedVersion, publishedFields } from "../publish-operation.ts";
import { isoNow, recordIntent, recordProgress } from "../record.ts";
import { answer } from "../requests.ts";
import type { SandboxScope } from "../scope.ts";
import { deriveSandboxStatus } from "../status.ts";

type OperationGoal = Extract<SessionGoal, { kind: "end" | "snapshot" }>;

/** A touch that came first has moved the object and wins; what it found is judged again. */
export async function intend(scope: SandboxScope, goal: OperationGoal): Promise<void> {
  const current = scope.sandbox.status?.operation;
  if (!current || overrules(goal, current)) await recordOperation(scope, goal, current);
  await dropSuperseded(scope);
}

/** An ending overrules a snapshot that fails; a close that discards overrules a hibernation that fails. */
function overrules(goal: OperationGoal, current: SandboxOperation): boolean {
  if (goal.kind !== "end") return false;
  if (current.verb === "Snapshot") return true;
  return current.verb === "Hibernate" && current.outcome !== "Discard" && goal.verb === "Close" && goal.discard;
}

async function recordOperation(
  scope: SandboxScope,
  goal: OperationGoal,
  current: SandboxOperation | undefined,
): Promise<void> {
  // A snapshot that failed may have been captured before the last work: an ending captures anew. What it committed before
  // it failed is what the ending builds on.
  const committed = current && (await committedBy(scope, current.id));
  const published = committed ?? (await missedVersion(scope));
  const request = requestBehind(scope, goal);
  const description = request?.parameters?.description;
  const operation: SandboxOperation = {
    id: randomUUID(),
    verb: goal.kind === "snapshot" ? "Snapshot" : goal.verb,
    reason: goal.kind === "snapshot" ? SNAPSHOT_REQUESTED : goal.reason,
    stage: "Intended",
    outcome: goal.kind === "end" && goal.discard ? "Discard" : "Snapshot",
    since: isoNow(scope),
    attempts: 0,
    ...(goal.kind === "end" && goal.reason === BOOT_TIMED_OUT ? { lastError: whyNotReady(scope.sandbox.status) } : {}),
    ...(current ? { supersedes: current.id } : {}),
    ...(request ? { request: request.id, causedBy: askedBy(request.user, scope.sandbox) } : {}),
    ...(description === undefined ? {} : { description }),
  };
  const { status } = scope.sandbox;
  // Whoever looks from now on sees a session that ends, not one that is Ready until all is over.
  const shown = goal.kind === "end" ? showing({ ...scope.sandbox, status: { ...status, operation } }, scope) : {};
  await recordIntent(scope, {
    operation,
    ...shown,
    ...(published ? publishedFields(scope, published) : {}),
    ...(current?.request === undefined
      ? {}
      : { requests: answer(scope.sandbox, [{ id: current.request }], outcomeOf(scope, current, committed)) }),
  });
  if (goal.kind !== "end") return;
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Normal",
      reason: "Hibernating",
      action: "Hibernate",
      message: `ends: ${goal.reason}`,
      causedBy: causeOf(scope),
    },
  );
}

const showing = (sandbox: Sandbox, { context }: SandboxScope) =>
  deriveSandboxStatus(sandbox, { failure: undefined, now: context.clock.now() });

/** A deadline that comes while a close waits is nobody's wish but the deadline's. */
function requestBehind(scope: SandboxScope, goal: OperationGoal): SandboxRequest | undefined {
  if (goal.kind === "snapshot") return goal.request;
  return goal.reason === "CloseRequested" ? openRequests(scope.sandbox, "Close")[0] : undefined;
}

/** Only after the intent: until then status says that the failed operation's capture is there, and it must be. */
async function dropSuperseded(scope: SandboxScope): Promise<void> {
  const operation = scope.sandbox.status?.operation;
  if (operation?.supersedes === undefined) return;
  await dropCapture(scope, { id: operation.supersedes, stage: "Intended" });
  await recordProgress(scope, ({ status }) => {
    if (status?.operation?.id !== operation.id) return undefined;
    const { supersedes: _, ...rest } = status.operation;
    return { operation: rest };
  });
}

/** What whoever asked learns when an ending cuts off what they asked for. */
function outcomeOf(
  scope: SandboxScope,
  operation: SandboxOperation,
  committed: PublishedVersion | undefined,
): SandboxRequestResult {
  const at = isoNow(scope);
  if (committed) return { outcome: "Succeeded", version: committed.version, digest: committed.digest, at };
  return { outcome: "Failed", code: "SnapshotFailed", message: operation.lastError ?? "the session ended first", at };
}
