/** What the World does for the work that is kept for it: tries again, gives back what is done, says what is lost. */
import { clip, LIMITS, type LostWork, type WorldRescue } from "@agentworlds/crds";
import { isConflict } from "../../kube/errors.ts";
import { LeadershipLost } from "../../reconciler/lease.ts";
import { wordsOf } from "../../reconciler/words-of.ts";
import { RuntimeError } from "../../runtime/errors.ts";
import { rescueEndsAt } from "../../runtime/rescue-time.ts";
import { versionTag } from "../../snapshot/publish.ts";
import { askedBy } from "../creator.ts";
import type { PublishedVersion } from "../publication.ts";
import type { AnnouncedEvent, WorldScope } from "../scope.ts";
import { statusOf, WorldGone } from "../status-writer.ts";
import { isItsSessions } from "./adopt.ts";
import { ForeignRescue, hostOf, removeWork, WorkGone } from "./host.ts";
import { judgeRescue, rescueBackoffMs } from "./judge.ts";
import { causeOf, publishRescue, publishSnapshotOf } from "./publish.ts";

/** How one look at a rescue ended. */
export type Tended =
  | { readonly kind: "published"; readonly version: PublishedVersion }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "lost"; readonly lost: LostWork }
  /** Nothing was tried: not due, or not allowed by rule. */
  | { readonly kind: "kept"; readonly ms: number; readonly because?: string };

/** When to look again at a rescue whose session has not written down its own end; its end makes the World due, too. */
const HAND_OVER_MS = 30_000;

/** One step of one rescue, whatever comes of it: only what ends the whole pass is thrown. */
export async function tendRescue(
  scope: WorldScope,
  rescue: WorldRescue,
  options: { readonly isAsked: boolean } = { isAsked: false },
): Promise<Tended> {
  if (isItsSessions(scope, rescue))
    return { kind: "kept", ms: HAND_OVER_MS, because: "SessionEnding: its session has not ended yet" };
  const now = scope.context.clock.now();
  const ends = rescueEndsAt(rescue, scope.dependencies.runtimes.get(rescue.runtime), now);
  const timed = { ...rescue, expiresAt: new Date(ends).toISOString() };
  const step = judgeRescue(statusOf(scope.world), timed, { now, ...options });
  switch (step.kind) {
    case "wait":
      return { kind: "kept", ms: step.ms };
    case "keep":
      return { kind: "kept", ms: step.ms, because: explainKept(scope, rescue, step.because) };
    case "expire":
      return giveUp(scope, rescue, { cause: "Expired", message: overMessage(rescue, rescue.lastError) });
    case "release":
    case "attempt":
      return attempt(scope, rescue, step);
  }
}

async function attempt(scope: WorldScope, rescue: WorldRescue, { isLast }: { isLast: boolean }): Promise<Tended> {
  const { metrics } = scope.dependencies;
  let version = committed(scope, rescue);
  try {
    version ??= await publishAndTell(scope, rescue);
    await release(scope, rescue);
    return { kind: "published", version };
  } catch (error) {
    if (isEndOfPass(scope, error)) throw error;
    // What is left of published work is its container, and its Runtime has a record of that.
    if (version && isLast) {
      await scope.dependencies.writer.endRescue(scope.ref, { operation: rescue.operation }, scope.context.signal);
      return { kind: "published", version };
    }
    metrics.rescueRetried("failed");
    const message = clip(wordsOf(error), LIMITS.message);
    if (version) {
      await noteFailure(scope, rescue, message);
      return { kind: "published", version };
    }
    if (error instanceof WorkGone) return fallBack(scope, rescue, { cause: "ContainerGone", message }, { isLast });
    if (isLast) return fallBack(scope, rescue, { cause: "Expired", message: overMessage(rescue, message) }, { isLast });
    await noteFailure(scope, rescue, message);
    return { kind: "failed", message };
  }
}

/** The work is not to be had: it is given up, and what a snapshot had captured before becomes the version. */
async function fallBack(
  scope: WorldScope,
  rescue: WorldRescue,
  end: Pick<LostWork, "cause" | "message">,
  { isLast }: { readonly isLast: boolean },
): Promise<Tended> {
  let saved: PublishedVersion | undefined;
  try {
    saved = await publishSnapshotOf(scope, rescue);
  } catch (error) {
    if (isEndOfPass(scope, error)) throw error;
    const message = clip(`${end.message}; its snapshot: ${wordsOf(error)}`, LIMITS.message);
    if (!isLast) {
      await noteFailure(scope, rescue, message);
      return { kind: "failed", message };
    }
    return giveUp(scope, rescue, { ...end, message });
  }
  if (!saved) return giveUp(scope, rescue, end);
  const message = `${end.message}; what a snapshot had captured before is ${versionTag(saved.version)} (${saved.digest})`;
  return giveUp(scope, rescue, { ...end, message: clip(message, LIMITS.message) });
}

