/**
 * A session's filesystem becomes a version: frozen → captured → uploaded → reserved → manifested → verified → committed.
 * The same phase serves a snapshot of a running session and every ending (deadline, close, delete, mode, crash). Each stage
 * is written before the next begins and may be repeated; a later process goes on from the stage it finds.
 */
import { randomUUID } from "node:crypto";
import type { SandboxOperation, SandboxRequestResult } from "@agentworlds/crds";
import { clip, LIMITS } from "@agentworlds/crds";
import { isConflict } from "../../kube/errors.ts";
import { Waiting } from "../../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { creatorOf } from "../../world/creator.ts";
import { WorldGone } from "../../world/status-writer.ts";
import { snapshotBackoffMs } from "../deadline.ts";
import { type EndReason, openRequests, type SessionGoal } from "../judge.ts";
import { committedVersion, type PublishedVersion, publishVersion } from "../publication.ts";
import { isoNow, recordIntent, recordProgress } from "../record.ts";
import { answer } from "../requests.ts";
import { isDeletionOverdue, rescue } from "../rescue.ts";
import type { SandboxScope } from "../scope.ts";

export async function hibernate(scope: SandboxScope): Promise<PhaseResult> {
  const { goal } = scope;
  if (goal.kind === "run" && scope.savesNothing) await refuseSnapshots(scope);
  if (goal.kind !== "end" && goal.kind !== "snapshot") return CONTINUE;
  await intend(scope, goal);
  const operation = currentOperation(scope);
  if (operation.stage === "Committed" || operation.stage === "Discarded") return CONTINUE;
  if (operation.outcome === "Discard") {
    await recordStage(scope, { stage: "Discarded" });
    return CONTINUE;
  }
  const waitMs = operation.retryAt === undefined ? 0 : Date.parse(operation.retryAt) - scope.context.clock.now();
  if (waitMs > 0) throw snapshotFailed(operation, waitMs);
  try {
    await takeStages(scope);
    return CONTINUE;
  } catch (error) {
    return handleFailure(scope, error);
  }
}

/** A throwaway session has no World to publish to, and one below head may not publish over it. */
async function refuseSnapshots(scope: SandboxScope): Promise<void> {
  const asked = openRequests(scope.sandbox, "Snapshot");
  if (asked.length === 0) return;
  await recordProgress(scope, (sandbox) => ({
    requests: answer(sandbox, asked, {
      outcome: "Refused",
      code: "NothingIsSaved",
      message: "this session saves nothing: it runs a throwaway image or a version below head",
      at: isoNow(scope),
    }),
  }));
}

/** Freezing begins only after this compare-and-swap; a touch that came first has moved the object and wins. */
async function intend(scope: SandboxScope, goal: Extract<SessionGoal, { kind: "end" | "snapshot" }>): Promise<void> {
  const current = scope.sandbox.status?.operation;
  const isEscalation = goal.kind === "end" && current !== undefined && overrules(goal, current);
  if (current && !isEscalation) return;
  // A snapshot that failed may have been captured before the last work: an ending captures anew. What it committed before
  // it failed is what the ending builds on.
  const committed = current && (await committedVersion(scope, current.id));
  if (current) await dropCapture(scope, current);
  const request = goal.kind === "snapshot" ? goal.request : openRequests(scope.sandbox, "Close")[0];
  const description = request?.parameters?.description;
  const operation: SandboxOperation = {
    id: randomUUID(),
    verb: goal.kind === "snapshot" ? "Snapshot" : goal.verb,
    reason: goal.kind === "snapshot" ? "SnapshotRequested" : goal.reason,
    stage: "Intended",
    outcome: goal.kind === "end" && goal.discard ? "Discard" : "Snapshot",
    since: isoNow(scope),
    attempts: 0,
    ...(request ? { request: request.id, causedBy: { user: request.user } } : {}),
    ...(description === undefined ? {} : { description }),
  };
  await recordIntent(scope, {
    operation,
    ...(committed ? publishedFields(scope, committed) : {}),
    ...(isEscalation && current.request !== undefined
      ? { requests: answer(scope.sandbox, [{ id: current.request }], outcomeOf(scope, current, committed)) }
      : {}),
  });
  if (goal.kind === "end") {
    scope.dependencies.announce(
      { kind: "Sandbox", object: scope.sandbox },
      { type: "Normal", reason: "Hibernating", action: "Hibernate", message: `ends: ${goal.reason}` },
    );
  }
}

