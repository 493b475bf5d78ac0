/** From the ledger and what was found to the findings: pure, so that every rule can be tested with a made-up history. */
import type { BootOf, Files, LedgerEntry } from "../ledger.ts";
import type { Version } from "./versions.ts";

export const FINDING_KINDS = [
  /** A version that was acknowledged cannot be booted, or lacks what was acknowledged to be in it. */
  "lost",
  /** Acknowledged work of a session is in no version, and nothing says so. */
  "lostWithoutCondition",
  /** A session booted something older than what had been acknowledged before it was asked for. */
  "silentOlderBoots",
  /** A version's tag has named two digests. */
  "overwrittenTags",
  "leakedContainers",
  "stuckFinalizers",
  "writesAtRest",
] as const;
export type FindingKind = (typeof FINDING_KINDS)[number];

export interface Finding {
  readonly kind: FindingKind;
  readonly what: string;
}

/** What the registry was found to hold, and what is left on the hosts. */
export interface Evidence {
  /** By `repository@digest`; of a World that was released, what was found before it was deleted. */
  readonly versions: ReadonlyMap<string, Version>;
  /** By `repository:tag`: every digest that the tag was ever seen to name. */
  readonly tags: ReadonlyMap<string, readonly string[]>;
  /** Repositories that the index of their World's name lists. */
  readonly indexed: ReadonlySet<string>;
  /** `aw-<uid>-<boot>` of every container that is there, and names of captures. */
  readonly kept: ReadonlySet<string>;
}

type Of<K extends LedgerEntry["kind"]> = Extract<LedgerEntry, { kind: K }>;

/** One World's part of the ledger. */
interface History {
  readonly world: string;
  readonly repository: string;
  readonly keepVersions: number;
  /** The first acknowledgement of each version, in the order of their numbers; after the release none counts. */
  readonly versions: readonly Of<"version">[];
  readonly entries: readonly LedgerEntry[];
}

export function judgeLedger(entries: readonly LedgerEntry[], evidence: Evidence): Finding[] {
  const worlds = entries.filter((entry) => entry.kind === "world");
  return worlds.flatMap((world) => {
    const history = historyOf(world, entries);
    return [
      ...judgeVersions(history, evidence),
      ...judgeSnapshots(history, evidence),
      ...judgeWork(history, evidence),
      ...judgeBoots(history, evidence),
      ...judgeTags(history, evidence),
      ...judgeIndex(history, evidence),
    ];
  });
}

function historyOf({ world, keepVersions }: Of<"world">, all: readonly LedgerEntry[]): History {
  const entries = all.filter((entry) => "world" in entry && entry.world === world);
  const sandboxes = new Set(entries.flatMap((entry) => ("sandbox" in entry ? [entry.sandbox] : [])));
  const ofSessions = all.filter((entry) => !("world" in entry) && "sandbox" in entry && sandboxes.has(entry.sandbox));
  const releasedAt = entries.find((entry) => entry.kind === "released")?.at ?? Number.POSITIVE_INFINITY;
  const firsts = new Map<string, Of<"version">>();
  for (const entry of entries) {
    if (entry.kind !== "version" || entry.at > releasedAt) continue;
    const key = `${entry.version} ${entry.digest}`;
    if (!firsts.has(key)) firsts.set(key, entry);
  }
  return {
    world,
    keepVersions,
    repository: entries.find((entry) => entry.kind === "repository")?.repository ?? "",
    versions: [...firsts.values()].sort((one, other) => one.version - other.version),
    entries: [...entries, ...ofSessions],
  };
}

/** Every acknowledged version is whole, and holds everything that the one before it held. */
function judgeVersions(history: History, evidence: Evidence): Finding[] {
  let before: Files = {};
  return history.versions.flatMap((entry, index) => {
    const mayBeGone = history.keepVersions > 0 && history.versions.length - index > history.keepVersions;
    const found = versionAt(history, entry.digest, evidence);
    if (found.kind === "broken") {
      return mayBeGone ? [] : [finding("lost", `${nameOf(history, entry)}: ${found.why}`)];
    }
    const missing = missingFrom(found.files, before);
    before = found.files;
    return missing.length === 0 ? [] : [finding("lost", `${nameOf(history, entry)} lacks ${list(missing)}`)];
  });
}

/** The answer to a request for a snapshot names a version with everything that was written before it was asked for. */
function judgeSnapshots(history: History, evidence: Evidence): Finding[] {
  const asked = history.entries.filter((entry) => entry.kind === "snapshotAsked");
  return asked.flatMap((ask) => {
    const answer = history.entries.find((entry) => entry.kind === "version" && entry.request === ask.request);
    if (answer?.kind !== "version") return [];
    const found = versionAt(history, answer.digest, evidence);
    // A version that is gone is a finding of its own.
    if (found.kind === "broken") return [];
    const missing = missingFrom(found.files, filesWritten(history, ask, ask.at));
    if (missing.length === 0) return [];
    return [finding("lost", `${nameOf(history, answer)}, a snapshot asked for, lacks ${list(missing)}`)];
  });
}

