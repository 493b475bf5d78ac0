/**
 * A session that can come to no regular end (World gone, deletion overdue, host silent). Its container is written down where
 * that survives the Sandbox and its namespace (DESIGN §4.3): on the Runtime always, since the container must go one day; on the
 * World only when it holds work that is in no version, because that keeps new writers away.
 */
import {
  type CausedBy,
  clip,
  LIMITS,
  type RuntimeRescue,
  type Sandbox,
  type SandboxCompute,
  type SandboxStatus,
  type VersionPointer,
} from "@agentworlds/crds";
import { isNotFound } from "../kube/errors.ts";
import { startDeadline } from "../reconciler/deadline.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { DEFAULT_RESCUE_SECONDS } from "../runtime/rescue-time.ts";
import { WITHOUT_WORK } from "../runtime/rescues.ts";
import { captureName } from "../snapshot/docker-commit.ts";
import { creatorOf } from "../world/creator.ts";
import type { PublishedVersion } from "../world/publication.ts";
import { asWorldRescue } from "../world/rescue/adopt.ts";
import { WorldGone } from "../world/status-writer.ts";
import { failedBoot, isBootOverdue } from "./boot-limit.ts";
import { isPastCapture, openRequests } from "./judge.ts";
import { causeOf, versionReasonOf } from "./operation.ts";
import { committedBy, isUsedUp, missedVersion, publishedFields } from "./publish-operation.ts";
import { demandSameBoot, isoNow, type SandboxStatusPatch } from "./record.ts";
import { recordEnding } from "./record-ending.ts";
import { answer, answerEnd, lastVersion } from "./requests.ts";
import { isEndedBy, judgeRescued, type RescuedOperation } from "./rescued-operation.ts";
import type { SandboxScope } from "./scope.ts";
import { refOf } from "./world-of.ts";

/** A deletion, of the Sandbox or of its World, is never blocked for ever by a snapshot that cannot be published. */
export function isDeletionOverdue({ sandbox, world, context, dependencies }: SandboxScope): boolean {
  return [sandbox.metadata.deletionTimestamp, world?.metadata.deletionTimestamp].some(
    (since) => since !== undefined && context.clock.now() - Date.parse(since) >= dependencies.limits.deletionDeadlineMs,
  );
}

/** What the container that stays behind holds. */
type Remains =
  /** Work that is in no version. */
  | { readonly kind: "work" }
  /** Its work was committed by this operation: only the container is left over. */
  | { readonly kind: "published"; readonly version: PublishedVersion }
  /** Nothing that anybody asked to keep. */
  | { readonly kind: "nothing" };

/** `unpublished` is why the work that stays behind is in no version. */
export async function rescue(
  scope: SandboxScope,
  cause: string,
  unpublished: UnpublishedReason = scope.world ? "SnapshotFailed" : "WorldGone",
): Promise<void> {
  const compute = scope.sandbox.status?.compute;
  if (!compute) return;
  await demandSameBoot(scope);
  const found = await findOperation(scope);
  const remains = judgeRemains(scope, found);
  await stopIfReachable(scope, compute.id);
  const record = rescueRecord(scope, { compute, remains, found, cause, unpublished });
  await recordOnRuntime(scope, compute.runtime, record);
  await endHold(scope, record, { compute, remains });
  await recordEnding(scope, () => endedFields(scope, { compute, remains, record, found }));
  scope.goal = { kind: "asleep" };
  announceLeft(scope, { compute, remains }, cause);
}

function announceLeft(
  scope: SandboxScope,
  { compute, remains }: { compute: SandboxCompute; remains: Remains },
  cause: string,
): void {
  const { dependencies, sandbox } = scope;
  const hasWork = remains.kind === "work";
  const session = `Sandbox ${sandbox.metadata.namespace}/${sandbox.metadata.name}`;
  const what = hasWork ? "unpublished work" : "a container without work";
  const event = {
    type: "Warning",
    reason: hasWork ? "Rescued" : "ContainerLeftBehind",
    action: "Rescue",
    message: `${what} of ${session} is kept on ${compute.runtime}/${compute.host} as ${compute.id}: ${cause}`,
    causedBy: endedBy(scope),
  } as const;
  dependencies.announce({ kind: "Sandbox", object: sandbox }, event);
  // The Sandbox's Event goes with its namespace, or is refused there already.
  const keeper = dependencies.runtimes.get(compute.runtime);
  if (keeper && hasWork) dependencies.announce({ kind: "Runtime", object: keeper }, event);
}

/** Who ended the session; whoever asked for a snapshot of it did not. */
const endedBy = (scope: SandboxScope): CausedBy =>
  scope.sandbox.status.operation?.verb === "Snapshot" ? creatorOf(scope.sandbox) : causeOf(scope);

/** What the World has of the operation under way, and of the session. */
interface FoundOperation extends RescuedOperation {
  readonly committed: PublishedVersion | undefined;
  /** The newest version of the session that its status does not know of: what stays behind is based on it. */
  readonly missed: PublishedVersion | undefined;
}