/** An ending overrules a snapshot that fails; a close that discards overrules a hibernation that fails. */
function overrules(goal: Extract<SessionGoal, { kind: "end" }>, current: SandboxOperation): boolean {
  if (current.verb === "Snapshot") return true;
  return current.verb === "Hibernate" && current.outcome !== "Discard" && goal.verb === "Close" && goal.discard;
}

/** What whoever asked for a snapshot learns when the session's end cuts it off. */
function outcomeOf(
  scope: SandboxScope,
  operation: SandboxOperation,
  committed: PublishedVersion | undefined,
): SandboxRequestResult {
  const at = isoNow(scope);
  if (committed) return { outcome: "Succeeded", version: committed.version, digest: committed.digest, at };
  return { outcome: "Failed", code: "SnapshotFailed", message: operation.lastError ?? "the session ended first", at };
}

/** A version that this session made is the base of its next. */
const publishedFields = (scope: SandboxScope, { version, digest, reason }: PublishedVersion) => ({
  base: { version, digest },
  lastSnapshot: { version, digest, reason, at: isoNow(scope) },
});

/** The operation of this pass; `intend` made sure that there is one. */
export function currentOperation(scope: SandboxScope): SandboxOperation {
  const operation = scope.sandbox.status?.operation;
  if (!operation) throw new OperationLost(`Sandbox ${scope.sandbox.metadata.name} has no operation`);
  return operation;
}

/** Somebody removed `status.operation` from outside in the middle of it. The next pass judges again. */
export class OperationLost extends Error {
  override readonly name = "OperationLost";
}

async function takeStages(scope: SandboxScope): Promise<void> {
  const { driver, observed } = scope;
  const compute = scope.sandbox.status?.compute;
  if (!driver || !compute) throw new OperationLost("nothing to capture from");
  const { snapshots } = scope.dependencies;
  const { signal } = scope.context;
  const operation = currentOperation(scope);
  const capture = { operation: operation.id, driver, computeId: compute.id, repository: repositoryName(scope) };
  const isAlive = observed?.state === "Running" || observed?.state === "Frozen";

  if (operation.stage === "Intended" || operation.stage === "Frozen") {
    if (isAlive) await driver.freeze(compute.id, signal);
    await recordStage(scope, { stage: "Frozen" });
    await snapshots.capture(capture, signal);
    await recordStage(scope, { stage: "Captured", consistency: isAlive ? "Frozen" : "Crash" });
  }
  // The work is in the capture: a session that goes on need not wait for the upload.
  if (operation.verb === "Snapshot" && isAlive) await driver.thaw(compute.id, signal);
  const uploaded = await snapshots.upload(capture, signal);
  if (currentOperation(scope).stage === "Captured") await recordStage(scope, { stage: "Uploaded" });
  const published = await publishVersion(scope, {
    uploaded,
    repository: capture.repository,
    consistency: currentOperation(scope).consistency ?? "Crash",
    onStage: (stage) => recordStage(scope, { stage }),
  });
  await recordProgress(scope, ({ status }) =>
    status?.operation
      ? {
          operation: { ...status.operation, stage: "Committed", version: published.version, digest: published.digest },
          ...publishedFields(scope, published),
        }
      : undefined,
  );
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Normal",
      reason: "Snapshotted",
      action: "Publish",
      message: `version ${published.version} is ${published.digest}`,
    },
  );
}

/** Writes progress of the operation of this pass, and only of that one. */
async function recordStage(scope: SandboxScope, change: Partial<SandboxOperation>): Promise<void> {
  const { id } = currentOperation(scope);
  await recordProgress(scope, ({ status }) => {
    if (status?.operation?.id !== id) throw new OperationLost(`operation ${id} is not the current one any more`);
    return { operation: { ...status.operation, ...change } };
  });
}

/** A snapshot of a running session gives up after this many attempts; an ending never does. */
const MOST_SNAPSHOT_ATTEMPTS = 5;

