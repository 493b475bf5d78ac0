/** After the version was read back (or the work was discarded as asked): compute goes, the hold ends, the books are closed. */
import { randomUUID } from "node:crypto";
import type { SandboxOperation, SandboxRequest, SandboxRequestResult, VersionPointer } from "@agentworlds/crds";
import { isNotFound } from "../../kube/errors.ts";
import { Waiting } from "../../reconciler/policy.ts";
import { CONTINUE, type PhaseResult, requeueAfter } from "../../reconciler/reconcile.ts";
import { SANDBOX_FINALIZER } from "../../runtime/open-boot.ts";
import { versionTag } from "../../snapshot/publish.ts";
import type { PublishedVersion } from "../../world/publication.ts";
import { BOOT_TIMED_OUT, failedBoot } from "../boot-limit.ts";
import { dropCapture } from "../capture.ts";
import { letGoOfWorld } from "../hold.ts";
import { type EndReason, openRequests } from "../judge.ts";
import { recordStage } from "../operation.ts";
import { committedBy, isInRegistry, isUsedUp, missedVersion, publishedFields } from "../publish-operation.ts";
import {
  demandSameBoot,
  isoNow,
  readSame,
  recordFinalizer,
  recordIntent,
  recordProgress,
  type SandboxStatusPatch,
} from "../record.ts";
import { recordEnding } from "../record-ending.ts";
import { answer, answerEnd, lastVersion } from "../requests.ts";
import { isDeletionOverdue, rescue } from "../rescue.ts";
import { isEndedBy } from "../rescued-operation.ts";
import type { SandboxScope } from "../scope.ts";

/** A host that stays silent past the deletion's deadline must not hold the namespace: what it keeps is written down. */
export async function rescueOverdue(scope: SandboxScope): Promise<PhaseResult> {
  if (scope.hostProblem !== undefined && isDeletionOverdue(scope)) await rescue(scope, scope.hostProblem);
  return CONTINUE;
}

export async function release(scope: SandboxScope): Promise<PhaseResult> {
  const operation = scope.sandbox.status?.operation;
  if (operation?.stage !== "Committed" && operation?.stage !== "Discarded") return CONTINUE;
  // What is left of an operation of a boot that has ended says nothing about the next one.
  if (!scope.sandbox.status?.compute) return CONTINUE;
  if (!scope.driver) {
    throw new Waiting("HostUnreachable", { message: scope.hostProblem ?? "the host is not known", afterMs: 10_000 });
  }
  await demandSameBoot(scope);
  if (operation.stage === "Discarded" && operation.outcome !== "Discard") {
    // Nobody asked for that: a stage alone throws no work away.
    await recordStage(scope, { stage: "Intended" });
    return requeueAfter(0);
  }
  if (operation.stage === "Committed") {
    await demandCommitted(scope, operation);
    await dropCapture(scope, operation);
  }
  if (operation.verb === "Snapshot") {
    await answerSnapshot(scope, operation);
    return CONTINUE;
  }
  const compute = scope.sandbox.status?.compute;
  if (compute) await scope.driver.remove(compute.id, scope.context.signal);
  await recordEnd(scope, operation);
  scope.goal = { kind: scope.sandbox.status?.closed ? "finished" : "asleep" };
  return CONTINUE;
}

/** The session goes on; whoever asked for the snapshot learns of its version. */
export async function answerSnapshot(scope: SandboxScope, operation: SandboxOperation): Promise<void> {
  await recordProgress(scope, (sandbox) => ({
    operation: null,
    requests: answer(sandbox, requestsServed(operation), { ...published(operation), at: isoNow(scope) }),
  }));
}

/** The boot is over and its compute is gone: the hold ends, the books are closed. */
export async function recordEnd(scope: SandboxScope, operation: SandboxOperation): Promise<void> {
  await letGoOfWorld(scope);
  await recordEnding(scope, () => endOfBoot(scope, operation));
}

/**
 * Compute goes only after its version is in the World and in the registry: status alone, which others may write too, is no proof
 * of it. An ending is proved by no snapshot that was made before it: the session has worked on since.
 */
