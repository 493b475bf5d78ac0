/**
 * A World whose status is older than its registry: etcd was restored from a backup. Going on from there would be silently in
 * an older state, so nothing boots until a person says that the registry's newest version is right (docs/adr/0012).
 */
import { ADOPT_HEAD, type World, type WorldStatus } from "@agentworlds/crds";
import { mergePatchBetween } from "../reconciler/patch.ts";
import { CONTINUE, type PhaseResult, requeueAfter } from "../reconciler/reconcile.ts";
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import { MOST_VERSIONS } from "./lineage.ts";
import { readVersions } from "./lineage-reader.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import { numberOfTag, type RecoveredLineage, rebuildLineage } from "./recovery.ts";
import type { WorldScope } from "./scope.ts";
import { statusOf, type WorldRef, type WorldStatusPatch, type WorldStatusWriter } from "./status-writer.ts";

/** What the registry has beyond head. */
export interface Ahead {
  readonly registryHead: NonNullable<WorldStatus["registryHead"]>;
  /** The newer versions; absent when the registry contradicts itself about them. */
  readonly newer?: RecoveredLineage;
}

interface Where {
  readonly registry: InstallationRegistry;
  readonly world: World;
  /** The World's repository without the registry's host. */
  readonly repository: string;
  readonly tags: readonly string[];
}

/** Versions of this World that are newer than head. One listing of tags decides; manifests are read only where it shows newer. */
export async function findAhead(where: Where, signal: AbortSignal): Promise<Ahead | undefined> {
  const { registry, world, repository } = where;
  const status = statusOf(world);
  const { head, registryHead } = status;
  if (!head) return undefined;
  const tags = where.tags.filter((tag) => (numberOfTag(tag) ?? -1) > head.version);
  if (tags.length === 0) return (await isStillThere(where, signal)) && registryHead ? { registryHead } : undefined;
  const found = await readVersions(registry.client, { repository, tags }, signal);
  const verdict = rebuildLineage({
    found,
    repository: registry.asWeNameIt(repository),
    isOurs: (uid) => uid === world.metadata.uid,
  });
  if (verdict.kind === "none") return undefined;
  const version = Math.max(...tags.map((tag) => numberOfTag(tag) ?? 0));
  if (verdict.kind === "broken" || !continues(status, verdict.lineage)) {
    return { registryHead: { version } };
  }
  const { digest, version: newest } = verdict.lineage.head;
  return { registryHead: { version: newest, digest }, newer: verdict.lineage };
}

/** A tag that is gone says little: what was seen to be newer is asked for by its digest before it counts as gone. */
async function isStillThere({ registry, world, repository }: Where, signal: AbortSignal): Promise<boolean> {
  const { head, registryHead } = statusOf(world);
  const { version = -1, digest } = registryHead ?? {};
  if (digest === undefined || version <= (head?.version ?? -1)) return false;
  try {
    await registry.client.getManifest(repository, digest, signal);
    return true;
  } catch (error) {
    if (isRegistryError(error, "NotFound")) return false;
    throw error;
  }
}

/** The first newer version derives from head, or from one in between that is gone; never from an older one that is known. */
function continues({ head, versions = [] }: WorldStatus, { versions: newer }: RecoveredLineage): boolean {
  const first = newer[0];
  if (!first || first.parent === head?.digest) return true;
  const isConsecutive = first.version === (head?.version ?? -1) + 1;
  return !isConsecutive && first.parent !== undefined && !versions.some(({ digest }) => digest === first.parent);
}

/** Writes down that nothing may boot, unless the World has moved on in the meantime. Returns the World as it is then. */
export const recordAhead = (
  writer: WorldStatusWriter,
  ref: WorldRef,
  { ahead, signal }: { readonly ahead: Ahead; readonly signal: AbortSignal },
): Promise<World> =>
  writer.restore(
    ref,
    (status) => {
      const { head, registryHead: known } = status;
      const { registryHead } = ahead;
      // The cache may not have shown a commit whose tag the listing did show.
      if (head && head.version >= registryHead.version) return undefined;
      const isKnown = known?.version === registryHead.version && known.digest === registryHead.digest;
      // A merge patch of the new value alone would leave the digest of another version beside the number.
      return isKnown ? undefined : mergePatchBetween(status, { ...status, registryHead });
    },
    signal,
  );

/** Compares the tags with head; adopts the newer versions where the World's annotation names the newest of them. */
export async function lookBeyondHead(scope: WorldScope): Promise<PhaseResult> {
  if (!statusOf(scope.world).head) return CONTINUE;
  const { registry, writer } = scope.dependencies;
  const { signal } = scope.context;
  const repository = repositoryInRegistry(scope);
  let ahead: Ahead | undefined;
  try {
    scope.tags = await registry.client.listTags(repository, signal);
    ahead = await findAhead({ registry, repository, world: scope.world, tags: scope.tags }, signal);
  } catch (error) {
    // What was found before stands; head's own look says that the registry cannot be asked.
    if (!(error instanceof RegistryError)) throw error;
    return statusOf(scope.world).registryHead ? requeueAfter(60_000) : CONTINUE;
  }
  if (!ahead) return forgetAhead(scope);
  const wanted = scope.world.metadata.annotations?.[ADOPT_HEAD];
  if (ahead.newer && wanted === ahead.newer.head.digest) return adopt(scope, ahead.newer);
  scope.world = await recordAhead(writer, scope.ref, { ahead, signal });
  // Neither tags nor old versions are touched while it is open which version is head.
  return statusOf(scope.world).registryHead ? requeueAfter(300_000) : CONTINUE;
}

async function forgetAhead(scope: WorldScope): Promise<PhaseResult> {
  const { registryHead } = statusOf(scope.world);
  if (!registryHead) return CONTINUE;
  const { writer } = scope.dependencies;
  scope.world = await writer.restore(
    scope.ref,
    (status) => (status.registryHead?.version === registryHead.version ? { registryHead: null } : undefined),
    scope.context.signal,
  );
  return CONTINUE;
}

async function adopt(scope: WorldScope, newer: RecoveredLineage): Promise<PhaseResult> {
  const { writer, announce } = scope.dependencies;
  const before = statusOf(scope.world).head;
  let isAdopted = false;
  scope.world = await writer.restore(
    scope.ref,
    (status) => {
      isAdopted = status.head !== undefined && status.head.version < newer.head.version;
      return isAdopted ? adoptionPatch(status, newer) : undefined;
    },
    scope.context.signal,
  );
  if (!isAdopted) return CONTINUE;
  announce(
    { kind: "World", object: scope.world },
    {
      type: "Normal",
      reason: "HeadAdopted",
      action: "Adopt",
      message: `version ${newer.head.version} (${newer.head.digest}) is head, by annotation ${ADOPT_HEAD}; it was version ${before?.version} (${before?.digest})`,
    },
  );
  return CONTINUE;
}

/** A reservation below the adopted head was made on a head that is none any more: its session's base lies behind. */
function adoptionPatch(status: WorldStatus, newer: RecoveredLineage): WorldStatusPatch {
  const known = status.versions ?? [];
  const added = newer.versions.filter(({ digest }) => !known.some((version) => version.digest === digest));
  const nextVersion = Math.max(status.nextVersion ?? 0, newer.nextVersion);
  const isStale = status.pending !== undefined && status.pending.version < newer.nextVersion;
  return {
    head: newer.head,
    versions: [...known, ...added].slice(-MOST_VERSIONS),
    nextVersion,
    registryHead: null,
    ...(isStale ? { pending: null } : {}),
  };
}
