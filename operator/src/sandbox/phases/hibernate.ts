/**
 * A session's filesystem becomes a version: frozen → captured → uploaded → reserved → manifested → verified → committed.
 * The same phase serves a snapshot of a running session and every ending (deadline, close, delete, mode, crash). Each stage
 * is written before the next begins and may be repeated; a later process goes on from the stage it finds.
 */
import { randomUUID } from "node:crypto";
import { CONSISTENCIES, clip, LIMITS, type SandboxOperation } from "@agentworlds/crds";
import { isConflict } from "../../kube/errors.ts";
import { Overtaken, Waiting } from "../../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { wordsOf } from "../../reconciler/words-of.ts";
import type { ObservedCompute } from "../../runtime/contract.ts";
import type { CaptureRequest, UploadedCapture } from "../../snapshot/contract.ts";
import { descriptionInForce } from "../../world/description.ts";
import { WorldGone } from "../../world/status-writer.ts";
import { dropCapture } from "../capture.ts";
import { isToBeRescued, LONGEST_BACKOFF_MS, snapshotBackoffMs } from "../deadline.ts";
import { holdIfFree } from "../hold.ts";
import { HookFailed } from "../hook.ts";
import { isPastCapture, openRequests } from "../judge.ts";
import { causeOf, currentOperation, OperationLost, recordStage } from "../operation.ts";
import { publishedFields, publishOperation } from "../publish-operation.ts";
import { isAlive, quiesce } from "../quiesce.ts";
import { isoNow, recordProgress } from "../record.ts";
import { answer } from "../requests.ts";
import { isDeletionOverdue, rescue } from "../rescue.ts";
import type { SandboxScope } from "../scope.ts";
import { captureOwner, repositoryName } from "../world-of.ts";
import { intend } from "./intend.ts";
import { thawLeftover } from "./provision.ts";

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
  const waitMs = isDeletionOverdue(scope) ? 0 : msUntilRetry(operation, scope.context.clock.now());
  if (waitMs > 0) {
    if (operation.verb === "Snapshot") await thawWaiting(scope, operation);
    throw snapshotFailed(operation, waitMs);
  }
  try {
    await takeStages(scope);
    return CONTINUE;
  } catch (error) {
    if (scope.context.signal.aborted) throw error;
    return handleFailure(scope, error);
  }
}

/** An attempt that took the whole pass is a failed one: else a call that hangs would be repeated for ever. */
export async function endCutOffAttempt(scope: SandboxScope, error: unknown): Promise<void> {
  if (scope.sandbox.status?.operation) await handleFailure(scope, error);
}

/** Never longer than the longest back-off: a clock that was set back must not put the retry off for hours. */
function msUntilRetry({ retryAt }: SandboxOperation, now: number): number {
  return retryAt === undefined ? 0 : Math.min(Date.parse(retryAt) - now, LONGEST_BACKOFF_MS);
}

/** A throwaway session has no World to publish to, one below head may not publish over it, one on a full version cannot. */
async function refuseSnapshots(scope: SandboxScope): Promise<void> {
  const asked = openRequests(scope.sandbox, "Snapshot");
  if (asked.length === 0) return;
  await recordProgress(scope, (sandbox) => ({
    requests: answer(sandbox, asked, {
      outcome: "Refused",
      code: "NothingIsSaved",
      message:
        "this session saves nothing: it runs a throwaway image, a version below head, or one with as many layers as can be booted",
      at: isoNow(scope),
    }),
  }));
}

async function takeStages(scope: SandboxScope): Promise<void> {
  const { driver, observed } = scope;
  const compute = scope.sandbox.status?.compute;
  if (!driver || !compute) throw new OperationLost("nothing to capture from");
  const { snapshots } = scope.dependencies;
  const { signal } = scope.context;
  const operation = currentOperation(scope);
  const owner = captureOwner(scope);
  const capture = { operation: operation.id, driver, computeId: compute.id, owner, repository: repositoryName(scope) };
  const isThere = isAlive(observed) || observed?.state === "Exited";

  const isOutdated = needsCapture(operation) || (isThere && hasRunOn(operation, observed));
  if (isOutdated || (isThere && !(await isStillCaptured(scope, operation)))) {
    // The session may have run on since an earlier try: a capture that is already there is adopted only where it stood still.
    const stoodStill = observed?.state !== "Running" && operation.consistency !== CONSISTENCIES.Fuzzy;
    const isFresh = operation.stage === "Frozen" && stoodStill;
    if (!isFresh && (await snapshots.forgetCapture(capture, signal)) === "Foreign") await renameOperation(scope);
    await quiesce(scope, driver);
    await snapshots.capture(capture, signal);
    // What a retry must repeat to the letter is written down with the capture.
    await recordStage(scope, {
      stage: "Captured",
      description: operation.description ?? (scope.world ? descriptionInForce(scope.world) : ""),
    });
  }
  // The work is in the capture: a session that goes on need not wait for the upload.
  if (operation.verb === "Snapshot" && isAlive(scope.observed)) await driver.thaw(compute.id, signal);
  const uploaded = await upload(scope, capture);
  if (currentOperation(scope).stage === "Captured") await recordStage(scope, { stage: "Uploaded" });
  // It may have been taken away since this pass began.
  if (scope.world) await holdIfFree(scope);
  const published = await publishOperation(scope, { uploaded, repository: capture.repository });
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
      causedBy: causeOf(scope),
    },
  );
}

