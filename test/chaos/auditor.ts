/**
 * Judges a run from the outside: the workload's ledger, the registry's bytes, the engine's containers, the API server's objects
 * and its audit log. It has its own HTTP and its own reading of layers, and shares no code with the operator.
 */
import { readFile } from "node:fs/promises";
import { writesIn } from "./auditor/audit-log.ts";
import { type ClusterAccess, capturesOn, containersOn, lookAtCluster, terminatingNamespaces } from "./auditor/hosts.ts";
import { type Finding, type FindingKind, indexPlaceOf, judgeLedger } from "./auditor/judge.ts";
import { mergeTags, type TagHistory, tagsOnDisk } from "./auditor/tags.ts";
import { type Version, VersionReader, versionsIn } from "./auditor/versions.ts";
import type { LedgerEntry } from "./ledger.ts";

export interface AuditRequest {
  readonly ledger: readonly LedgerEntry[];
  readonly registry: { readonly url: string; readonly dataDirectory: string };
  readonly engineSocket: string;
  readonly installation: string;
  readonly cluster: ClusterAccess;
  readonly auditLogPath: string;
  /** The span in which nothing may be written, and what the operator's user agent begins with. */
  readonly rest: { readonly from: number; readonly to: number; readonly agent: string };
  /** What was seen of tags during the run. */
  readonly tags: TagHistory;
  /** What Worlds held that were deleted with their versions, by `repository@digest`: a `Witness` looked before. */
  readonly witnessed: ReadonlyMap<string, Version>;
}

export interface AuditReport {
  readonly findings: readonly Finding[];
  readonly counts: Readonly<Record<FindingKind, number>>;
  /** How much was looked at: zeros from an audit of nothing are worth nothing. */
  readonly looked: { readonly versions: number; readonly files: number; readonly boots: number; readonly tags: number };
}

export async function audit(request: AuditRequest): Promise<AuditReport> {
  const { ledger, tags } = request;
  const versions = await readVersions(request);
  for (const repository of repositoriesIn(ledger)) {
    for (const place of [repository, indexPlaceOf(repository).index]) {
      mergeTags(tags, await tagsOnDisk(request.registry.dataDirectory, place));
    }
  }
  const indexed = await indexedIn(request);
  const containers = await containersOn(request.engineSocket, request.installation);
  const kept = new Set([...containers.map(({ name }) => name), ...(await capturesOn(request.engineSocket))]);
  const { accounted, deleting } = await lookAtCluster(request.cluster);
  const log = await readFile(request.auditLogPath, "utf8");
  const findings: Finding[] = [
    ...judgeLedger(ledger, { versions, tags, indexed, kept }),
    ...containers
      .filter(({ name }) => !accounted.has(name))
      .map(({ name }): Finding => ({ kind: "leakedContainers", what: `${name}: no object accounts for it` })),
    ...[...deleting, ...(await terminatingNamespaces(request.cluster))].map(
      (what): Finding => ({ kind: "stuckFinalizers", what }),
    ),
    ...writesIn(log, request.rest).map((what): Finding => ({ kind: "writesAtRest", what })),
  ];
  return { findings, counts: countsOf(findings), looked: lookedAt(request, versions) };
}

/** Every version that the ledger names; those of Worlds that are gone with them were looked at before. */
async function readVersions({ ledger, registry, witnessed }: AuditRequest): Promise<Map<string, Version>> {
  const reader = new VersionReader(registry.url);
  const released = new Set(ledger.flatMap((entry) => (entry.kind === "released" ? [entry.world] : [])));
  const versions = new Map<string, Version>(witnessed);
  for (const [name, { repository, digest }] of versionsIn(ledger, (world) => !released.has(world))) {
    versions.set(name, await reader.version(repository, digest));
  }
  return versions;
}

/** By listing, as the operator looks for them. */
async function indexedIn({ ledger, registry }: AuditRequest): Promise<Set<string>> {
  const reader = new VersionReader(registry.url);
  const indexed = new Set<string>();
  for (const repository of repositoriesIn(ledger)) {
    const { index, entry } = indexPlaceOf(repository);
    if ((await reader.tags(index)).includes(entry)) indexed.add(repository);
  }
  return indexed;
}

const repositoriesIn = (ledger: readonly LedgerEntry[]): Set<string> =>
  new Set(ledger.flatMap((entry) => (entry.kind === "repository" ? [entry.repository] : [])));

function countsOf(findings: readonly Finding[]): Record<FindingKind, number> {
  const count = (kind: FindingKind): number => findings.filter((finding) => finding.kind === kind).length;
  return {
    lost: count("lost"),
    lostWithoutCondition: count("lostWithoutCondition"),
    silentOlderBoots: count("silentOlderBoots"),
    overwrittenTags: count("overwrittenTags"),
    leakedContainers: count("leakedContainers"),
    stuckFinalizers: count("stuckFinalizers"),
    writesAtRest: count("writesAtRest"),
  };
}

function lookedAt({ ledger, tags }: AuditRequest, versions: ReadonlyMap<string, Version>): AuditReport["looked"] {
  return {
    versions: versions.size,
    files: ledger.filter(({ kind }) => kind === "written").length,
    boots: ledger.filter(({ kind }) => kind === "booted").length,
    tags: tags.size,
  };
}
