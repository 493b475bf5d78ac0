/**
 * A World whose status was lost: the repository derives from its UID, so what lies there is its own lineage, and going on
 * with it is right. Everything is rebuilt from manifests; holder and rescues only from what proves them (docs/adr/0012).
 */
import { counted, type Sandbox, type WorldHolder, type WorldRescue, type WorldStatus } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { creatorOf } from "./creator.ts";
import { readVersions } from "./lineage-reader.ts";
import { rescuesKept } from "./lost-hold.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import { platformOfConfig } from "./platform.ts";
import { type RecoveredLineage, rebuildLineage } from "./recovery.ts";
import type { WorldScope } from "./scope.ts";
import { rememberedVersions, sessionsNow, writingSessions } from "./sessions.ts";
import { explainOwnRegistryErrors } from "./source-errors.ts";
import { statusOf, WORLD_FINALIZER, type WorldStatusPatch } from "./status-writer.ts";

/** Whether the status does not say what a World with versions must say. A new World is like one whose status was lost. */
export const isLineageLost = ({ head, versions, nextVersion, genesis }: WorldStatus): boolean =>
  head === undefined ||
  nextVersion === undefined ||
  genesis === undefined ||
  versions?.some(({ digest }) => digest === head.digest) !== true;

/** Rebuilds a lost status from the World's own repository; finds nothing to do in a new World. */
export async function recoverLineage(scope: WorldScope): Promise<PhaseResult> {
  const before = statusOf(scope.world);
  const { deletionTimestamp, finalizers } = scope.world.metadata;
  const isGoing = deletionTimestamp !== undefined && !finalizers?.includes(WORLD_FINALIZER);
  if (before.repository === undefined || isGoing || !isLineageLost(before)) return CONTINUE;
  const { writer } = scope.dependencies;
  const { signal } = scope.context;
  const repository = repositoryInRegistry(scope);
  const sessions = await sessionsNow(scope);
  const lineage = await readOwnLineage(scope, { repository, sessions });
  if (!lineage) return CONTINUE;
  const genesis = await requireGenesis(scope, { repository, lineage });
  const holder = before.holder === undefined ? provenHolder(scope, sessions) : undefined;
  const rescues = rescuesKept(scope);
  let isRestored = false;
  scope.world = await writer.restore(
    scope.ref,
    (status) => {
      isRestored = isLineageLost(status);
      return isRestored ? patchOf(status, { lineage, genesis, holder, rescues }) : undefined;
    },
    signal,
  );
  if (isRestored) announceRecovery(scope, lineage, holder);
  return CONTINUE;
}

interface Evidence {
  readonly lineage: RecoveredLineage;
  readonly genesis: NonNullable<WorldStatus["genesis"]>;
  readonly holder: WorldHolder | undefined;
  readonly rescues: readonly WorldRescue[];
}

/** What is left of the status stays; what is lost is filled in. Head is moved by no rebuild. */
function patchOf(status: WorldStatus, { lineage, genesis, holder, rescues }: Evidence): WorldStatusPatch {
  const head = status.head ?? lineage.head;
  return {
    genesis: status.genesis ?? genesis,
    head,
    versions: lineage.versions.filter(({ version }) => version <= head.version),
    nextVersion: Math.max(status.nextVersion ?? 0, lineage.nextVersion),
    ...(holder && status.holder === undefined ? { holder } : {}),
    ...(rescues.length > 0 && status.rescues === undefined ? { rescues: [...rescues] } : {}),
  };
}

async function readOwnLineage(
  scope: WorldScope,
  { repository, sessions }: { repository: string; sessions: readonly Sandbox[] },
): Promise<RecoveredLineage | undefined> {
  const { registry } = scope.dependencies;
  const { signal } = scope.context;
  const { uid } = scope.ref;
  const { retention, from } = scope.world.spec;
  const pinned = retention?.pinned ?? [];
  const found = await explainOwnRegistryErrors(`reading the versions in ${repository}`, async () => {
    const tags = await registry.client.listTags(repository, signal);
    // An adoption that has not put `latest` there is not finished: it goes on with what it adopts.
    if (from.repository && !tags.includes("latest")) return [];
    return readVersions(
      registry.client,
      { repository, tags, remembered: rememberedVersions(sessions, uid), pinned },
      signal,
    );
  });
  const verdict = rebuildLineage({
    found,
    repository: registry.asWeNameIt(repository),
    // What a World adopted was made by others.
    isOurs: (worldUid) => worldUid === uid || from.repository !== undefined,
    pinned,
  });
  if (verdict.kind === "broken") throw brokenLineage(repository, verdict.message);
  return verdict.kind === "none" ? undefined : verdict.lineage;
}

/** The registry contradicts itself: a person has to say which version is right; it is looked at again all the same. */
export const brokenLineage = (repository: string, message: string): Waiting =>
  new Waiting("LineageBroken", {
    message: `the newest version in ${repository} cannot be told: ${message}`,
    remediation: "restore what is missing in the registry, or delete the manifest that does not belong there",
    afterMs: 300_000,
  });

async function requireGenesis(
  scope: WorldScope,
  { repository, lineage }: { repository: string; lineage: RecoveredLineage },
): Promise<NonNullable<WorldStatus["genesis"]>> {
  const { genesis, head, headConfig } = lineage;
  if (!genesis) throw brokenLineage(repository, `version ${head.version} (${head.digest}) does not name its genesis`);
  const { image, digest, platform } = genesis;
  if (platform) return { image, digest, platform };
  const { client } = scope.dependencies.registry;
  const { signal } = scope.context;
  return {
    image,
    digest,
    platform: await explainOwnRegistryErrors(`reading the config of version ${head.version}`, () =>
      platformOfConfig(client, { repository, config: headConfig }, signal),
    ),
  };
}

/** The one session whose work would become a version. Its own phases end the hold, as they do after any restart. */
function provenHolder(scope: WorldScope, sessions: readonly Sandbox[]): WorldHolder | undefined {
  const [session, other] = writingSessions(sessions, scope.ref.uid);
  if (!session) return undefined;
  const { name, uid } = session.metadata;
  if (other) {
    throw new Waiting("HolderUnclear", {
      message: `the World's status was lost, and Sandboxes ${name} and ${other.metadata.name} both have compute that writes to it`,
      remediation: "end one of them with closePolicy Discard, or delete it; then the other goes on as the holder",
      afterMs: 30_000,
    });
  }
  const acquiredAt = new Date(scope.context.clock.now()).toISOString();
  return { sandbox: name, uid, causedBy: creatorOf(session), acquiredAt };
}

function announceRecovery(scope: WorldScope, lineage: RecoveredLineage, holder: WorldHolder | undefined): void {
  const { head, versions } = lineage;
  const lost = lineage.ignored.map(({ reference, because }) => `${reference} (${because})`).join(", ");
  scope.dependencies.announce(
    { kind: "World", object: scope.world },
    {
      // As after an adoption: what healed by itself and lost nothing is no warning.
      type: lost ? "Warning" : "Normal",
      reason: "LineageRecovered",
      action: "Recover",
      message: [
        `the status was lost and is read back from ${statusOf(scope.world).repository}: ${counted(versions.length, "version")}, head is version ${head.version} (${head.digest})`,
        ...(holder ? [`Sandbox ${holder.sandbox} holds the World`] : []),
        ...(lost ? [`not taken over: ${lost}`] : []),
      ].join("; "),
    },
  );
}