async function handleFailure(scope: SandboxScope, error: unknown): Promise<PhaseResult> {
  if (scope.context.signal.aborted || isConflict(error) || error instanceof OperationLost) throw error;
  if (error instanceof WorldGone || isDeletionOverdue(scope)) {
    await rescue(scope, describe(error));
    return CONTINUE;
  }
  const attempts = currentOperation(scope).attempts + 1;
  const waitMs = snapshotBackoffMs(attempts);
  await recordStage(scope, {
    attempts,
    lastError: clip(describe(error), LIMITS.message),
    retryAt: new Date(scope.context.clock.now() + waitMs).toISOString(),
  });
  const operation = currentOperation(scope);
  const isOnlyCopy = scope.observed?.state === "Absent";
  if (operation.verb === "Snapshot" && attempts >= MOST_SNAPSHOT_ATTEMPTS && !isOnlyCopy) {
    await giveSnapshotUp(scope, operation);
    return CONTINUE;
  }
  throw snapshotFailed(operation, waitMs, error);
}

const snapshotFailed = (operation: SandboxOperation, waitMs: number, cause?: unknown): Waiting =>
  new Waiting("SnapshotFailed", {
    message: `attempt ${operation.attempts} to publish: ${operation.lastError ?? "unknown"}`,
    remediation: "the container is kept with its work; it is tried again",
    afterMs: waitMs,
    cause,
  });

/** The session goes on; whoever asked learns why there is no version. */
async function giveSnapshotUp(scope: SandboxScope, operation: SandboxOperation): Promise<void> {
  const compute = scope.sandbox.status?.compute;
  if (compute && scope.driver) await scope.driver.thaw(compute.id, scope.context.signal);
  await dropCapture(scope, operation);
  await recordProgress(scope, (sandbox) => ({
    operation: null,
    ...(operation.request === undefined
      ? {}
      : {
          requests: answer(sandbox, [{ id: operation.request }], {
            outcome: "Failed",
            code: "SnapshotFailed",
            message: operation.lastError ?? "unknown",
            at: isoNow(scope),
          }),
        }),
  }));
}

/** Drops what an operation left on its host and in the registry, and its reservation. */
export async function dropCapture(scope: SandboxScope, operation: SandboxOperation): Promise<void> {
  const { driver, world } = scope;
  // Without its World there is no repository to look into, and nobody is kept waiting for it.
  if (driver && world) {
    await scope.dependencies.snapshots.forget(
      { operation: operation.id, driver, repository: repositoryName(scope) },
      scope.context.signal,
    );
  }
  if (world && operation.stage !== "Committed") {
    const ref = { namespace: world.metadata.namespace ?? "", name: world.metadata.name, uid: world.metadata.uid };
    await scope.dependencies.worldWriter.abandon(ref, operation.id, scope.context.signal);
  }
}

/** The World's repository without the registry's host; the name is frozen in status. */
export function repositoryName(scope: SandboxScope): string {
  const repository = scope.world?.status?.repository;
  const prefix = `${scope.dependencies.registry.host}/`;
  if (!repository?.startsWith(prefix)) {
    throw new WorldGone(`World ${scope.sandbox.spec.world?.name} has no repository in ${prefix}`);
  }
  return repository.slice(prefix.length);
}

/** Reasons of a version by what ended the session. */
export const VERSION_REASON_OF: Readonly<Record<EndReason | "SnapshotRequested", string>> = {
  DeadlinePassed: "Deadline",
  LifetimePassed: "Lifetime",
  CloseRequested: "Close",
  SandboxDeleted: "Delete",
  ModeHibernated: "Mode",
  WorldDeleted: "Delete",
  ContainerExited: "Crash",
  OutOfMemory: "Crash",
  SnapshotRequested: "Snapshot",
};

/** The creator of the session stands behind a version that nobody asked for. */
export const causeOf = (scope: SandboxScope) => {
  const asked = scope.sandbox.status?.operation?.causedBy;
  const creator = creatorOf(scope.sandbox);
  return asked === undefined || asked.user === creator.user ? creator : asked;
};

const describe = (error: unknown): string => (error instanceof Error ? error.message : String(error));