/** What a session was told is written is in the newest version, or something says why not, or its container still runs. */
function judgeWork(history: History, evidence: Evidence): Finding[] {
  const newest = newestFiles(history, evidence);
  const boots = uniqueBoots(history.entries.filter((entry) => entry.kind === "written"));
  return boots.flatMap((boot) => {
    const missing = missingFrom(newest, filesWritten(history, boot, Number.POSITIVE_INFINITY));
    if (missing.length === 0) return [];
    const ofBoot = history.entries.filter((entry) => "boot" in entry && isSame(entry, boot));
    if (ofBoot.some((entry) => entry.kind === "discarded")) return [];
    const confession = ofBoot.find((entry) => entry.kind === "confessed");
    const container = `aw-${boot.sandbox}-${boot.boot}`;
    const isOver = ofBoot.some((entry) => entry.kind === "ended");
    if (!isOver && evidence.kept.has(container)) return [];
    const name = `boot ${boot.boot} of ${boot.sandbox} in ${history.world}`;
    if (confession?.kind !== "confessed") {
      return [finding("lostWithoutCondition", `${name}: ${list(missing)}`)];
    }
    // Who says that work is kept must have kept it.
    const { kept } = confession;
    if (kept === undefined || evidence.kept.has(kept) || evidence.kept.has(container)) return [];
    return [finding("lost", `${name} is said to be kept as ${kept}, which is not there`)];
  });
}

/** What a session boots is no older than what was acknowledged before it was asked for. */
function judgeBoots(history: History, evidence: Evidence): Finding[] {
  return history.entries.flatMap((booted) => {
    if (booted.kind !== "booted") return [];
    const wanted = history.entries.find((entry) => entry.kind === "wanted" && isSame(entry, booted));
    const since = wanted?.kind === "wanted" ? wanted.since : booted.at;
    const due = history.versions.filter(({ at }) => at < since).at(-1);
    if (due === undefined) return [];
    const name = `boot ${booted.boot} of ${booted.sandbox} in ${history.world}`;
    const version = history.versions.find(({ digest }) => digest === booted.digest);
    if (version !== undefined && version.version < due.version) {
      return [
        finding("silentOlderBoots", `${name} booted version ${version.version}, ${due.version} was acknowledged`),
      ];
    }
    const content = versionAt(history, due.digest, evidence);
    if (content.kind === "broken") return [];
    const wants = booted.files ?? filesOf(versionAt(history, booted.digest, evidence));
    const missing = wants === undefined ? [] : missingFrom(wants, content.files);
    if (missing.length === 0) return [];
    return [finding("silentOlderBoots", `${name} lacks ${list(missing)} of version ${due.version}`)];
  });
}

/** Whoever makes a World anew finds the earlier one by the index: without its entry the versions are there and nobody knows. */
function judgeIndex({ repository, versions, entries }: History, { indexed }: Evidence): Finding[] {
  const isReleased = entries.some(({ kind }) => kind === "released");
  if (versions.length === 0 || isReleased || indexed.has(repository)) return [];
  return [finding("lost", `${repository} is not in the index of lineages`)];
}

/** A tag of a version, or of an entry in the index, has one digest for ever. */
function judgeTags(history: History, evidence: Evidence): Finding[] {
  return [...evidence.tags].flatMap(([name, digests]) => {
    const [repository, tag = ""] = name.split(":");
    const { index, entry } = indexPlaceOf(history.repository);
    const isVersion = repository === history.repository && /^v\d+$/.test(tag);
    if (!isVersion && !(repository === index && tag === entry)) return [];
    const named = new Set([...digests, ...acknowledgedAs(history, tag)]);
    return named.size > 1 ? [finding("overwrittenTags", `${name} has named ${[...named].join(" and ")}`)] : [];
  });
}

/** `<path>/<world>-<8 characters>` has the tag `<8 characters>` in `<path>/<world>/lineages`. */
export const indexPlaceOf = (repository: string): { readonly index: string; readonly entry: string } => ({
  index: `${repository.slice(0, -9)}/lineages`,
  entry: repository.slice(-8),
});

const acknowledgedAs = (history: History, tag: string): string[] =>
  history.versions.filter(({ version }) => tag === `v${version}`).map(({ digest }) => digest);

function newestFiles(history: History, evidence: Evidence): Files {
  const newest = history.versions.at(-1);
  return newest === undefined ? {} : (filesOf(versionAt(history, newest.digest, evidence)) ?? {});
}

const filesOf = (version: Version): Files | undefined => (version.kind === "whole" ? version.files : undefined);

const versionAt = ({ repository }: History, digest: string, { versions }: Evidence): Version =>
  versions.get(`${repository}@${digest}`) ?? { kind: "broken", why: `${repository}@${digest} was not looked at` };

function filesWritten(history: History, boot: BootOf, until: number): Files {
  const written = history.entries.flatMap((entry) =>
    entry.kind === "written" && isSame(entry, boot) && entry.at <= until ? [[entry.path, entry.sha256] as const] : [],
  );
  return Object.fromEntries(written);
}

/** Paths of `wanted` that `found` does not have with the same content. */
const missingFrom = (found: Files, wanted: Files): string[] =>
  Object.entries(wanted).flatMap(([path, sha256]) => (found[path] === sha256 ? [] : [path]));

const isSame = (one: BootOf, other: BootOf): boolean => one.sandbox === other.sandbox && one.boot === other.boot;

function uniqueBoots(entries: readonly BootOf[]): BootOf[] {
  return [...new Map(entries.map((entry) => [`${entry.sandbox} ${entry.boot}`, entry])).values()];
}

const finding = (kind: FindingKind, what: string): Finding => ({ kind, what });
const nameOf = ({ repository }: History, { version, digest }: Of<"version">): string =>
  `version ${version} of ${repository} (${digest.slice(0, 19)})`;
const list = (paths: readonly string[]): string =>
  paths.length <= 4 ? paths.join(", ") : `${paths.slice(0, 3).join(", ")} and ${paths.length - 3} more`;