async function findOperation(scope: SandboxScope): Promise<FoundOperation> {
  const { operation } = scope.sandbox.status;
  const committed = operation && (await unlessGone(() => committedBy(scope, operation.id)));
  const used = operation && (await unlessGone(() => isUsedUp(scope, operation.id)));
  const missed = await missedVersion(scope);
  return { ...judgeRescued(scope.sandbox, { committed, isUsedUp: used === true }), committed, missed };
}

function judgeRemains(scope: SandboxScope, { committed }: FoundOperation): Remains {
  const { operation, compute } = scope.sandbox.status ?? {};
  if (operation && committed && isEndedBy(operation, committed)) return { kind: "published", version: committed };
  const hadWork = compute?.provisionedAt !== undefined && !scope.savesNothing && operation?.outcome !== "Discard";
  const isDropped = scope.sandbox.metadata.deletionTimestamp && scope.sandbox.spec.closePolicy === "Discard";
  return hadWork && !isDropped ? { kind: "work" } : { kind: "nothing" };
}

async function unlessGone<R>(read: () => Promise<R>): Promise<R | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof WorldGone) return undefined;
    throw error;
  }
}

type UnpublishedReason = "SnapshotFailed" | "WorldGone" | "HostLost";

function rescueRecord(
  scope: SandboxScope,
  {
    compute,
    remains,
    found,
    cause,
    unpublished,
  }: {
    compute: SandboxCompute;
    remains: Remains;
    found: FoundOperation;
    cause: string;
    unpublished: UnpublishedReason;
  },
): RuntimeRescue {
  const { metadata, spec, status } = scope.sandbox;
  const { ending, snapshot } = found;
  return {
    operation: found.id,
    sandbox: { name: metadata.name, uid: metadata.uid },
    host: compute.host,
    computeId: compute.id,
    ...(compute.engine === undefined ? {} : { engine: compute.engine }),
    // Once captured, the image is a copy of the work, and the only one where the container is gone.
    ...(found.isCaptured && isPastCapture(ending?.stage) ? { capture: captureName(found.id) } : {}),
    ...versionOf(scope, found),
    ...(snapshot ? { snapshot } : {}),
    reason: remains.kind === "work" ? unpublished : WITHOUT_WORK[remains.kind],
    message: clip(cause, LIMITS.message),
    ...keptFor(scope, compute.runtime),
    namespace: metadata.namespace ?? "",
    ...(spec.world ? { world: spec.world.name } : {}),
    ...(status?.world?.uid === undefined ? {} : { worldUid: status.world.uid }),
  };
}

/** All that its version will say: the Sandbox may be gone when it is published. */
function versionOf(scope: SandboxScope, { ending, isCaptured, missed }: FoundOperation) {
  const { status } = scope.sandbox;
  const { bootedFrom, ignoredRescues } = status;
  const base = missed ?? status.base;
  return {
    causedBy: endedBy(scope),
    ...(base ? { base: base.digest } : {}),
    ...(bootedFrom ? { bootedFrom: bootedFrom.digest } : {}),
    ...(ending ? { versionReason: versionReasonOf(ending) } : {}),
    // Before the capture it says how the tree was to stand: a stopped container is captured as after a crash.
    ...(isCaptured && ending?.consistency !== undefined && isPastCapture(ending.stage)
      ? { consistency: ending.consistency }
      : {}),
    ...(ending?.description === undefined ? {} : { description: ending.description }),
    ...(ignoredRescues ? { ignoredRescues } : {}),
  };
}

/** Absolute, so that a later change of the Runtime takes nobody's time away. */
function keptFor(scope: SandboxScope, runtime: string): Pick<RuntimeRescue, "since"> & { readonly expiresAt: string } {
  const seconds = scope.dependencies.runtimes.get(runtime)?.spec.rescueSeconds ?? DEFAULT_RESCUE_SECONDS;
  const now = scope.context.clock.now();
  return { since: isoNow(scope), expiresAt: new Date(now + seconds * 1000).toISOString() };
}

/** An engine waits 10 s for a container before it kills it. */
const STOP_MS = 30_000;

/** A host that does not answer keeps the container anyway; its sweep stops it later. */
async function stopIfReachable(scope: SandboxScope, computeId: string): Promise<void> {
  const { clock, signal } = scope.context;
  using stopping = startDeadline({ clock, milliseconds: STOP_MS, parent: signal });
  try {
    await scope.driver?.stop(computeId, stopping.signal);
  } catch (error) {
    if (!(error instanceof RuntimeError) && !stopping.expired) throw error;
    scope.dependencies.log.warn({ computeId, err: error }, "the container to rescue could not be stopped");
  }
}

