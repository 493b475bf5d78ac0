/**
 * A session that can come to no regular end (World gone, deletion overdue, host silent). Its container is written down where
 * that survives the Sandbox and its namespace (DESIGN §4.3): on the Runtime always, since the container must go one day; on the
 * World only when it holds work that is in no version, because that keeps new writers away.
 */
import {
  clip,
  LIMITS,
  type RuntimeRescue,
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
import type { PublishedVersion } from "../world/publication.ts";
import { asWorldRescue } from "../world/rescue/adopt.ts";
import { WorldGone } from "../world/status-writer.ts";
import { failedBoot, isBootOverdue } from "./boot-limit.ts";
import { isPastCapture, openRequests } from "./judge.ts";
import { causeOf, versionReasonOf } from "./operation.ts";
import { committedBy, publishedFields } from "./publish-operation.ts";
import { demandSameBoot, isoNow, type SandboxStatusPatch } from "./record.ts";
import { recordEnding } from "./record-ending.ts";
import { answer, answerEnd, lastVersion } from "./requests.ts";
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
  const remains = await judgeRemains(scope);
  await stopIfReachable(scope, compute.id);
  const record = rescueRecord(scope, { compute, remains, cause, unpublished });
  await recordOnRuntime(scope, compute.runtime, record);
  await endHold(scope, record, { compute, remains });
  await recordEnding(scope, () => endedFields(scope, { compute, remains, record }));
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
    causedBy: causeOf(scope),
  } as const;
  dependencies.announce({ kind: "Sandbox", object: sandbox }, event);
  // The Sandbox's Event goes with its namespace, or is refused there already.
  const keeper = dependencies.runtimes.get(compute.runtime);
  if (keeper && hasWork) dependencies.announce({ kind: "Runtime", object: keeper }, event);
}

async function judgeRemains(scope: SandboxScope): Promise<Remains> {
  const { operation, compute } = scope.sandbox.status ?? {};
  const committed = operation && (await committedUnlessGone(scope, operation.id));
  if (committed) return { kind: "published", version: committed };
  const hadWork = compute?.provisionedAt !== undefined && !scope.savesNothing && operation?.outcome !== "Discard";
  const isDropped = scope.sandbox.metadata.deletionTimestamp && scope.sandbox.spec.closePolicy === "Discard";
  return hadWork && !isDropped ? { kind: "work" } : { kind: "nothing" };
}

async function committedUnlessGone(scope: SandboxScope, operation: string): Promise<PublishedVersion | undefined> {
  try {
    return await committedBy(scope, operation);
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
    cause,
    unpublished,
  }: { compute: SandboxCompute; remains: Remains; cause: string; unpublished: UnpublishedReason },
): RuntimeRescue {
  const { metadata, spec, status } = scope.sandbox;
  const { operation } = status ?? {};
  return {
    operation: operation?.id ?? `lost-${metadata.uid}-${compute.boot}`,
    sandbox: { name: metadata.name, uid: metadata.uid },
    host: compute.host,
    computeId: compute.id,
    ...(compute.engine === undefined ? {} : { engine: compute.engine }),
    // Once captured, the image is a copy of the work, and the only one where the container is gone.
    ...(operation && isPastCapture(operation.stage) ? { capture: captureName(operation.id) } : {}),
    ...versionOf(scope),
    reason: remains.kind === "work" ? unpublished : WITHOUT_WORK[remains.kind],
    message: clip(cause, LIMITS.message),
    ...keptFor(scope, compute.runtime),
    namespace: metadata.namespace ?? "",
    ...(spec.world ? { world: spec.world.name } : {}),
    ...(status?.world?.uid === undefined ? {} : { worldUid: status.world.uid }),
  };
}

/** All that its version will say: the Sandbox may be gone when it is published. */
function versionOf(scope: SandboxScope) {
  const { operation, base, bootedFrom, ignoredRescues } = scope.sandbox.status ?? {};
  return {
    causedBy: causeOf(scope),
    ...(base ? { base: base.digest } : {}),
    ...(bootedFrom ? { bootedFrom: bootedFrom.digest } : {}),
    ...(operation ? { versionReason: versionReasonOf(operation) } : {}),
    // Before the capture it says how the tree was to stand: a stopped container is captured as after a crash.
    ...(operation?.consistency === undefined || !isPastCapture(operation.stage)
      ? {}
      : { consistency: operation.consistency }),
    ...(operation?.description === undefined ? {} : { description: operation.description }),
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
      await worldWriter.abandon(refOf(world), record.operation, context.signal);
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
}

function endedFields(scope: SandboxScope, ended: Ended): SandboxStatusPatch {
  const { compute, remains, record } = ended;
  const { sandbox } = scope;
  const { operation } = sandbox.status ?? {};
  const at = isoNow(scope);
  const now = scope.context.clock.now();
  const isGivenUp = operation?.verb !== "Close" && remains.kind === "nothing" && isBootOverdue(sandbox.status, now);
  const isClosed = operation?.verb === "Close" || (sandbox.spec.image !== undefined && !isGivenUp);
  const { outcome, message } = describeEnd(ended);
  const published = remains.kind === "published" ? remains.version : undefined;
  const last = published ?? lastVersion(sandbox);
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
    ...(published ? publishedFields(scope, published) : {}),
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
