/**
 * `from.repository`: the versions of an earlier World of the namespace are brought into an own repository, under the same
 * numbers and digests, and the newest is head. Every step may be repeated; `latest` is written last and marks the end.
 */
import { counted, sourceOf, type WorldStatus, type WorldVersion } from "@agentworlds/crds";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../reconciler/reconcile.ts";
import { copyBlobs } from "../registry/copy.ts";
import { isRegistryError } from "../registry/errors.ts";
import { isRepository } from "../registry/reference.ts";
import { readBackVersion, versionTag } from "../snapshot/publish.ts";
import { enterLineage } from "./lineage-index.ts";
import { readVersions } from "./lineage-reader.ts";
import { rescuesKept } from "./lost-hold.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import { platformOfConfig } from "./platform.ts";
import { brokenLineage } from "./recover.ts";
import { type RecoveredLineage, rebuildLineage } from "./recovery.ts";
import type { WorldScope } from "./scope.ts";
import { explainOwnRegistryErrors } from "./source-errors.ts";
import { statusOf } from "./status-writer.ts";

export async function adoptRepository(scope: WorldScope): Promise<PhaseResult> {
  const { metadata, spec } = scope.world;
  if (statusOf(scope.world).head || metadata.deletionTimestamp) return CONTINUE;
  const source = sourceOf(spec);
  if (source.kind !== "Repository") return CONTINUE;
  const from = repositoryToAdopt(scope, source.name);
  const lineage = await readLineageOf(scope, from);
  const genesis = await genesisOf(scope, { from, lineage });
  await enterLineage(scope);
  const { copied, damaged } = await copyVersions(scope, { from, lineage });
  const adopted = await commitAdoption(scope, { lineage, copied, genesis });
  if (adopted) announceAdoption(scope, { from, copied, damaged });
  return CONTINUE;
}

/** Without the registry's host. Only repositories of Worlds of the own namespace; whatever it is, never the own one. */
function repositoryToAdopt(scope: WorldScope, name: string): string {
  const { registry, installation } = scope.dependencies;
  const below = `${registry.prefix}/${installation}/${scope.ref.namespace}/`;
  const host = `${registry.host}/`;
  const repository = name.startsWith(host) ? name.slice(host.length) : name;
  const rest = repository.startsWith(below) ? repository.slice(below.length) : "";
  const isWorldOfNamespace = rest !== "" && !rest.includes("/") && isRepository(repository);
  if (isWorldOfNamespace && repository !== repositoryInRegistry(scope)) return repository;
  throw new Terminal("RepositoryNotAllowed", {
    message: `${name} is no repository of an earlier World of this namespace, which are below ${host}${below}`,
    remediation: "create the World anew with a repository that is; see status.repository of the World that wrote it",
  });
}

async function readLineageOf(scope: WorldScope, from: string): Promise<RecoveredLineage> {
  const { registry } = scope.dependencies;
  const { signal } = scope.context;
  const pinned = scope.world.spec.retention?.pinned ?? [];
  const found = await explainOwnRegistryErrors(`reading the versions in ${from}`, async () => {
    const tags = await registry.client.listTags(from, signal);
    return readVersions(registry.client, { repository: from, tags, pinned }, signal);
  });
  const verdict = rebuildLineage({
    found,
    repository: registry.asWeNameIt(repositoryInRegistry(scope)),
    // The repository was named by the World's spec; it may itself have been adopted from another one.
    isOurs: () => true,
    pinned,
  });
  if (verdict.kind === "broken") throw brokenLineage(from, verdict.message);
  if (verdict.kind === "lineage") return verdict.lineage;
  throw new Waiting("LineageNotFound", {
    message: `${registry.asWeNameIt(from)} has no versions of a World`,
    remediation: "restore the registry, or create the World anew from another source",
    afterMs: 300_000,
  });
}

async function genesisOf(
  scope: WorldScope,
  { from, lineage }: { from: string; lineage: RecoveredLineage },
): Promise<NonNullable<WorldStatus["genesis"]>> {
  const { genesis, head, headConfig } = lineage;
  if (!genesis) throw brokenLineage(from, `version ${head.version} (${head.digest}) does not name its genesis`);
  const { client } = scope.dependencies.registry;
  const platform = await explainDamage(head, () =>
    platformOfConfig(client, { repository: from, config: headConfig }, scope.context.signal),
  );
  return { image: genesis.image, digest: genesis.digest, platform };
}

type Version = Pick<WorldVersion, "version" | "digest">;

interface Copied {
  readonly copied: readonly WorldVersion[];
  /** Older versions that the registry cannot give whole any more. */
  readonly damaged: readonly WorldVersion[];
}

/** Oldest first, so that the newest tag, and then `latest`, exist only when everything before them is there. */
async function copyVersions(
  scope: WorldScope,
  { from, lineage }: { from: string; lineage: RecoveredLineage },
): Promise<Copied> {
  const { client } = scope.dependencies.registry;
  const { signal } = scope.context;
  const to = repositoryInRegistry(scope);
  const there = new Set(await explainOwnRegistryErrors(`looking at ${to}`, () => client.listTags(to, signal)));
  const copied: WorldVersion[] = [];
  const damaged: WorldVersion[] = [];
  for (const version of lineage.versions) {
    signal.throwIfAborted();
    const isHead = version.digest === lineage.head.digest;
    const tag = versionTag(version.version);
    const isDone = !isHead && there.has(tag) && (await digestOfTag(scope, { to, tag })) === version.digest;
    const outcome = isDone ? "Copied" : await copyVersion(scope, { from, to, version });
    if (outcome === "Copied") copied.push(version);
    else if (isHead) throw damagedHead(version, outcome);
    else damaged.push(version);
  }
  await explainDamage(lineage.head, () => readBackVersion({ client, repository: to }, lineage.head.digest, signal));
  await putTag(scope, { to, tag: "latest", digest: lineage.head.digest });
  return { copied, damaged };
}

