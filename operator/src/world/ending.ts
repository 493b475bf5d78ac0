/** The World's finalizer, and the end of a World that is being deleted: waited for by name, and never for ever. */
import { clip, LIMITS, type World, type WorldRescue } from "@agentworlds/crds";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { CONTINUE, type PhaseResult, STOP } from "../reconciler/reconcile.ts";
import type { Digest } from "../registry/contract.ts";
import { isRegistryError, RegistryError } from "../registry/errors.ts";
import { operationOfTag } from "../snapshot/docker-commit.ts";
import { rescueTag } from "../snapshot/publish.ts";
import { worldUidIn } from "../snapshot/version-annotations.ts";
import { whyForced } from "./forced-end.ts";
import { unpublishedRescues } from "./lineage.ts";
import { leaveIndex } from "./lineage-index.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import { numberOfTag } from "./recovery.ts";
import { judgeRescue } from "./rescue/judge.ts";
import { placeOf } from "./rescue/tend.ts";
import type { WorldScope } from "./scope.ts";
import { registryReason } from "./source-errors.ts";
import { statusOf, WORLD_FINALIZER } from "./status-writer.ts";

/**
 * The last bound of a deletion: whatever the phases wait for or fail on, a World does not hold its namespace for longer than
 * twice the deletion's deadline, and not at all when somebody says so.
 */
export async function letGo(scope: WorldScope): Promise<PhaseResult> {
  const { metadata, spec } = scope.world;
  const { deletionDeadlineMs } = scope.dependencies.limits;
  const why = whyForced(metadata, { now: scope.context.clock.now(), deletionDeadlineMs });
  if (why === undefined || !metadata.finalizers?.includes(WORLD_FINALIZER)) return CONTINUE;
  const { holder, pending, repository } = statusOf(scope.world);
  const rescues = unpublishedRescues(statusOf(scope.world));
  scope.world = await scope.dependencies.writer.setFinalizer(scope.world, false, scope.context.signal);
  scope.ended = true;
  const left = [
    ...(holder ? [`Sandbox ${holder.sandbox} was still working in it`] : []),
    ...(pending ? [`version ${pending.version} was being published`] : []),
    ...rescues.map((rescue) => `work is kept on ${placeOf(rescue)} until ${rescue.expiresAt}`),
    ...(spec.deletionPolicy === "Delete" ? [`${repository} still holds its versions`] : []),
  ];
  const message = clip([`the World is gone: ${why}`, ...left].join("; "), LIMITS.message);
  scope.dependencies.log.error({ world: scope.ref, holder, pending, rescues }, message);
  scope.dependencies.announce(
    { kind: "World", object: scope.world },
    { type: "Warning", reason: "FinalizerSkipped", action: "Delete", message },
  );
  return STOP;
}

/**
 * The finalizer is there exactly while the World is held, pending, has work to rescue (docs/adr/0011), or must take its
 * content along (DESIGN §4.3).
 * A World that is being deleted waits for its holder to end; the holder's Sandbox sees the deletion and publishes first.
 */
export async function keepFinalizer(scope: WorldScope): Promise<PhaseResult> {
  const { metadata, spec } = scope.world;
  const { holder, pending } = statusOf(scope.world);
  const { writer } = scope.dependencies;
  const { signal } = scope.context;
  if (!metadata.deletionTimestamp) {
    const isHeld =
      holder !== undefined || pending !== undefined || unpublishedRescues(statusOf(scope.world)).length > 0;
    const isNeeded = isHeld || spec.deletionPolicy === "Delete";
    scope.world = await writer.setFinalizer(scope.world, isNeeded, signal);
    return CONTINUE;
  }
  if (metadata.finalizers?.includes(WORLD_FINALIZER)) {
    requireNoSession(scope);
    requireNoRescue(scope);
    if (spec.deletionPolicy === "Delete") await deleteOrKeepContent(scope);
    scope.world = await writer.setFinalizer(scope.world, false, signal);
  }
  scope.ended = true;
  return STOP;
}

/** Milliseconds until a deletion goes on without what it waits for; 0 when it is overdue. */
function untilDeadline({ world, dependencies, context }: WorldScope): number {
  const since = Date.parse(world.metadata.deletionTimestamp ?? "");
  return Math.max(0, since + dependencies.limits.deletionDeadlineMs - context.clock.now());
}

/** A holder that lives ends by itself, once the deletion is overdue with its work as a rescue; one that is lost is waited for no longer than the deadline: its work is a rescue. */
function requireNoSession(scope: WorldScope): void {
  const { holder, pending } = statusOf(scope.world);
  const session = holder?.sandbox ?? pending?.sandbox?.name;
  if (session === undefined) return;
  if (scope.lostHold) {
    const left = untilDeadline(scope);
    if (left > 0) throw new Waiting(scope.lostHold.reason, { ...scope.lostHold, afterMs: Math.min(left, 30_000) });
    return;
  }
  throw new Waiting(holder ? "HolderEnding" : "PublicationPending", {
    message: holder
      ? `the deletion waits for Sandbox ${session}, which publishes its work and ends`
      : `the deletion waits for version ${pending?.version}, which Sandbox ${session} publishes`,
    remediation: "see the Sandbox's conditions",
    afterMs: 60_000,
  });
}

