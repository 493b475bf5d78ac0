/**
 * Earlier Worlds of the same namespace and name: their versions are still in the registry when a cluster was emptied or a
 * World is made again by GitOps. None of them is started over behind its back (docs/adr/0012).
 */
import { Terminal } from "../reconciler/policy.ts";
import { isRegistryError } from "../registry/errors.ts";
import { LINEAGE_ID_LENGTH, worldRepository } from "../registry/installation.ts";
import { versionTag } from "../snapshot/publish.ts";
import { lineagesInIndex } from "./lineage-index.ts";
import { repositoryInRegistry } from "./own-repository.ts";
import { numberOfTag } from "./recovery.ts";
import type { WorldScope } from "./scope.ts";
import { rememberedVersions, sessionsNow } from "./sessions.ts";
import { explainOwnRegistryErrors } from "./source-errors.ts";

/** Annotation: repositories (their last path component, by comma) beside which the World starts anew. */
export const IGNORE_LINEAGES = "agentworlds.dev/ignore-lineages";

/** A repository of an earlier World that has versions. */
interface PreviousLineage {
  readonly repository: string;
  readonly newest: number;
}

/**
 * Throws `PreviousLineageFound` unless the World's annotation names each of them. The index has every World that was made or
 * seen by an operator that keeps one; older ones only the catalog knows, and it is said when it is not shown.
 */
export async function demandNoPreviousLineage(scope: WorldScope): Promise<void> {
  const catalogued = await repositoriesInCatalog(scope);
  const own = repositoryInRegistry(scope);
  const known = [...(await lineagesInIndex(scope)), ...(catalogued === "Unlisted" ? [] : catalogued)];
  const repositories = [...new Set(known)].filter((one) => one !== own).sort();
  const ignored = ignoredLineages(scope);
  const found: PreviousLineage[] = [];
  for (const repository of repositories.filter((name) => !ignored.has(lastComponent(name)))) {
    const newest = await newestWork(scope, repository);
    if (newest !== undefined) found.push({ repository, newest });
  }
  const [first] = found;
  if (!first) {
    if (catalogued === "Unlisted") announceUnlisted(scope);
    return;
  }
  const { asWeNameIt } = scope.dependencies.registry;
  const named = found.map(({ repository, newest }) => `${asWeNameIt(repository)} (newest version ${newest})`);
  throw new Terminal("PreviousLineageFound", {
    message: `an earlier World of this name left versions: ${named.join(", ")}`,
    remediation: `to go on with one, make the World anew with spec.from.repository.name: ${asWeNameIt(first.repository)}; to start anew beside them, \`${commandToIgnore(scope, found)}\``,
  });
}

/** With those that are ignored already: an annotation is replaced as a whole. */
function commandToIgnore(scope: WorldScope, found: readonly PreviousLineage[]): string {
  const { namespace, name } = scope.ref;
  const all = [...ignoredLineages(scope), ...found.map(({ repository }) => lastComponent(repository))].sort();
  return `kubectl annotate world ${name} -n ${namespace} --overwrite ${IGNORE_LINEAGES}=${all.join(",")}`;
}

/** `<prefix>/<installation>/<namespace>/<world>-<8 characters of a UID>`. */
async function repositoriesInCatalog(scope: WorldScope): Promise<readonly string[] | "Unlisted"> {
  const { registry, installation } = scope.dependencies;
  const { namespace, name } = scope.ref;
  const prefix = worldRepository(registry.prefix, { installation, namespace, world: name, uid: "" });
  try {
    const listed = await registry.client.listRepositories(prefix, scope.context.signal);
    if (listed === "NoCatalog") return "Unlisted";
    return listed.filter((one) => isLineageId(one.slice(prefix.length)));
  } catch (error) {
    // Many registries show their catalog to administrators only.
    if (isRegistryError(error, "Unauthorized")) return "Unlisted";
    return explainOwnRegistryErrors(`looking for earlier Worlds below ${prefix}`, () => Promise.reject(error));
  }
}

/** The newest version; undefined where no session ever left anything: a copy of an image is nobody's work. */
async function newestWork(scope: WorldScope, repository: string): Promise<number | undefined> {
  const { client } = scope.dependencies.registry;
  const tags = await explainOwnRegistryErrors(`looking for versions in ${repository}`, () =>
    client.listTags(repository, scope.context.signal),
  );
  const numbers = tags.flatMap((tag) => numberOfTag(tag) ?? []);
  if (numbers.length === 0) return undefined;
  const isGenesisAlone = tags.every((tag) => tag === versionTag(0) || tag === "latest");
  return isGenesisAlone && !(await mayHaveUntaggedWork(scope, repository)) ? undefined : Math.max(...numbers);
}

/** A version gets its tag after its commit; until then Sandboxes remember it, and a Runtime what is in no version. */
async function mayHaveUntaggedWork(scope: WorldScope, repository: string): Promise<boolean> {
  const { namespace, name } = scope.ref;
  const isItsWorld = (uid: string | undefined): boolean =>
    uid?.slice(0, LINEAGE_ID_LENGTH) === repository.slice(-LINEAGE_ID_LENGTH);
  const isKept = scope.dependencies.runtimes
    .list()
    .flatMap(({ status }) => status?.rescues ?? [])
    .filter((rescue) => rescue.namespace === namespace && rescue.world === name)
    .some(({ worldUid }) => worldUid === undefined || isItsWorld(worldUid));
  if (isKept) return true;
  const sessions = (await sessionsNow(scope)).filter(({ status }) => isItsWorld(status?.world?.uid));
  const uids = new Set(sessions.flatMap(({ status }) => status?.world?.uid ?? []));
  const remembered = [...uids].flatMap((uid) => rememberedVersions(sessions, uid));
  return sessions.some(({ status }) => status?.compute) || remembered.some(({ version }) => version > 0);
}

function ignoredLineages({ world }: WorldScope): ReadonlySet<string> {
  const text = world.metadata.annotations?.[IGNORE_LINEAGES] ?? "";
  const named = text.split(",").map((one) => lastComponent(one.trim()));
  return new Set(named.filter((one) => one !== ""));
}

const isLineageId = (text: string): boolean => text.length === LINEAGE_ID_LENGTH && !text.includes("/");

const lastComponent = (repository: string): string => repository.slice(repository.lastIndexOf("/") + 1);

function announceUnlisted({ dependencies, world, ref }: WorldScope): void {
  dependencies.announce(
    { kind: "World", object: world },
    {
      type: "Warning",
      reason: "LineagesNotListed",
      action: "Look",
      message: `no earlier World ${ref.namespace}/${ref.name} is in the index of lineages, and this one starts anew; the registry shows no catalog, so one that no operator with an index ever saw would not be found`,
    },
  );
}
