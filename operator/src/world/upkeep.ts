/** What every later pass over a World does: observe the tags of head, let old versions go, and end the World when asked. */
import { CONTINUE, type PhaseResult, requeueAfter, STOP } from "../reconciler/reconcile.ts";
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import { PublicationError } from "../snapshot/errors.ts";
import { repairTags } from "../snapshot/publish.ts";
import { repositoryInRegistry } from "./genesis.ts";
import { judgeRetention } from "./retention.ts";
import type { WorldScope } from "./scope.ts";
import { statusOf } from "./status-writer.ts";

/** Tags are observed and repaired by every pass, they are not stages of a publication. */
export async function repairHeadTags(scope: WorldScope): Promise<PhaseResult> {
  const { head } = statusOf(scope.world);
  if (!head || scope.world.metadata.deletionTimestamp) return CONTINUE;
  try {
    await repairTags(
      scope.dependencies.registry.client,
      repositoryInRegistry(scope),
      { version: head.version, digest: head.digest },
      scope.context.signal,
    );
  } catch (error) {
    // A World stays bootable while its tags cannot be looked at: say so, and look again in the next pass.
    if (!(error instanceof RegistryError) && !(error instanceof PublicationError)) throw error;
    scope.headProblem = error.message;
  }
  return CONTINUE;
}

/** Versions beyond the limit leave status first, then the registry: a crash in between leaves bytes, never a dead entry. */
export async function retain(scope: WorldScope): Promise<PhaseResult> {
  const status = statusOf(scope.world);
  if (!status.versions || !status.head || scope.world.metadata.deletionTimestamp || status.pending) return CONTINUE;
  const verdict = judgeRetention({
    versions: status.versions,
    headVersion: status.head.version,
    keepVersions: scope.world.spec.retention?.keepVersions ?? 10,
    pinned: scope.world.spec.retention?.pinned ?? [],
    inUse: digestsInUse(scope),
  });
  scope.retained = verdict.skipped;
  if (verdict.remove.length > 0) {
    const prunedAt = new Date(scope.context.clock.now()).toISOString();
    scope.world = await scope.dependencies.writer.summarise(
      scope.world,
      {
        versions: [...verdict.keep],
        prunedVersions: [
          ...(status.prunedVersions ?? []),
          ...verdict.remove.map(({ version, digest }) => ({ version, digest, prunedAt, reason: "BeyondKeepVersions" })),
        ].slice(-MOST_PRUNED),
      },
      scope.context.signal,
    );
    scope.dependencies.announce(
      { kind: "World", object: scope.world },
      {
        type: "Normal",
        reason: "Pruned",
        action: "Prune",
        message: `versions ${verdict.remove.map((version) => version.version).join(", ")} left by spec.retention.keepVersions`,
      },
    );
  }
  return deletePrunedManifests(scope);
}

/** The most entries `status.prunedVersions` may hold. */
const MOST_PRUNED = 64;

/** Manifests of pruned versions go by digest. Absent is a success, so a pass after a crash finishes the work. */
async function deletePrunedManifests(scope: WorldScope): Promise<PhaseResult> {
  const status = statusOf(scope.world);
  const waiting = (status.prunedVersions ?? []).filter((pruned) => pruned.deletedAt === undefined);
  if (waiting.length === 0) return CONTINUE;
  const live = new Set(status.versions?.map((version) => version.digest));
  const { client } = scope.dependencies.registry;
  const repository = repositoryInRegistry(scope);
  try {
    for (const { digest } of waiting) {
      scope.context.signal.throwIfAborted();
      if (!live.has(digest)) await client.deleteManifest(repository, digest, scope.context.signal);
    }
  } catch (error) {
    if (!isRegistryError(error, "Unavailable")) throw error;
    return requeueAfter(30_000);
  }
  const deletedAt = new Date(scope.context.clock.now()).toISOString();
  scope.world = await scope.dependencies.writer.summarise(
    scope.world,
    {
      prunedVersions: (status.prunedVersions ?? []).map((pruned) =>
        pruned.deletedAt === undefined ? { ...pruned, deletedAt } : pruned,
      ),
    },
    scope.context.signal,
  );
  return CONTINUE;
}

/** Digests that a Sandbox of this World booted from, is based on, or will boot from. */
function digestsInUse(scope: WorldScope): ReadonlySet<string> {
  const ours = scope.dependencies.sandboxes
    .list()
    .filter(
      (sandbox) =>
        sandbox.metadata.namespace === scope.ref.namespace &&
        sandbox.spec.world?.name === scope.ref.name &&
        sandbox.status?.compute !== undefined,
    );
  return new Set(
    ours.flatMap((sandbox) => {
      const { bootedFrom, base } = sandbox.status ?? {};
      return [bootedFrom?.digest, base?.digest].filter((digest) => digest !== undefined);
    }),
  );
}

/**
 * The finalizer is there exactly while the World is held, pending, or must take its content along (DESIGN §4.3).
 * A World that is being deleted waits for its holder to end; the holder's Sandbox sees the deletion and publishes first.
 */
export async function keepFinalizer(scope: WorldScope): Promise<PhaseResult> {
  const { metadata, spec } = scope.world;
  const status = statusOf(scope.world);
  const busy = status.holder !== undefined || status.pending !== undefined;
  if (!metadata.deletionTimestamp) {
    scope.world = await scope.dependencies.writer.setFinalizer(
      scope.world,
      busy || spec.deletionPolicy === "Delete",
      scope.context.signal,
    );
    return CONTINUE;
  }
  if (busy && holderExists(scope)) return STOP;
  if (spec.deletionPolicy === "Delete") await deleteContent(scope);
  await scope.dependencies.writer.setFinalizer(scope.world, false, scope.context.signal);
  return STOP;
}

/** A holder whose Sandbox object is gone cannot let go any more; its finalizer would have kept it while compute existed. */
function holderExists(scope: WorldScope): boolean {
  const { holder, pending } = statusOf(scope.world);
  const uid = holder?.uid ?? pending?.sandbox?.uid;
  return uid !== undefined && scope.dependencies.sandboxes.list().some((sandbox) => sandbox.metadata.uid === uid);
}

async function deleteContent(scope: WorldScope): Promise<void> {
  const { versions, repository } = statusOf(scope.world);
  if (!repository) return;
  const name = repositoryInRegistry(scope);
  for (const { digest } of versions ?? []) {
    scope.context.signal.throwIfAborted();
    await scope.dependencies.registry.client.deleteManifest(name, digest, scope.context.signal);
  }
}