/** Work that may still become a version is waited for as long as a snapshot would be. It stays on its Runtime in any case. */
function requireNoRescue(scope: WorldScope): void {
  const rescues = unpublishedRescues(statusOf(scope.world));
  if (rescues.length === 0) return;
  const left = untilDeadline(scope);
  const names = rescues.map(({ operation }) => operation).join(", ");
  const isWaitedFor = scope.world.spec.deletionPolicy !== "Delete" && rescues.some((one) => mayBePublished(scope, one));
  if (left > 0 && isWaitedFor) {
    throw new Waiting("RescuePending", {
      message: `the deletion waits for unpublished work (rescues ${names}): ${rescues[0]?.lastError ?? rescues[0]?.message}`,
      remediation: "discard the rescues, or wait",
      afterMs: Math.min(left, scope.rescueDueMs ?? left, 30_000),
    });
  }
  const { dependencies, world } = scope;
  dependencies.log.error(
    { rescues },
    "a World ended while work of it is in no version; its Runtimes keep it for a while",
  );
  dependencies.announce(
    { kind: "World", object: world },
    {
      type: "Warning",
      reason: "RescueLeftBehind",
      action: "Delete",
      message: `the World is gone and work of it is in no version: ${rescues.map((one) => `${placeOf(one)} until ${one.expiresAt}`).join("; ")}`,
    },
  );
}

function mayBePublished({ world, context }: WorldScope, rescue: WorldRescue): boolean {
  const step = judgeRescue(statusOf(world), rescue, { now: context.clock.now(), isAsked: false });
  return step.kind === "attempt" || step.kind === "wait";
}

async function deleteOrKeepContent(scope: WorldScope): Promise<void> {
  try {
    await deleteContent(scope);
  } catch (error) {
    const isMoved = error instanceof Terminal && error.reason === "RegistryMoved";
    if (!(error instanceof RegistryError) && !isMoved) throw error;
    const left = untilDeadline(scope);
    if (left > 0) {
      throw new Waiting(reasonToWait(error), {
        message: `the versions in ${statusOf(scope.world).repository} are not deleted yet: ${error.message}`,
        remediation: `it is tried again; the World goes without it in ${Math.ceil(scope.dependencies.limits.deletionDeadlineMs / 1000)} s after its deletion`,
        afterMs: Math.min(left, 15_000),
        cause: error,
      });
    }
    announceKept(scope, scope.world, error.message);
  }
}

const reasonToWait = (error: Error): string => {
  if (error instanceof RegistryError) return registryReason(error);
  return error instanceof Terminal ? error.reason : "RegistryRefused";
};

function announceKept({ dependencies }: WorldScope, world: World, because: string): void {
  const { repository } = statusOf(world);
  dependencies.log.warn({ repository, because }, "a World ended and its versions are still in the registry");
  dependencies.announce(
    { kind: "World", object: world },
    {
      type: "Warning",
      reason: "ContentKept",
      action: "Delete",
      message: `the World is gone and ${repository} still holds its versions: ${because}; delete the repository by hand`,
    },
  );
}

/** Every manifest that may exist: versions, listed or not, pruned ones that were due, and captures that a session left behind. */
async function deleteContent(scope: WorldScope): Promise<void> {
  const { versions = [], prunedVersions = [], repository } = statusOf(scope.world);
  if (!repository) return;
  const { client } = scope.dependencies.registry;
  const { signal } = scope.context;
  const name = repositoryInRegistry(scope);
  const due = prunedVersions.filter((pruned) => pruned.deletedAt === undefined);
  const known = [...versions, ...due].map((version) => version.digest);
  for (const digest of new Set([...(await taggedDigests(scope, name)), ...known])) {
    signal.throwIfAborted();
    await client.deleteManifest(name, digest, signal);
  }
  await leaveIndex(scope);
}

/** What sessions left behind, and rescues that were exported. */
const isBesideLineage = (tag: string): boolean => operationOfTag(tag) !== undefined || tag.startsWith(rescueTag(""));

/** Status does not list every version (DESIGN §3). What stands under a version's tag and is none is somebody else's. */
async function taggedDigests(scope: WorldScope, repository: string): Promise<Digest[]> {
  const { client } = scope.dependencies.registry;
  const { signal } = scope.context;
  const listed = new Set(statusOf(scope.world).versions?.map(({ version }) => version));
  const digests: Digest[] = [];
  for (const tag of await client.listTags(repository, signal)) {
    const number = numberOfTag(tag);
    const isUnlisted = number !== undefined && !listed.has(number);
    if (!isUnlisted && !isBesideLineage(tag)) continue;
    try {
      const { digest, manifest } = await client.getManifest(repository, tag, signal);
      const annotations = manifest.kind === "image" ? manifest.value.annotations : undefined;
      if (!isUnlisted || worldUidIn(annotations) !== undefined) digests.push(digest);
    } catch (error) {
      if (!isRegistryError(error, "NotFound")) throw error;
    }
  }
  return digests;
}
