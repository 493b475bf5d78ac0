/**
 * The end of a hold whose Sandbox object is gone: its finalizer was removed by hand, so it cannot let go any more. Only proof
 * ends it (DESIGN §4.2): the API server says that the Sandbox does not exist, and every host says that no container of it does.
 */
import type { RuntimeRescue, Sandbox, WorldRescue, WorldStatus } from "@agentworlds/crds";
import { isNotFound } from "../kube/errors.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
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

function sessionsNamed({ holder, pending }: WorldStatus): Session[] {
  const named = [holder && { name: holder.sandbox, uid: holder.uid }, pending?.sandbox].filter(
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
  const compute = await scope.dependencies.computeOf(session.uid, scope.context.signal);
  if (compute === "none") return endHold(scope, session, "does not exist any more and no host has a container of it");
  const rescues = rescuesOf(scope.dependencies.runtimes, session);
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
        ? `Sandbox ${session.name} does not exist any more and a container of it does; the Runtime puts it aside as a rescue`
        : `Sandbox ${session.name} does not exist any more, and not every host answers whether a container of it is left`,
  };
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

/** Everything the Runtimes keep for a World of this namespace and name. */
export const rescuesKept = (scope: WorldScope): WorldRescue[] =>
  rescuesWhere(
    scope.dependencies.runtimes,
    ({ namespace, world }) => namespace === scope.ref.namespace && world === scope.ref.name,
  );

const rescuesWhere = (
  runtimes: WorldDependencies["runtimes"],
  isWanted: (rescue: RuntimeRescue) => boolean,
): WorldRescue[] =>
  runtimes
    .list()
    .flatMap(({ metadata, status }) =>
      (status?.rescues ?? [])
        .filter(isWanted)
        .map(({ namespace: _, world: __, ...rescue }) => ({ ...rescue, runtime: metadata.name })),
    );

/** An orphan's container names no World, so its Runtime tells nobody when it removes it. */
export async function forgetOrphans(scope: WorldScope): Promise<PhaseResult> {
  const orphans = (statusOf(scope.world).rescues ?? []).filter((rescue) => isOrphan(rescue) && !isKept(scope, rescue));
  if (orphans.length === 0) return CONTINUE;
  const { computeOf, writer } = scope.dependencies;
  const { signal } = scope.context;
  for (const { sandbox, operation } of orphans) {
    if ((await computeOf(sandbox.uid, signal)) === "none") await writer.forgetRescue(scope.ref, operation, signal);
  }
  scope.world = await writer.read(scope.ref, signal);
  return CONTINUE;
}

/** As runtime/sweep.ts names them. */
export const isOrphan = ({ operation }: Pick<WorldRescue, "operation">): boolean => operation.startsWith("orphan-");

const isKept = ({ dependencies }: WorldScope, { operation, runtime }: WorldRescue): boolean =>
  (dependencies.runtimes.get(runtime)?.status?.rescues ?? []).some((rescue) => rescue.operation === operation);
