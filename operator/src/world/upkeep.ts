/** What every later pass over a World does: prove head, observe the tags of its versions, let old versions go. */
import type { Sandbox, WorldVersion } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult, requeueAfter } from "../reconciler/reconcile.ts";
import type { Digest } from "../registry/contract.ts";
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import { isFirstBoot } from "../runtime/open-boot.ts";
import { type HeadProof, proveHead, repairLineageTags, type VersionPointer } from "../snapshot/publish.ts";
import { rescuesKept } from "./lost-hold.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import {
  judgeListing,
  judgeRetention,
  MOST_PRUNED,
  NEWEST_LISTED,
  type PrunedVersion,
  type RetentionVerdict,
  roomForPruned,
  withPruned,
} from "./retention.ts";
import type { HeadFinding, WorldScope } from "./scope.ts";
import { sessionsNow } from "./sessions.ts";
import { registryReason } from "./source-errors.ts";
import { statusOf } from "./status-writer.ts";

/** Tags are observed and repaired by every pass, they are not stages of a publication. */
export async function repairTags(scope: WorldScope): Promise<PhaseResult> {
  const { head } = statusOf(scope.world);
  if (!head) return CONTINUE;
  let proof: HeadProof;
  try {
    const { registry } = scope.dependencies;
    proof = await proveHead(
      { client: registry.client, repository: repositoryInRegistry(scope) },
      head,
      scope.context.signal,
    );
  } catch (error) {
    // A World stays bootable while its registry cannot be asked: say so, and look again in the next pass.
    if (!(error instanceof RegistryError)) throw error;
    scope.head = { status: "Unknown", reason: registryReason(error), message: error.message };
    return CONTINUE;
  }
  scope.head = headFinding(head, proof);
  await repairAllTags(scope, { head, proof });
  return CONTINUE;
}

function headFinding(head: VersionPointer, { manifest }: HeadProof): HeadFinding {
  const version = `version ${head.version} (${head.digest})`;
  switch (manifest) {
    case "There":
      return { status: "True", reason: "HeadAvailable", message: `${version} is in the registry` };
    case "Missing":
      return {
        status: "False",
        reason: "HeadNotFound",
        message: `the registry has no manifest of ${version}; restore the registry, nothing boots without it`,
      };
    case "Corrupt":
      return {
        status: "False",
        reason: "HeadMismatch",
        message: `the manifest of ${version} reads back as other bytes; restore the registry`,
      };
  }
}

async function repairAllTags(scope: WorldScope, found: { head: VersionPointer; proof: HeadProof }): Promise<void> {
  const { registry, writer } = scope.dependencies;
  const { signal } = scope.context;
  const repository = repositoryInRegistry(scope);
  try {
    const { taken, lost } = await repairLineageTags(
      { client: registry.client, repository },
      {
        ...found,
        tags: scope.tags,
        versions: statusOf(scope.world).versions ?? [],
        readHead: async () => statusOf(await writer.read(scope.ref, signal)).head?.digest,
      },
      signal,
    );
    for (const { version, digest, holder } of taken.slice(0, 1)) {
      problem(scope, "TagTaken", {
        reason: "TagTaken",
        message: `tag v${version} names ${holder}, not ${digest}; it is not overwritten: remove the tag, and it is made anew`,
      });
    }
    const missing = lost.filter(({ version }) => version !== found.head.version);
    if (missing.length > 0) {
      problem(scope, "VersionsMissing", {
        reason: "VersionsMissing",
        message: `the registry has no readable manifest of ${named(missing)}`,
      });
    }
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    problem(scope, "TagsNotRepaired", { reason: registryReason(error), message: error.message });
  }
}