/** A stale object, a World that is gone or a lost lease says nothing of the rescue. */
export const isEndOfPass = ({ context }: WorldScope, error: unknown): boolean =>
  context.signal.aborted || isConflict(error) || error instanceof WorldGone || error instanceof LeadershipLost;

function committed({ world }: WorldScope, { operation }: WorldRescue): PublishedVersion | undefined {
  return statusOf(world).versions?.find((version) => version.operation === operation);
}

async function publishAndTell(scope: WorldScope, rescue: WorldRescue): Promise<PublishedVersion> {
  const version = await publishRescue(scope, rescue);
  scope.dependencies.metrics.rescueRetried("published");
  announce(scope, rescue, {
    type: "Normal",
    reason: "RescuePublished",
    action: "Publish",
    message: `the work of Sandbox ${rescue.sandbox.name} that was kept on ${placeOf(rescue)} is version ${version.version} (${version.digest})`,
  });
  return version;
}

/** Only after its version was read back and is in the World. */
async function release(scope: WorldScope, rescue: WorldRescue): Promise<void> {
  await removeWork(scope, rescue, await hostOf(scope, rescue));
  await scope.dependencies.writer.endRescue(scope.ref, { operation: rescue.operation }, scope.context.signal);
}

async function noteFailure(scope: WorldScope, rescue: WorldRescue, lastError: string): Promise<void> {
  const { dependencies, context, ref } = scope;
  const { operation } = rescue;
  const attempts = (rescue.attempts ?? 0) + 1;
  const retryAt = new Date(context.clock.now() + rescueBackoffMs(attempts)).toISOString();
  dependencies.log.warn({ operation, attempts, lastError }, "rescued work could not be published");
  await dependencies.writer.changeRescue(
    ref,
    { operation, fields: { attempts, retryAt, lastError }, abandon: true },
    context.signal,
  );
}

/**
 * The end of work that is in no version, said aloud. A host that does not answer keeps its container, and its Runtime the
 * record of it: the sweep removes both when the host is back.
 */
export async function giveUp(
  scope: WorldScope,
  rescue: WorldRescue,
  end: Pick<LostWork, "cause" | "message" | "discardedBy">,
): Promise<Tended> {
  const { dependencies, context, ref } = scope;
  try {
    await removeWork(scope, rescue, await hostOf(scope, rescue));
  } catch (error) {
    if (!(error instanceof RuntimeError) && !(error instanceof ForeignRescue)) throw error;
    dependencies.log.warn({ err: error, operation: rescue.operation }, "what is left of lost work stays on its host");
  }
  const { operation, sandbox, runtime, host, computeId, base, since } = rescue;
  const lost: LostWork = {
    operation,
    sandbox,
    runtime,
    host,
    computeId,
    ...(base === undefined ? {} : { base }),
    since,
    at: new Date(context.clock.now()).toISOString(),
    ...end,
  };
  await dependencies.writer.endRescue(ref, { operation, lost }, context.signal);
  dependencies.metrics.workLost(end.cause);
  dependencies.log.error({ ...lost }, "work ended in no version");
  announce(scope, rescue, {
    type: "Warning",
    reason: end.cause === "Discarded" ? "RescueDiscarded" : "WorkLost",
    action: end.cause === "Discarded" ? "Discard" : "Expire",
    message: `the work of Sandbox ${sandbox.name} that was kept on ${placeOf(rescue)} is gone: ${end.message}`,
    ...(end.discardedBy === undefined ? {} : { causedBy: askedBy(end.discardedBy, scope.world) }),
  });
  return { kind: "lost", lost };
}

function announce(scope: WorldScope, rescue: WorldRescue, event: AnnouncedEvent): void {
  const { dependencies } = scope;
  const told = { causedBy: causeOf(scope, rescue), ...event };
  dependencies.announce({ kind: "World", object: scope.world }, told);
  const keeper = dependencies.runtimes.get(rescue.runtime);
  if (keeper) dependencies.announce({ kind: "Runtime", object: keeper }, told);
}

function explainKept({ world }: WorldScope, { base }: WorldRescue, because: string): string {
  const { head, holder } = statusOf(world);
  switch (because) {
    case "WorldHeld":
      return `WorldHeld: Sandbox ${holder?.sandbox} works in the World without it`;
    case "BaseBehindHead":
      return `BaseBehindHead: it is based on ${base}, and head is ${head === undefined ? "nothing" : `${versionTag(head.version)} (${head.digest})`}`;
    case "HeadBehindRegistry":
      return "HeadBehindRegistry: the registry has newer versions than the World's head";
    default:
      return "BaseUnknown: nobody knows which version it began from";
  }
}

const overMessage = (rescue: WorldRescue, lastError: string | undefined): string =>
  `its time was over at ${rescue.expiresAt ?? "rescueSeconds after it was kept"}: ${lastError ?? rescue.message}`;

export const placeOf = ({ runtime, host, computeId }: WorldRescue): string => `${runtime}/${host} as ${computeId}`;