async function demandCommitted(scope: SandboxScope, operation: SandboxOperation): Promise<void> {
  const committed = await committedBy(scope, operation.id);
  const isProven = committed !== undefined && (await provesEnd(scope, operation, committed));
  if (isProven && committed.digest === operation.digest) return;
  // What is reserved, captured and committed is found again by the id, unless that is the id of something else.
  const another = !isProven && (await isUsedUp(scope, operation.id)) ? { id: randomUUID() } : {};
  await recordStage(scope, { ...another, stage: "Intended" });
  throw new Waiting("ReservationLost", {
    message: `the World has no version of operation ${operation.id}: the work is captured anew`,
    afterMs: 1_000,
  });
}

async function provesEnd(
  scope: SandboxScope,
  operation: SandboxOperation,
  version: PublishedVersion,
): Promise<boolean> {
  const { id, verb } = operation;
  const { digest } = version;
  if (verb !== "Snapshot" && !isEndedBy(operation, version)) return false;
  // A registry that is silent holds up no deletion that is overdue.
  return isDeletionOverdue(scope) || (await isInRegistry(scope, { digest, operation: id }));
}

const requestsServed = (operation: SandboxOperation): Pick<SandboxRequest, "id">[] =>
  operation.request === undefined ? [] : [{ id: operation.request }];

const published = (operation: SandboxOperation): Omit<SandboxRequestResult, "at"> =>
  operation.digest === undefined
    ? { outcome: "Succeeded", message: "nothing was saved" }
    : {
        outcome: "Succeeded",
        digest: operation.digest,
        ...(operation.version === undefined ? {} : { version: operation.version }),
      };

function endOfBoot(scope: SandboxScope, operation: SandboxOperation): SandboxStatusPatch {
  const { sandbox } = scope;
  const at = isoNow(scope);
  const isPublished = operation.stage === "Committed";
  // A throwaway session has nothing to come back to: its end is its close.
  const isGivenUp = operation.reason === BOOT_TIMED_OUT;
  const isClosed = operation.verb === "Close" || (sandbox.spec.image !== undefined && !isGivenUp);
  const ending = versionOf(operation);
  const last = ending ?? lastVersion(sandbox);
  return {
    ...endedFields(scope, operation),
    lastEnding: {
      boot: sandbox.status?.boot ?? 0,
      reason: operation.reason,
      outcome: isPublished ? publishedOutcome(operation) : "Discarded",
      message: isPublished ? publishedMessage(operation) : (operation.lastError ?? "nothing of this boot was saved"),
      at,
      ...(isGivenUp ? failedBoot(sandbox.status, scope.context.clock.now()) : {}),
    },
    // There was work: it had been Ready, whatever is left of its clock.
    ...(isPublished ? { failedBoots: null } : {}),
    requests: answerEnd(sandbox, { isClosed, published: ending, last, at }),
    ...(isClosed ? { closed: { ...last, at } } : {}),
  };
}

/** A capture that was found without its operation may be older than the work was. */
const mayHaveWorkedOn = ({ reason }: SandboxOperation): boolean => reason === ("ContainerGone" satisfies EndReason);

const publishedOutcome = (operation: SandboxOperation) => (mayHaveWorkedOn(operation) ? "Lost" : "Published");

function publishedMessage(operation: SandboxOperation): string {
  const { version = 0, digest, hook } = operation;
  const tag = versionTag(version);
  const lost = mayHaveWorkedOn(operation) ? `; the container is gone, and work since ${tag} is lost` : "";
  return `${tag} is ${digest}${hook?.message === undefined ? "" : `; ${hook.message}`}${lost}`;
}

const versionOf = ({ version, digest }: SandboxOperation): VersionPointer | undefined =>
  digest === undefined ? undefined : { digest, ...(version === undefined ? {} : { version }) };

/** Fields of a boot that is over. */
function endedFields(scope: SandboxScope, operation: SandboxOperation | undefined): SandboxStatusPatch {
  return {
    compute: null,
    operation: null,
    expiresAt: null,
    lifetimeEndsAt: null,
    // The mode that was acted on: one that turned back to Running meanwhile is seen as a wish to wake.
    observedMode: operation?.reason === "ModeHibernated" ? "Hibernated" : scope.sandbox.spec.mode,
  };
}

