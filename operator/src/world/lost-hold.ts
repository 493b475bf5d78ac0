/**
 * The end of a hold whose Sandbox object is gone: its finalizer was removed by hand, so it cannot let go any more. Only proof
 * ends it (DESIGN §4.2): the API server says that the Sandbox does not exist, every host says that it has no container and no
 * capture of it, and what it had pushed is a version.
 */
import { clip, LIMITS, type RuntimeRescue, type Sandbox, type WorldRescue, type WorldStatus } from "@agentworlds/crds";
import { isNotFound } from "../kube/errors.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { RegistryError } from "../registry/errors.ts";
import { settledOperations } from "../runtime/kept-work.ts";
import { accountsFor, holdsWork } from "../runtime/rescues.ts";
import { PublicationError } from "../snapshot/errors.ts";
import { publishLostCapture } from "./lost-capture.ts";
import { asWorldRescue } from "./rescue/adopt.ts";
import type { WorldDependencies, WorldScope } from "./scope.ts";
import { statusOf } from "./status-writer.ts";

interface Session {
  readonly name: string;
  readonly uid: string;
}

/** Ends the hold and the reservation of a Sandbox that is gone, or turns them into the rescue that its container became. */
export async function endLostHold(scope: WorldScope): Promise<PhaseResult> {
  const isLost = (session: Session) => !isCached(scope, session);
  if (!sessionsNamed(statusOf(scope.world)).some(isLost)) return CONTINUE;
  // The cache may still show a hold that ended in order a moment ago.
  scope.world = await scope.dependencies.writer.read(scope.ref, scope.context.signal);
  for (const session of sessionsNamed(statusOf(scope.world)).filter(isLost)) {
    if (!(await existsNow(scope, session))) await judgeCompute(scope, session);
  }
  return CONTINUE;
}

function sessionsNamed({ holder, pending, rescues = [] }: WorldStatus): Session[] {
  // A rescue publishes without its Sandbox.
  const isRescue = rescues.some((rescue) => accountsFor(rescue, pending?.operation));
  const named = [holder && { name: holder.sandbox, uid: holder.uid }, isRescue ? undefined : pending?.sandbox].filter(
    (one) => one !== undefined,
  );
  return named.filter((session, index) => named.findIndex((other) => other.uid === session.uid) === index);
}

/** One of this World's. A hold of one that has no compute is ended by its own controller. */
const isCached = (scope: WorldScope, session: Session): boolean =>
  scope.dependencies.sandboxes.list().some((sandbox) => isSession(scope, sandbox, session));

const isSession = ({ ref }: WorldScope, { metadata, spec }: Sandbox, { uid }: Session): boolean =>
  metadata.uid === uid && metadata.namespace === ref.namespace && spec.world?.name === ref.name;

/** The cache may not show a Sandbox that has just been made. */
async function existsNow(scope: WorldScope, session: Session): Promise<boolean> {
  const { dependencies, ref, context } = scope;
  try {
    const { signal } = context;
    const named = { namespace: ref.namespace, name: session.name };
    return isSession(scope, await dependencies.sandboxClient.get(named, { signal }), session);
  } catch (error) {
    if (isNotFound(error)) return false;
    throw error;
  }
}

/** Its `spec.world` never changes, so nothing of it can ever be of this World. */
const isOfAnotherWorld = (scope: WorldScope, session: Session): boolean =>
  scope.dependencies.sandboxes
    .list()
    .some((sandbox) => sandbox.metadata.uid === session.uid && !isSession(scope, sandbox, session));