/** Versions beyond the limit leave status first, then the registry: a crash in between leaves bytes, never a dead entry. */
export async function retain(scope: WorldScope): Promise<PhaseResult> {
  const status = statusOf(scope.world);
  if (!status.versions || !status.head || status.pending) return CONTINUE;
  const isDue = (status.prunedVersions ?? []).some((pruned) => pruned.deletedAt === undefined);
  if (!isDue && !isAnyToLeave(scope, scope.dependencies.sandboxes.list())) return CONTINUE;
  const sessions = await sessionsNow(scope);
  // A session records its rescue before it lets go of its compute: whoever of them is gone by now is on the World as it is now.
  if (!(await isUnmoved(scope))) return requeueAfter(30_000);
  // The holder has read the version it boots from and not recorded it yet: what it is cannot be known.
  if (isHolderBooting(scope, sessions)) return requeueAfter(30_000);
  await unlist(scope, judge(scope, sessions));
  await shorten(scope, judgeList(scope, sessions));
  return deletePrunedManifests(scope, digestsInUse(scope, sessions));
}

const isAnyToLeave = (scope: WorldScope, sessions: readonly Sandbox[]): boolean =>
  judge(scope, sessions).remove.length > 0 || judgeList(scope, sessions).length > 0;

function judge(scope: WorldScope, sessions: readonly Sandbox[]): RetentionVerdict {
  const keepVersions = scope.world.spec.retention?.keepVersions ?? DEFAULT_KEPT;
  return judgeRetention({ ...lineageOf(scope, sessions), keepVersions });
}

/** Nothing leaves the list while the registry's tags are not known. */
const judgeList = (scope: WorldScope, sessions: readonly Sandbox[]): WorldVersion[] =>
  judgeListing({ ...lineageOf(scope, sessions), tags: scope.tags ?? [] });

function lineageOf(scope: WorldScope, sessions: readonly Sandbox[]) {
  const { versions = [], head } = statusOf(scope.world);
  const pinned = scope.world.spec.retention?.pinned ?? [];
  return { versions, headVersion: head?.version, pinned, inUse: digestsInUse(scope, sessions) };
}

/** The list in status is bounded also where nothing may be deleted, or nothing can be: the registry has the whole history. */
async function shorten(scope: WorldScope, leaving: readonly WorldVersion[]): Promise<void> {
  if (leaving.length === 0) return;
  const { versions = [] } = statusOf(scope.world);
  const { dependencies, context } = scope;
  scope.world = await dependencies.writer.summarise(
    scope.world,
    { versions: versions.filter((version) => !leaving.includes(version)) },
    context.signal,
  );
  dependencies.announce(
    { kind: "World", object: scope.world },
    {
      type: "Normal",
      reason: "Unlisted",
      action: "Unlist",
      message: `${named(leaving)} ${leaving.length === 1 ? "is" : "are"} in the registry only: status.versions lists the newest ${NEWEST_LISTED} and those that are pinned or in use`,
    },
  );
}

async function unlist(scope: WorldScope, { remove, skipped }: RetentionVerdict): Promise<void> {
  const { versions = [], prunedVersions = [] } = statusOf(scope.world);
  const leaving = remove.slice(0, Math.max(0, Math.min(roomForPruned(prunedVersions), MOST_PRUNED)));
  if (leaving.length === 0) return;
  const prunedAt = new Date(scope.context.clock.now()).toISOString();
  scope.world = await scope.dependencies.writer.summarise(
    scope.world,
    {
      versions: versions.filter((version) => !leaving.includes(version)),
      prunedVersions: withPruned(prunedVersions, leaving, prunedAt),
    },
    scope.context.signal,
  );
  const { keepVersions } = scope.world.spec.retention ?? {};
  const kept = skipped.map(({ version, reason }) => `${version} (${reason})`).join(", ");
  scope.dependencies.announce(
    { kind: "World", object: scope.world },
    {
      type: "Normal",
      reason: "Pruned",
      action: "Prune",
      message: `${named(leaving)} ${leaving.length === 1 ? "goes" : "go"}: spec.retention.keepVersions is ${keepVersions ?? DEFAULT_KEPT}${kept && `; kept beyond it: ${kept}`}`,
    },
  );
}