async function recordOnRuntime(scope: SandboxScope, runtime: string, record: RuntimeRescue): Promise<void> {
  try {
    await scope.dependencies.runtimeRescues.record(runtime, record, scope.context.signal);
  } catch (error) {
    // A Runtime that is gone can keep no record; the World's stays, and the Event.
    if (!isNotFound(error)) throw error;
    scope.dependencies.log.warn({ ...record }, "the Runtime of a rescue does not exist any more");
  }
}

/** Unpublished work passes the hold on to its rescue; a container without any holds nobody up. */
async function endHold(
  scope: SandboxScope,
  record: RuntimeRescue,
  { compute, remains }: { compute: SandboxCompute; remains: Remains },
): Promise<void> {
  const { world, dependencies, context } = scope;
  if (!world) return;
  const { worldWriter } = dependencies;
  try {
    if (remains.kind === "work") {
      await worldWriter.recordRescue(refOf(world), asWorldRescue(compute.runtime, record), context.signal);
    } else {
      const { operation } = scope.sandbox.status;
      await worldWriter.abandon(refOf(world), operation?.id ?? record.operation, context.signal);
      await worldWriter.letGo(refOf(world), scope.sandbox.metadata.uid, context.signal);
    }
  } catch (error) {
    // The Runtime's record is what outlives a World that is gone.
    if (!(error instanceof WorldGone)) throw error;
  }
}

interface Ended {
  readonly compute: SandboxCompute;
  readonly remains: Remains;
  readonly record: RuntimeRescue;
  readonly found: FoundOperation;
}

function endedFields(scope: SandboxScope, ended: Ended): SandboxStatusPatch {
  const { compute, remains, record, found } = ended;
  const { operation } = scope.sandbox.status ?? {};
  const sandbox = withSnapshotAnswered(scope, found);
  const at = isoNow(scope);
  const now = scope.context.clock.now();
  const isGivenUp = operation?.verb !== "Close" && remains.kind === "nothing" && isBootOverdue(sandbox.status, now);
  const isClosed = operation?.verb === "Close" || (sandbox.spec.image !== undefined && !isGivenUp);
  const { outcome, message } = describeEnd(ended);
  const published = remains.kind === "published" ? remains.version : undefined;
  const newest = published ?? found.missed;
  const last = newest ? pointerTo(newest) : lastVersion(sandbox);
  const asked = [...openRequests(sandbox, "Snapshot"), ...openRequests(sandbox, "Close")];
  const requests =
    remains.kind === "work"
      ? answer(sandbox, asked, { outcome: "Failed", code: "Rescued", message, at })
      : answerEnd(sandbox, { isClosed, published, last, at });
  return {
    compute: null,
    operation: null,
    expiresAt: null,
    lifetimeEndsAt: null,
    // The mode that was acted on: one that turned back to Running meanwhile is seen as a wish to wake.
    observedMode: operation?.reason === "ModeHibernated" ? "Hibernated" : sandbox.spec.mode,
    ...(newest ? publishedFields(scope, newest) : {}),
    lastEnding: {
      boot: compute.boot,
      reason: record.reason,
      outcome,
      message,
      at,
      ...(remains.kind === "work" && record.expiresAt !== undefined
        ? { rescue: { operation: record.operation, expiresAt: record.expiresAt } }
        : {}),
      ...(isGivenUp ? failedBoot(sandbox.status, now) : {}),
    },
    ...(requests.length > 0 ? { requests } : {}),
    ...(isClosed ? { closed: { ...(last ? pointerTo(last) : {}), at } } : {}),
  };
}

/** Whoever asked for a snapshot that was committed has it, whatever becomes of the session. */
function withSnapshotAnswered(scope: SandboxScope, { committed }: FoundOperation): Sandbox {
  const { sandbox } = scope;
  const { operation } = sandbox.status;
  if (!committed || operation?.verb !== "Snapshot" || operation.request === undefined) return sandbox;
  const result = { outcome: "Succeeded", ...pointerTo(committed), at: isoNow(scope) } as const;
  return { ...sandbox, status: { ...sandbox.status, requests: answer(sandbox, [{ id: operation.request }], result) } };
}

const pointerTo = ({ version, digest }: VersionPointer): VersionPointer => ({
  digest,
  ...(version === undefined ? {} : { version }),
});

function describeEnd({
  compute,
  remains,
  record,
}: Ended): Pick<NonNullable<SandboxStatus["lastEnding"]>, "outcome" | "message"> {
  const left = `${compute.runtime}/${compute.host} as ${record.capture ?? compute.id}`;
  switch (remains.kind) {
    case "work": {
      const message = `the work is kept on ${left} until ${record.expiresAt} as rescue ${record.operation}: ${record.message}`;
      return { outcome: "Rescued", message: clip(message, LIMITS.message) };
    }
    case "published":
      return {
        outcome: "Published",
        message: clip(`its container is left on ${left}: ${record.message}`, LIMITS.message),
      };
    case "nothing":
      return {
        outcome: "Discarded",
        message: clip(`its container is left on ${left}: ${record.message}`, LIMITS.message),
      };
  }
}