/** Blobs, then the manifest as it is, then its tag. Says what is missing when the source is not whole. */
async function copyVersion(
  scope: WorldScope,
  { from, to, version }: { from: string; to: string; version: Version },
): Promise<"Copied" | { missing: string }> {
  const { client } = scope.dependencies.registry;
  const { signal } = scope.context;
  try {
    const { bytes, mediaType, manifest } = await client.getManifest(from, version.digest, signal);
    if (manifest.kind === "index") return { missing: `${version.digest} is an index` };
    const blobs = [manifest.value.config, ...manifest.value.layers];
    await copyBlobs({ client, from, to, blobs, signal });
    await client.putManifest(to, { reference: version.digest, mediaType, bytes }, signal);
  } catch (error) {
    const isDamage = isRegistryError(error, "NotFound") || isRegistryError(error, "DigestMismatch");
    if (isDamage) return { missing: error.message };
    return explainOwnRegistryErrors(`adopting version ${version.version} of ${from}`, () => Promise.reject(error));
  }
  await putTag(scope, { to, tag: versionTag(version.version), digest: version.digest });
  return "Copied";
}

/** A version's tag is only ever created. `latest` has no other writer before there is a head. */
async function putTag(
  scope: WorldScope,
  { to, tag, digest }: { to: string; tag: string; digest: WorldVersion["digest"] },
): Promise<void> {
  const { client } = scope.dependencies.registry;
  const { signal } = scope.context;
  await explainOwnRegistryErrors(`tagging ${to}:${tag}`, async () => {
    const { bytes, mediaType } = await client.getManifest(to, digest, signal);
    const holder = tag === "latest" ? undefined : await digestOfTag(scope, { to, tag });
    if (holder === digest) return;
    if (holder !== undefined) throw tagTaken(to, { tag, holder, digest });
    await client.putManifest(to, { reference: tag, mediaType, bytes }, signal);
  });
}

const digestOfTag = (scope: WorldScope, { to, tag }: { to: string; tag: string }): Promise<string | undefined> =>
  explainOwnRegistryErrors(`reading ${to}:${tag}`, async () => {
    try {
      return (await scope.dependencies.registry.client.getManifest(to, tag, scope.context.signal)).digest;
    } catch (error) {
      if (isRegistryError(error, "NotFound")) return undefined;
      throw error;
    }
  });

const tagTaken = (to: string, { tag, holder, digest }: { tag: string; holder: string; digest: string }): Waiting =>
  new Waiting("TagTaken", {
    message: `tag ${tag} of ${to} names ${holder}, not ${digest}; it is not overwritten`,
    remediation: "remove the tag, and it is made anew",
    afterMs: 300_000,
  });

const damagedHead = ({ version, digest }: Version, { missing }: { missing: string }): Waiting =>
  new Waiting("HeadDamaged", {
    message: `version ${version} (${digest}), the newest to adopt, is not whole: ${missing}`,
    remediation:
      "restore what is missing; or delete the manifest of that version from the old repository, and the one before it is adopted as head",
    afterMs: 300_000,
  });

/** A blob or manifest that is not there is a finding about the version; everything else about the registry. */
async function explainDamage<R>(version: Version, call: () => Promise<R>): Promise<R> {
  try {
    return await call();
  } catch (error) {
    const isDamage = isRegistryError(error, "NotFound") || isRegistryError(error, "DigestMismatch");
    if (isDamage) throw damagedHead(version, { missing: error.message });
    return explainOwnRegistryErrors(`reading version ${version.version}`, () => Promise.reject(error));
  }
}

/** False: somebody else has given the World a head in the meantime. */
async function commitAdoption(
  scope: WorldScope,
  adoption: {
    readonly lineage: RecoveredLineage;
    readonly copied: readonly WorldVersion[];
    readonly genesis: NonNullable<WorldStatus["genesis"]>;
  },
): Promise<boolean> {
  const { lineage, copied, genesis } = adoption;
  const rescues = rescuesKept(scope);
  let isCommitted = false;
  scope.world = await scope.dependencies.writer.restore(
    scope.ref,
    (status) => {
      isCommitted = status.head === undefined;
      if (!isCommitted) return undefined;
      return {
        genesis,
        head: lineage.head,
        versions: [...copied],
        nextVersion: Math.max(status.nextVersion ?? 0, lineage.nextVersion),
        // Work of the earlier World that a host keeps is newer than its newest version: nothing boots over it unasked.
        ...(rescues.length > 0 && status.rescues === undefined ? { rescues } : {}),
      };
    },
    scope.context.signal,
  );
  return isCommitted;
}

function announceAdoption(scope: WorldScope, { from, copied, damaged }: Copied & { readonly from: string }): void {
  const head = statusOf(scope.world).head;
  const left = damaged.map(({ version, digest }) => `${version} (${digest})`).join(", ");
  scope.dependencies.announce(
    { kind: "World", object: scope.world },
    {
      type: left ? "Warning" : "Normal",
      reason: "LineageAdopted",
      action: "Adopt",
      message: `${counted(copied.length, "version")} of ${from} ${copied.length === 1 ? "was" : "were"} adopted, head is version ${head?.version}${left && `; not whole in the registry and left there: ${left}`}`,
    },
  );
}
