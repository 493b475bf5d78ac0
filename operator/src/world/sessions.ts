/** What the namespace's Sandboxes know of a World. */
import type { Sandbox } from "@agentworlds/crds";
import { listAll } from "../kube/list-all.ts";
import type { Digest } from "../registry/contract.ts";
import type { WorldScope } from "./scope.ts";

/** The namespace's Sandboxes, read afresh: the cache may not show a boot from a version that is to go. */
export const sessionsNow = ({ dependencies, ref, context }: WorldScope): Promise<Sandbox[]> =>
  listAll(dependencies.sandboxClient, { namespace: ref.namespace, signal: context.signal });

/**
 * The Sandboxes, and then the World of the pass, both read afresh. Work goes from a Sandbox's status into a rescue of its World
 * and never back: of an operation that is in neither, read in this order, nobody has any.
 */
export async function sessionsThenWorld(scope: WorldScope): Promise<Sandbox[]> {
  const sessions = await sessionsNow(scope);
  scope.world = await scope.dependencies.writer.read(scope.ref, scope.context.signal);
  return sessions;
}

/** A version that a session remembers to have booted or published. */
export interface RememberedVersion {
  readonly version: number;
  readonly digest: Digest;
}

/** Versions of the World with this UID that its sessions remember: a version may be committed and not yet tagged. */
export function rememberedVersions(sessions: readonly Sandbox[], worldUid: string): RememberedVersion[] {
  const remembered = new Map<Digest, RememberedVersion>();
  for (const { status } of sessions) {
    if (status?.world?.uid !== worldUid) continue;
    for (const pointer of [status.bootedFrom, status.base, status.lastSnapshot, status.closed]) {
      const { version, digest } = pointer ?? {};
      if (version !== undefined && digest !== undefined) remembered.set(digest, { version, digest });
    }
  }
  return [...remembered.values()];
}

/** Sessions that have compute and whose work becomes versions of the World with this UID: of those one may be the holder. */
export const writingSessions = (sessions: readonly Sandbox[], worldUid: string): Sandbox[] =>
  sessions.filter(
    ({ status }) =>
      status?.world?.uid === worldUid && status.compute !== undefined && status.compute.saves !== "Nothing",
  );