/** The container is gone without having been captured: the last version stands, and nothing is pretended. */
export async function acknowledgeLoss(scope: SandboxScope): Promise<PhaseResult> {
  const { status } = scope.sandbox;
  const compute = status?.compute;
  if (scope.goal.kind !== "lost" || !compute) return CONTINUE;
  await demandSameBoot(scope);
  await recordLoss(scope, {
    boot: compute.boot,
    what: `container ${compute.id} is gone from ${compute.runtime}/${compute.host}`,
  });
  scope.goal = { kind: "asleep" };
  return CONTINUE;
}

/** The last version stands, and nothing is pretended. The caller knows that no compute of the boot is left. */
export async function recordLoss(scope: SandboxScope, lost: { boot: number; what: string }): Promise<void> {
  const { operation } = scope.sandbox.status;
  if (operation) await dropCapture(scope, operation);
  const missed = await missedVersion(scope);
  await letGoOfWorld(scope);
  const base = missed ?? scope.sandbox.status.base;
  const message = `${lost.what}; work since ${base?.version === undefined ? "the boot" : versionTag(base.version)} is lost; touch the Sandbox to boot from the World's head`;
  const at = isoNow(scope);
  await recordEnding(scope, (sandbox) => ({
    ...endedFields(scope, operation),
    ...(missed ? { ...publishedFields(scope, missed), failedBoots: null } : {}),
    lastEnding: { boot: lost.boot, reason: "ContainerGone", outcome: "Lost", message, at },
    requests: answer(sandbox, openRequests(sandbox, "Snapshot"), {
      outcome: "Failed",
      code: "ComputeLost",
      message,
      at,
    }),
  }));
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    { type: "Warning", reason: "ContainerGone", action: "Observe", message },
  );
}

/** A close of a session that does not run: its last version is the end. */
export async function closeAsleep(scope: SandboxScope): Promise<PhaseResult> {
  if (scope.goal.kind !== "closeAsleep") return CONTINUE;
  const at = isoNow(scope);
  const last = lastVersion(scope.sandbox);
  // An intent: a boot that the cache does not show must not be closed over.
  await recordIntent(scope, {
    closed: { ...last, at },
    requests: answerEnd(scope.sandbox, { isClosed: true, published: undefined, last, at }),
  });
  scope.goal = { kind: "finished" };
  return CONTINUE;
}

/** Without compute there is nothing a finalizer could protect; a closed Sandbox goes when its time is over. */
export async function cleanUp(scope: SandboxScope): Promise<PhaseResult> {
  if (scope.sandbox.status?.compute) return CONTINUE;
  const isHolder = scope.world?.status?.holder?.uid === scope.sandbox.metadata.uid;
  if (isHolder || scope.sandbox.metadata.finalizers?.includes(SANDBOX_FINALIZER)) {
    // The cache may not show a boot that is recorded: its hold is its own.
    scope.sandbox = await readSame(scope);
    if (scope.sandbox.status?.compute) return CONTINUE;
    // A hold without compute, of a boot that was never recorded or of nobody's making, would outlive who could end it.
    await letGoOfWorld(scope);
    await recordFinalizer(scope, false);
  }
  const { closed } = scope.sandbox.status ?? {};
  const { ttlSecondsAfterClosed } = scope.sandbox.spec;
  const { metadata } = scope.sandbox;
  if (!closed || ttlSecondsAfterClosed === undefined || metadata.deletionTimestamp) return CONTINUE;
  const leftMs = Date.parse(closed.at) + ttlSecondsAfterClosed * 1000 - scope.context.clock.now();
  if (leftMs > 0) return requeueAfter(leftMs);
  try {
    await scope.dependencies.sandboxClient.delete(
      { name: metadata.name, ...(metadata.namespace === undefined ? {} : { namespace: metadata.namespace }) },
      { signal: scope.context.signal, uid: metadata.uid },
    );
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
  return CONTINUE;
}
