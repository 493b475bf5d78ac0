/**
 * The lineage of a World from the manifests of its repository alone (docs/adr/0012): pure, nothing invented. The chain is
 * followed by parent digest; a number that is missing is a gap and legal, a chain that contradicts itself is not.
 */
import type { WorldStatus, WorldVersion } from "@agentworlds/crds";
import type { Descriptor, Digest } from "../registry/contract.ts";
import { type RecordedFacts, readAnnotations, worldUidIn } from "../snapshot/version-annotations.ts";
import { UNKNOWN_CREATOR } from "./creator.ts";

/** What the registry has under a reference: a tag `v<n>`, or a digest that somebody in the cluster remembers. */
export type FoundReference = {
  readonly reference: string;
  /** Of which version it should be: the number in the tag, or the one remembered with the digest. */
  readonly number: number;
} & (
  | { readonly kind: "image"; readonly digest: Digest; readonly manifest: FoundManifest }
  /** Not an image: nobody's version. */
  | { readonly kind: "other" }
  /** It is listed or remembered, and the registry has no readable manifest for it. */
  | { readonly kind: "lost"; readonly because: string }
);

export interface FoundManifest {
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface RecoveryInput {
  readonly found: readonly FoundReference[];
  /** `registry/repository`, for `head.image`. */
  readonly repository: string;
  /** Whether versions of the World with this UID belong here: the World's own, and those it adopted. */
  readonly isOurs: (worldUid: string) => boolean;
  /** Numbers that stay listed although they are older than the newest 64. */
  readonly pinned?: readonly number[];
}

/** What `World.status` can be rebuilt to. `nextVersion` follows the newest number that the registry knows. */
export interface RecoveredLineage extends Required<Pick<WorldStatus, "head" | "versions" | "nextVersion">> {
  /** Absent platform: no manifest says it; it is in the config of each version. */
  readonly genesis?: RecordedFacts["genesis"];
  /** The newest version's config, where the platform stands. */
  readonly headConfig: Descriptor;
  /** References that are no version of this World, and older versions that the registry has lost. */
  readonly ignored: readonly { readonly reference: string; readonly because: string }[];
}

export type RecoveryVerdict =
  | { readonly kind: "none" }
  | { readonly kind: "lineage"; readonly lineage: RecoveredLineage }
  /** Which version is the newest cannot be said: nothing may boot. */
  | { readonly kind: "broken"; readonly message: string };

interface Candidate {
  readonly digest: Digest;
  readonly manifest: FoundManifest;
  readonly facts: RecordedFacts;
}

/** Most versions that are listed again; the full history stays in the registry (DESIGN §3). */
export const MOST_RECOVERED = 64;
/** Room for pinned versions beyond them. */
const MOST_LISTED = 128;

export const VERSION_TAG = /^v(0|[1-9][0-9]{0,9})$/;

/** The number of a version's tag; undefined for any other tag. */
export const numberOfTag = (tag: string): number | undefined => {
  const number = VERSION_TAG.exec(tag)?.[1];
  return number === undefined ? undefined : Number(number);
};

export function rebuildLineage(input: RecoveryInput): RecoveryVerdict {
  const ignored: { reference: string; because: string }[] = [];
  const lost: Lost[] = [];
  const candidates = new Map<Digest, Candidate>();
  for (const found of input.found) {
    const { reference, number } = found;
    const judged = judgeReference(found, input.isOurs);
    if (judged.kind === "candidate") candidates.set(judged.candidate.digest, judged.candidate);
    else ignored.push({ reference, because: judged.because });
    if (judged.kind === "lost") lost.push({ reference, number, because: judged.because });
  }
  const chain = [...candidates.values()].sort((a, b) => a.facts.version - b.facts.version);
  const contradiction = contradictionIn(chain) ?? lostBeyond(lost, chain.at(-1));
  if (contradiction !== undefined) return { kind: "broken", message: contradiction };
  const newest = chain.at(-1);
  if (!newest) return { kind: "none" };
  const genesis = newest.facts.genesis ?? chain.find(({ facts }) => facts.genesis)?.facts.genesis;
  const { version } = newest.facts;
  return {
    kind: "lineage",
    lineage: {
      head: { version, digest: newest.digest, image: `${input.repository}@${newest.digest}` },
      versions: listed(chain, input.pinned ?? []).map((one) => versionOf(one, candidates)),
      nextVersion: version + 1,
      headConfig: newest.manifest.config,
      ...(genesis === undefined ? {} : { genesis }),
      ignored,
    },
  };
}

interface Lost {
  readonly reference: string;
  readonly number: number;
  readonly because: string;
}

type ReferenceVerdict =
  | { readonly kind: "candidate"; readonly candidate: Candidate }
  | { readonly kind: "foreign" | "lost"; readonly because: string };

function judgeReference(found: FoundReference, isOurs: RecoveryInput["isOurs"]): ReferenceVerdict {
  if (found.kind === "lost") return { kind: "lost", because: found.because };
  if (found.kind === "other") return { kind: "foreign", because: "it is no image" };
  const { digest, manifest } = found;
  const reading = readAnnotations(manifest.annotations);
  if (reading.kind === "foreign") return { kind: "foreign", because: "it is no version of a World" };
  if (reading.kind === "unreadable") {
    const owner = worldUidIn(manifest.annotations);
    const isForeign = owner !== undefined && !isOurs(owner);
    return { kind: isForeign ? "foreign" : "lost", because: reading.because };
  }
  const { world, version } = reading.facts;
  if (!isOurs(world.uid)) {
    const whose = `World ${world.namespace}/${world.name} (${world.uid})`;
    return { kind: "foreign", because: `it is version ${version} of ${whose}` };
  }
  return { kind: "candidate", candidate: { digest, manifest, facts: reading.facts } };
}

/** What is wrong with the chain, with both sides named; undefined when it can be followed. Ordered by number. */
function contradictionIn(chain: readonly Candidate[]): string | undefined {
  const operations = new Map<string, Candidate>();
  for (const one of chain) {
    const twin = operations.get(one.facts.operation);
    if (twin) return `${named(twin)} and ${named(one)} are both of operation ${one.facts.operation}`;
    operations.set(one.facts.operation, one);
  }
  const known = new Map(chain.map((one) => [one.digest, one]));
  const past = new Set<string>();
  for (const [index, one] of chain.entries()) {
    const before = chain[index - 1];
    const wrong = before && breakBetween(before, one, known);
    if (wrong !== undefined) return wrong;
    const { uid } = one.facts.world;
    if (before && before.facts.world.uid !== uid) past.add(before.facts.world.uid);
    if (before && past.has(uid)) {
      return `${named(before)} is of World ${before.facts.world.uid}, and ${named(one)} after it of ${uid}, which came earlier`;
    }
  }
  return undefined;
}

/** Two versions that follow each other by number: the later derives from the earlier, or from one that is gone by now. */
function breakBetween(before: Candidate, after: Candidate, known: ReadonlyMap<string, Candidate>): string | undefined {
  if (before.facts.version === after.facts.version) {
    return `${before.digest} and ${after.digest} both claim to be version ${after.facts.version}`;
  }
  const { parent } = after.facts;
  if (parent === before.digest) return undefined;
  if (parent === undefined) return `${named(after)} names no parent, and ${named(before)} comes before it`;
  const other = known.get(parent);
  if (other) return `${named(after)} derives from ${named(other)}, and ${named(before)} lies between them`;
  // Between consecutive numbers no version can have been pruned or lost.
  if (before.facts.version + 1 === after.facts.version) {
    return `${named(after)} derives from ${parent}, which is not ${named(before)}`;
  }
  return undefined;
}

/** A version newer than the newest readable one would be the head: without it, nothing older may pass for it. */
function lostBeyond(lost: readonly Lost[], newest: Candidate | undefined): string | undefined {
  const beyond = lost.find(({ number }) => number > (newest?.facts.version ?? -1));
  if (!beyond) return undefined;
  const rest = newest ? `the newest that can be read is ${named(newest)}` : "no other can be read";
  return `version ${beyond.number} (${beyond.reference}) cannot be read: ${beyond.because}; ${rest}`;
}

const named = ({ facts, digest }: Candidate): string => `version ${facts.version} (${digest})`;

/** The newest ones, and pinned ones beyond them while there is room; newest last. */
function listed(chain: readonly Candidate[], pinned: readonly number[]): readonly Candidate[] {
  const newest = chain.slice(-MOST_RECOVERED);
  const older = chain.slice(0, -MOST_RECOVERED).filter(({ facts }) => pinned.includes(facts.version));
  return [...older.slice(-(MOST_LISTED - newest.length)), ...newest];
}

function versionOf(candidate: Candidate, known: ReadonlyMap<string, Candidate>): WorldVersion {
  const { digest, facts, manifest } = candidate;
  const { parent, sandbox, recovered, hook, ignoredRescues } = facts;
  const sizeBytes = facts.sizeBytes ?? addedBytes(candidate, known);
  return {
    version: facts.version,
    digest,
    operation: facts.operation,
    ...(parent === undefined ? {} : { parent }),
    ...(sizeBytes === undefined ? {} : { sizeBytes }),
    totalBytes: bytesOf(manifest.layers),
    layers: manifest.layers.length,
    createdAt: facts.createdAt,
    reason: facts.reason,
    consistency: facts.consistency,
    ...(recovered === undefined ? {} : { recovered }),
    ...(hook === undefined ? {} : { hook }),
    description: facts.description,
    causedBy: facts.causedBy ?? UNKNOWN_CREATOR,
    ...(sandbox === undefined ? {} : { sandbox }),
    ...(ignoredRescues === undefined ? {} : { ignoredRescues: [...ignoredRescues] }),
  };
}

/** What a manifest that does not say it added to its parent, as far as the parent is still there. */
function addedBytes({ facts, manifest }: Candidate, known: ReadonlyMap<string, Candidate>): number | undefined {
  if (facts.parent === undefined) return bytesOf(manifest.layers);
  const parent = known.get(facts.parent);
  if (!parent) return undefined;
  const inherited = new Set(parent.manifest.layers.map((layer) => layer.digest));
  return bytesOf(manifest.layers.filter((layer) => !inherited.has(layer.digest)));
}

const bytesOf = (layers: readonly Descriptor[]): number => layers.reduce((sum, layer) => sum + layer.size, 0);