/**
 * An ending's capture must be of a container that stands still from then on: somebody may have thawed or started it since, and
 * an older operator let the processes of a host that cannot freeze run on.
 */
const hasRunOn = ({ verb, consistency }: SandboxOperation, observed: ObservedCompute | undefined): boolean =>
  verb !== "Snapshot" && (observed?.state === "Running" || consistency === CONSISTENCIES.Fuzzy);

/** A stage that is not known, of a newer operator, is none: what it may have left is found by the operation's id. */
const needsCapture = ({ stage }: SandboxOperation): boolean => !isPastCapture(stage);

/** Where container and capture are gone, what had been uploaded before is all there is. */
async function upload(scope: SandboxScope, capture: CaptureRequest): Promise<UploadedCapture> {
  const { snapshots } = scope.dependencies;
  const { signal } = scope.context;
  const isOnlyCopy = scope.observed?.state === "Absent";
  if (!isOnlyCopy || (await isStillCaptured(scope, currentOperation(scope)))) return snapshots.upload(capture, signal);
  const uploaded = await snapshots.uploaded(capture, signal);
  if (!uploaded) throw new OperationLost(`container and capture of operation ${capture.operation} are gone`);
  return uploaded;
}

/** Somebody may have cleaned the host's images up; as long as the container is there, the work can be captured anew. */
function isStillCaptured(scope: SandboxScope, { id }: SandboxOperation): Promise<boolean> {
  const { dependencies, driver, context } = scope;
  if (!driver) throw new OperationLost("nothing to capture from");
  return dependencies.snapshots.isCaptured({ operation: id, driver, owner: captureOwner(scope) }, context.signal);
}

/** The id is that of another session's capture: somebody wrote it into status. Under it nothing of this one could be captured. */
async function renameOperation(scope: SandboxScope): Promise<never> {
  const { id } = currentOperation(scope);
  await recordStage(scope, { id: randomUUID(), stage: "Intended" });
  throw new OperationLost(`operation ${id} is another session's`);
}

/** A snapshot of a running session gives up after this many attempts; an ending becomes a rescue and goes on trying. */
const MOST_SNAPSHOT_ATTEMPTS = 5;

async function handleFailure(scope: SandboxScope, error: unknown): Promise<PhaseResult> {
  if (isConflict(error) || error instanceof Overtaken || error instanceof OperationLost) throw error;
  if (error instanceof WorldGone || isDeletionOverdue(scope)) {
    await rescue(scope, wordsOf(error));
    return CONTINUE;
  }
  if (error instanceof HookFailed) {
    await giveSnapshotUp(scope, { ...currentOperation(scope), lastError: error.message }, error.name);
    return CONTINUE;
  }
  const attempts = currentOperation(scope).attempts + 1;
  const waitMs = snapshotBackoffMs(attempts);
  await recordStage(scope, {
    attempts,
    lastError: clip(wordsOf(error), LIMITS.message),
    retryAt: new Date(scope.context.clock.now() + waitMs).toISOString(),
  });
  const operation = currentOperation(scope);
  if (isToBeRescued(operation, scope.context.clock.now(), scope.dependencies.limits.rescueAfterMs)) {
    await rescue(scope, wordsOf(error));
    return CONTINUE;
  }
  const isOnlyCopy = scope.observed?.state === "Absent";
  if (operation.verb === "Snapshot" && attempts >= MOST_SNAPSHOT_ATTEMPTS && !isOnlyCopy) {
    await giveSnapshotUp(scope, operation);
    return CONTINUE;
  }
  if (operation.verb === "Snapshot" && operation.stage === "Frozen") await thawUncaptured(scope);
  throw snapshotFailed(operation, waitMs, error);
}

const snapshotFailed = (operation: SandboxOperation, waitMs: number, cause?: unknown): Waiting =>
  new Waiting("PublishFailed", {
    message: `attempt ${operation.attempts} to publish: ${operation.lastError ?? "unknown"}`,
    remediation: "the container is kept with its work; it is tried again",
    afterMs: waitMs,
    cause,
  });

/** The host may have refused it right after the attempt. */
async function thawWaiting(scope: SandboxScope, { stage }: SandboxOperation): Promise<void> {
  if (scope.observed?.state !== "Frozen") return;
  // What is captured now would not be what stood still then.
  if (stage === "Frozen") await recordStage(scope, { stage: "Intended" });
  await thawLeftover(scope);
}

/** A session that goes on must not stand still while its snapshot waits for another attempt, which freezes it anew. */
async function thawUncaptured(scope: SandboxScope): Promise<void> {
  const compute = scope.sandbox.status?.compute;
  if (!compute || !scope.driver) return;
  await recordStage(scope, { stage: "Intended" });
  await scope.driver.thaw(compute.id, scope.context.signal);
}

/** The session goes on; whoever asked learns why there is no version. */
async function giveSnapshotUp(
  scope: SandboxScope,
  operation: SandboxOperation,
  code = "SnapshotFailed",
): Promise<void> {
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
            code,
            message: operation.lastError ?? "unknown",
            at: isoNow(scope),
          }),
        }),
  }));
}