/** Manifests of pruned versions go by digest. Absent is a success, so a pass after a crash finishes the work. */
async function deletePrunedManifests(scope: WorldScope, inUse: ReadonlySet<string>): Promise<PhaseResult> {
  const { prunedVersions = [], versions = [] } = statusOf(scope.world);
  const live = new Set<string>([...versions.map((version) => version.digest), ...inUse]);
  const isDue = (pruned: PrunedVersion) => pruned.deletedAt === undefined;
  const doomed = prunedVersions.filter((pruned) => isDue(pruned) && !live.has(pruned.digest));
  const { client } = scope.dependencies.registry;
  const repository = repositoryInRegistry(scope);
  const deleted = new Set<Digest>();
  let failure: RegistryError | undefined;
  for (const { digest } of doomed) {
    scope.context.signal.throwIfAborted();
    try {
      await client.deleteManifest(repository, digest, scope.context.signal);
      deleted.add(digest);
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
      failure = error;
      break;
    }
  }
  if (deleted.size > 0) {
    const deletedAt = new Date(scope.context.clock.now()).toISOString();
    const confirmed = prunedVersions.map((pruned) =>
      isDue(pruned) && deleted.has(pruned.digest) ? { ...pruned, deletedAt } : pruned,
    );
    scope.world = await scope.dependencies.writer.summarise(
      scope.world,
      { prunedVersions: confirmed },
      scope.context.signal,
    );
  }
  if (failure) {
    problem(scope, "PrunedNotDeleted", { reason: registryReason(failure), message: failure.message });
    return requeueAfter(isRegistryError(failure, "Unavailable") ? 30_000 : 600_000);
  }
  // What a session still needs is looked at again when its compute goes, and at the latest then.
  return statusOf(scope.world).prunedVersions?.some(isDue) ? requeueAfter(600_000) : CONTINUE;
}

async function isUnmoved({ world, ref, dependencies, context }: WorldScope): Promise<boolean> {
  const { metadata } = await dependencies.writer.read(ref, context.signal);
  return metadata.resourceVersion === world.metadata.resourceVersion;
}

function isHolderBooting(scope: WorldScope, sessions: readonly Sandbox[]): boolean {
  const { holder } = statusOf(scope.world);
  const session = holder && sessions.find((sandbox) => sandbox.metadata.uid === holder.uid);
  return holder !== undefined && session?.status?.compute === undefined;
}

/**
 * Digests that a Sandbox of this World booted from, is based on, or will boot from by number; and those of kept work, whose
 * version is made from the one it was booted from when nothing has compute any more, and is looked for in the list afterwards.
 */
function digestsInUse(scope: WorldScope, sessions: readonly Sandbox[]): ReadonlySet<string> {
  const { versions = [], rescues = [] } = statusOf(scope.world);
  const ours = sessions.filter(
    ({ metadata, spec }) => metadata.namespace === scope.ref.namespace && spec.world?.name === scope.ref.name,
  );
  const digests = ours.flatMap(({ spec, status }) => {
    if (status?.compute) return [status.bootedFrom?.digest, status.base?.digest];
    const bootsByNumber = isFirstBoot(status ?? {}) && !status?.closed;
    return bootsByNumber ? [versions.find((version) => version.version === spec.world?.version)?.digest] : [];
  });
  const kept = [...rescues, ...rescuesKept(scope)].flatMap(({ bootedFrom, base, operation }) => [
    bootedFrom,
    base,
    versions.find((version) => version.operation === operation)?.digest,
  ]);
  return new Set([...digests, ...kept].filter((digest) => digest !== undefined));
}

/** `version 3`, `versions 3, 4`. */
const named = (versions: readonly { readonly version: number }[]): string =>
  `${versions.length === 1 ? "version" : "versions"} ${versions.map(({ version }) => version).join(", ")}`;

/** As the schema has it. */
const DEFAULT_KEPT = 10;

function problem(
  scope: WorldScope,
  type: WorldScope["problems"][number]["type"],
  found: { reason: string; message: string },
) {
  scope.problems = [...scope.problems, { type, ...found }];
}
