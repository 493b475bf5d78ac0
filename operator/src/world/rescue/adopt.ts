/**
 * Rescues that only a Runtime knows of. `World.status` can be behind it: it was removed by hand, or etcd was restored. Without
 * the World's record the next session would boot an older state without a word.
 */
import type { Runtime, RuntimeRescue, WorldRescue, WorldStatus } from "@agentworlds/crds";
import { holdsWork } from "../../runtime/rescues.ts";
import type { WorldScope } from "../scope.ts";
import { statusOf } from "../status-writer.ts";

/** Writes down on the World what Runtimes keep of its work. */
export async function adoptRescues(scope: WorldScope): Promise<void> {
  const { runtimes, runtimeRescues, writer } = scope.dependencies;
  const { signal } = scope.context;
  for (const { metadata, status } of runtimes.list()) {
    if (!(status?.rescues ?? []).some((rescue) => isMissing(scope, rescue))) continue;
    // The cache may show one that was dealt with a moment ago.
    const kept = await runtimeRescues.kept(metadata.name, signal);
    scope.world = await writer.read(scope.ref, signal);
    for (const rescue of kept.filter((one) => isMissing(scope, one))) {
      await writer.recordRescue(scope.ref, asWorldRescue(metadata.name, rescue), signal);
      scope.dependencies.log.warn({ rescue }, "a rescue that only its Runtime knew was written down on its World");
      scope.world = await writer.read(scope.ref, signal);
    }
  }
}

function isMissing({ world, ref, dependencies }: WorldScope, rescue: RuntimeRescue): boolean {
  const isOurs = rescue.worldUid === ref.uid && rescue.namespace === ref.namespace;
  if (!isOurs || !holdsWork(rescue) || isKnown(statusOf(world), rescue.operation)) return false;
  return !isItsSessions({ dependencies }, rescue);
}

/**
 * A session that hands its work over writes both records and then its own end. After a restart in between it may still publish
 * by itself: until it says that it has ended, the work is not the World's to deal with.
 */
export const isItsSessions = (
  { dependencies }: Pick<WorldScope, "dependencies">,
  { computeId, sandbox }: Pick<RuntimeRescue, "computeId" | "sandbox">,
): boolean =>
  dependencies.sandboxes
    .list()
    .some(({ metadata, status }) => metadata.uid === sandbox.uid && status?.compute?.id === computeId);

/** One that is a version by now is written down, too: its container is still to go. */
const isKnown = ({ rescues = [], lostWork = [] }: WorldStatus, operation: string): boolean =>
  [...rescues, ...lostWork].some((known) => known.operation === operation);

/** A Runtime's record as its World has it. */
export function asWorldRescue(runtime: Runtime["metadata"]["name"], rescue: RuntimeRescue): WorldRescue {
  const { namespace: _namespace, world: _world, worldUid: _uid, ...shared } = rescue;
  return { ...shared, runtime };
}