async function judgeCompute(scope: WorldScope, session: Session): Promise<void> {
  if (isOfAnotherWorld(scope, session)) return endHold(scope, session, "is a session of another World");
  const { head } = statusOf(scope.world);
  const settled = settledOperations(scope.world.status);
  const compute = await scope.dependencies.computeOf({ sandboxUid: session.uid, settled }, scope.context.signal);
  if (compute === "none") return endWithoutCompute(scope, session);
  // Nobody but the holder moves head: that is what its work is based on, although the container alone does not say so.
  const base = head ? { base: head.digest } : {};
  const kept = rescuesOf(scope.dependencies.runtimes, session).filter(holdsWork);
  const rescues = kept.map((rescue) => ({ ...base, ...rescue }));
  if (rescues.length > 0) {
    for (const rescue of rescues) {
      await scope.dependencies.writer.recordRescue(scope.ref, rescue, scope.context.signal);
    }
    const places = rescues.map(({ runtime, host, computeId }) => `${runtime}/${host} as ${computeId}`).join(", ");
    return endHold(scope, session, `does not exist any more and its container is kept on ${places}`);
  }
  scope.lostHold = {
    reason: compute === "some" ? "ComputeFound" : "HostsNotAsked",
    message:
      compute === "some"
        ? `Sandbox ${session.name} does not exist any more, and a container or a capture of it does; the Runtime puts it aside as a rescue`
        : `Sandbox ${session.name} does not exist any more, and not every host answers whether a container of it is left`,
  };
}

async function endWithoutCompute(scope: WorldScope, session: Session): Promise<void> {
  const { holder, repository } = statusOf(scope.world);
  const gone = "does not exist any more and no host has a container of it";
  if (holder?.uid !== session.uid || !repository) return endHold(scope, session, gone);
  try {
    const published = await publishLostCapture(scope, holder);
    const what =
      published &&
      `; what it had captured is version ${published.version} (${published.digest}), and work since that capture is lost`;
    return await endHold(scope, session, `${gone}${what ?? ""}`);
  } catch (error) {
    const isForNow =
      error instanceof RegistryError ||
      error instanceof PublicationError ||
      error instanceof Waiting ||
      error instanceof Terminal;
    if (!isForNow) throw error;
    scope.lostHold = {
      reason: "CaptureNotPublished",
      message: clip(
        `Sandbox ${session.name} ${gone}; what it had captured may be in the registry, and cannot be published yet: ${error.message}`,
        LIMITS.message,
      ),
    };
  }
}

async function endHold(scope: WorldScope, session: Session, because: string): Promise<void> {
  const { writer, announce } = scope.dependencies;
  const { signal } = scope.context;
  const { pending } = statusOf(scope.world);
  if (pending?.sandbox?.uid === session.uid) await writer.abandon(scope.ref, pending.operation, signal);
  await writer.letGo(scope.ref, session.uid, signal);
  scope.world = await writer.read(scope.ref, signal);
  announce(
    { kind: "World", object: scope.world },
    {
      type: "Warning",
      reason: "HoldEnded",
      action: "Release",
      message: `Sandbox ${session.name}, which held the World, ${because}`,
    },
  );
}

/** What the Runtimes keep of a session, as the World records it. */
export const rescuesOf = (runtimes: WorldDependencies["runtimes"], { uid }: Pick<Session, "uid">): WorldRescue[] =>
  rescuesWhere(runtimes, (rescue) => rescue.sandbox.uid === uid);

/** The work that Runtimes keep for this World; a record of an older operator names no UID. */
export const rescuesKept = (scope: WorldScope): WorldRescue[] =>
  rescuesWhere(
    scope.dependencies.runtimes,
    (rescue) =>
      rescue.namespace === scope.ref.namespace &&
      rescue.world === scope.ref.name &&
      (rescue.worldUid ?? scope.ref.uid) === scope.ref.uid &&
      holdsWork(rescue),
  );

const rescuesWhere = (
  runtimes: WorldDependencies["runtimes"],
  isWanted: (rescue: RuntimeRescue) => boolean,
): WorldRescue[] =>
  runtimes
    .list()
    .flatMap(({ metadata, status }) =>
      (status?.rescues ?? []).filter(isWanted).map((rescue) => asWorldRescue(metadata.name, rescue)),
    );
