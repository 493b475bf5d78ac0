/** Which versions leave after a publication (DESIGN §3, §4.11). Pure decisions; the World controller carries them out. */
import type { WorldStatus, WorldVersion } from "@agentworlds/crds";
import { versionTag } from "../snapshot/publish.ts";

export interface RetentionInput {
  /** In lineage order, newest last. */
  readonly versions: readonly WorldVersion[];
  readonly headVersion: number | undefined;
  /** `spec.retention.keepVersions`; below 1 removes nothing. */
  readonly keepVersions: number;
  /** `spec.retention.pinned`. */
  readonly pinned: readonly number[];
  /** Digests that a live Sandbox, or work that is kept as a rescue, booted from or is based on. */
  readonly inUse: ReadonlySet<string>;
}

export interface RetentionVerdict {
  readonly keep: readonly WorldVersion[];
  readonly remove: readonly WorldVersion[];
  /** Versions beyond the limit that stay, and why. */
  readonly skipped: readonly {
    readonly version: number;
    readonly reason: "Head" | "Pinned" | "InUse" | "SameDigest";
  }[];
}

/** The newest N stay by lineage order; head, pinned and booted ones stay beyond it. */
export function judgeRetention(input: RetentionInput): RetentionVerdict {
  const { versions, keepVersions } = input;
  if (keepVersions < 1 || versions.length <= keepVersions) return { keep: versions, remove: [], skipped: [] };
  const candidates = versions.slice(0, versions.length - keepVersions);
  const remove: WorldVersion[] = [];
  const skipped: { version: number; reason: "Head" | "Pinned" | "InUse" | "SameDigest" }[] = [];
  const reasonToStay = (version: WorldVersion) => {
    const reason = protectionOf(version, input);
    if (reason) return reason;
    // Deleting a manifest deletes every tag of its digest (layers.md §1.3), so a twin keeps it alive.
    if (versions.some((other) => other !== version && other.digest === version.digest)) return "SameDigest" as const;
    return undefined;
  };
  for (const version of candidates) {
    const reason = reasonToStay(version);
    if (reason) skipped.push({ version: version.version, reason });
    else remove.push(version);
  }
  return { keep: versions.filter((version) => !remove.includes(version)), remove, skipped };
}

function protectionOf(
  { version, digest }: WorldVersion,
  { headVersion, pinned, inUse }: Pick<RetentionInput, "headVersion" | "pinned" | "inUse">,
): "Head" | "Pinned" | "InUse" | undefined {
  if (version === headVersion) return "Head";
  if (pinned.includes(version)) return "Pinned";
  return inUse.has(digest) ? "InUse" : undefined;
}

/** `status.versions` lists this many of the newest, whatever retention keeps in the registry. */
export const NEWEST_LISTED = 64;

/** Beside protected ones fewer of the newest are listed: the next sessions' versions must fit before the next pass. */
export const MOST_AT_REST = 120;

export interface ListingInput extends Omit<RetentionInput, "keepVersions"> {
  /** As the registry was just seen to have them. */
  readonly tags: readonly string[];
}

/** The versions that leave the list and nothing else: their manifests stay in the registry, where their tags lead to them. */
export function judgeListing(input: ListingInput): WorldVersion[] {
  const { versions } = input;
  const tags = new Set(input.tags);
  const leaving: WorldVersion[] = [];
  for (const [index, version] of versions.entries()) {
    const isOld = index < versions.length - NEWEST_LISTED;
    if (!isOld && versions.length - leaving.length <= MOST_AT_REST) break;
    if (tags.has(versionTag(version.version)) && !protectionOf(version, input)) leaving.push(version);
  }
  return leaving;
}

export type PrunedVersion = NonNullable<WorldStatus["prunedVersions"]>[number];

/** The most entries `status.prunedVersions` may hold. */
export const MOST_PRUNED = 64;

/** How many versions may leave now: an entry whose manifest is still to be deleted is never pushed off the list. */
export const roomForPruned = (pruned: readonly PrunedVersion[]): number =>
  MOST_PRUNED - pruned.filter((entry) => entry.deletedAt === undefined).length;

/** The list with the versions that leave; the oldest entries whose deletion is confirmed make room. */
export function withPruned(
  pruned: readonly PrunedVersion[],
  leaving: readonly WorldVersion[],
  prunedAt: string,
): PrunedVersion[] {
  const added = leaving.map(({ version, digest }) => ({ version, digest, prunedAt, reason: "BeyondKeepVersions" }));
  let surplus = pruned.length + added.length - MOST_PRUNED;
  const kept = pruned.filter((entry) => entry.deletedAt === undefined || surplus-- <= 0);
  return [...kept, ...added];
}
