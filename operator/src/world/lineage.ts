/**
 * The lineage of a World as pure functions over its status: reserve a number, commit a version, give a number up, hold and
 * let go. Nothing here reads a clock or calls anything; status-writer.ts turns the decisions into compare-and-swap writes.
 */
import {
  type CausedBy,
  LIMITS,
  type SandboxSpec,
  type WorldHolder,
  type WorldPending,
  type WorldRescue,
  type WorldStatus,
  type WorldVersion,
} from "@agentworlds/crds";
import { accountsFor } from "../runtime/rescues.ts";

/** A reservation as asked for by a session (or by genesis, which has no sandbox and no base). */
export interface ReservationRequest {
  /** Operation id; the same id again finds what it reserved or committed before. */
  readonly operation: string;
  readonly sandbox?: { readonly name: string; readonly uid: string };
  /** The digest the session's work is based on. Publishing over another head is refused. */
  readonly base?: WorldVersion["digest"];
  /** ISO time; becomes the version's creation time, so that a retry makes the same digest. */
  readonly at: string;
}

export type ReservationVerdict =
  /** Write `status` (pending and nextVersion), then publish under `pending.version`. */
  | { readonly kind: "reserve"; readonly pending: WorldPending; readonly nextVersion: number }
  /** An earlier try reserved already: go on with its number and time. */
  | { readonly kind: "reserved"; readonly pending: WorldPending }
  /** An earlier try committed already: there is nothing left to publish. */
  | { readonly kind: "committed"; readonly version: WorldVersion }
  | {
      readonly kind: "refused";
      readonly reason:
        | "AnotherPublicationPending"
        | "NotTheHolder"
        | "BaseBehindHead"
        | "TooManyVersions"
        | "HeadBehindRegistry";
      readonly message: string;
    };

/** Rule 1: head moves by reservation, and only from the base the session started on. */
export function judgeReservation(status: WorldStatus, request: ReservationRequest): ReservationVerdict {
  const committed = status.versions?.find((version) => version.operation === request.operation);
  if (committed) return { kind: "committed", version: committed };
  if (status.registryHead) {
    return { kind: "refused", reason: "HeadBehindRegistry", message: explainRegistryHead(status, status.registryHead) };
  }
  const pending = status.pending;
  if (pending && isOutdated(status, request.operation)) {
    return {
      kind: "refused",
      reason: "BaseBehindHead",
      message: `version ${pending.version} was reserved on ${pending.base ?? "nothing"}, head is ${status.head?.digest ?? "nothing"}`,
    };
  }
  if (pending && pending.operation === request.operation) return { kind: "reserved", pending };
  if (pending) {
    return {
      kind: "refused",
      reason: "AnotherPublicationPending",
      message: `version ${pending.version} is being published by operation ${pending.operation}`,
    };
  }
  if (request.sandbox && !mayWrite(status, { ...request, uid: request.sandbox.uid })) {
    return {
      kind: "refused",
      reason: "NotTheHolder",
      message: status.holder
        ? `the World is held by Sandbox ${status.holder.sandbox}`
        : "the session does not hold the World",
    };
  }
  if (status.head?.digest !== request.base) {
    return {
      kind: "refused",
      reason: "BaseBehindHead",
      message: `the session is based on ${request.base ?? "nothing"}, head is ${status.head?.digest ?? "nothing"}`,
    };
  }
  const full = explainFull(status);
  if (full !== undefined) return { kind: "refused", reason: "TooManyVersions", message: `${full}; ${REMEDY_FULL}` };
  const version = nextNumber(status);
  return {
    kind: "reserve",
    nextVersion: version + 1,
    pending: {
      operation: request.operation,
      version,
      ...(request.sandbox ? { sandbox: request.sandbox } : {}),
      ...(request.base === undefined ? {} : { base: request.base }),
      since: request.at,
    },
  };
}

/**
 * Whether the operation's reservation is worth nothing any more: head is another one than it was made on. Nobody but its
 * holder publishes meanwhile, but head can be edited by hand, or taken over from the registry.
 */
export const isOutdated = ({ pending, head }: WorldStatus, operation: string): boolean =>
  pending?.operation === operation && pending.base !== head?.digest;

/** Also where somebody lowered `nextVersion`: a number that a version has is never taken again. */
function nextNumber({ nextVersion = 0, versions = [], head }: WorldStatus): number {
  const newest = versions.at(-1)?.version ?? -1;
  return Math.max(nextVersion, newest + 1, (head?.version ?? -1) + 1);
}

/** The holder; or work that is kept for the World, while nobody holds it: not even a later boot of its own Sandbox. */
function mayWrite({ holder, rescues = [] }: WorldStatus, { operation, uid }: { operation: string; uid: string }) {
  const isRescue = rescues.some((rescue) => accountsFor(rescue, operation));
  return isRescue ? holder === undefined : holder?.uid === uid;
}

export type CommitVerdict =
  | { readonly kind: "commit"; readonly patch: Pick<WorldStatus, "head" | "versions"> & { readonly pending: null } }
  | { readonly kind: "committed" }
  | { readonly kind: "refused"; readonly reason: "ReservationLost" | "TooManyVersions"; readonly message: string };

/** The most entries `status.versions` may hold. Every pass keeps it below; at the wall boot and reservation are refused by name. */
export const MOST_VERSIONS = 128;

/** Why no further version can be listed; undefined while one can. */
export const explainFull = ({ versions = [] }: WorldStatus): string | undefined =>
  versions.length < MOST_VERSIONS
    ? undefined
    : `the World lists ${MOST_VERSIONS} versions, and there is no room for another`;

export const REMEDY_FULL =
  "those that are neither pinned nor in use leave the list by themselves: unpin versions in spec.retention, or end sessions that run on older ones";

/** One write appends the version, moves head and clears the reservation. */
export function judgeCommit(
  status: WorldStatus,
  { operation, version, image }: { readonly operation: string; readonly version: WorldVersion; readonly image: string },
): CommitVerdict {
  const versions = status.versions ?? [];
  if (versions.some((known) => known.operation === operation)) return { kind: "committed" };
  if (status.pending?.operation !== operation || status.pending.version !== version.version) {
    return {
      kind: "refused",
      reason: "ReservationLost",
      message: `operation ${operation} holds no reservation for version ${version.version}`,
    };
  }
  if (isOutdated(status, operation)) {
    return {
      kind: "refused",
      reason: "ReservationLost",
      message: `version ${version.version} was reserved on ${status.pending.base ?? "nothing"}, head is ${status.head?.digest ?? "nothing"}`,
    };
  }
  if (versions.length >= MOST_VERSIONS) {
    return { kind: "refused", reason: "TooManyVersions", message: `the World lists ${MOST_VERSIONS} versions already` };
  }
  return {
    kind: "commit",
    patch: {
      head: { version: version.version, digest: version.digest, image },
      versions: [...versions, version],
      pending: null,
    },
  };
}

export type HoldVerdict =
  | { readonly kind: "hold"; readonly holder: WorldHolder }
  | { readonly kind: "held" }
  | { readonly kind: "refused"; readonly reason: "WorldHeld" | "HeadBehindRegistry"; readonly message: string };

/** Rescues whose work is in no version yet. One that is published waits only for its container to go. */
export const unpublishedRescues = ({ rescues = [], versions = [] }: WorldStatus): readonly WorldRescue[] =>
  rescues.filter((rescue) => !versions.some((version) => version.operation === rescue.operation));

export interface HoldClaim {
  readonly sandbox: string;
  readonly uid: string;
  readonly causedBy: CausedBy;
  /** ISO time. */
  readonly at: string;
  /** Whether it may boot past work that is kept and in no version. Default: `Wait`. */
  readonly rescuePolicy?: SandboxSpec["rescuePolicy"];
}

/** Rule 2: one writer. A second Sandbox waits; a hold never ends by a time. */
export function judgeHold(status: WorldStatus, claim: HoldClaim): HoldVerdict {
  const { holder } = status;
  if (holder?.uid === claim.uid) return { kind: "held" };
  if (status.registryHead) {
    return { kind: "refused", reason: "HeadBehindRegistry", message: explainRegistryHead(status, status.registryHead) };
  }
  if (holder) {
    return refused(`is held by Sandbox ${holder.sandbox} since ${holder.acquiredAt}`);
  }
  const { pending } = status;
  // A rescue that is being published moves head a moment from now: a session that booted before would stand behind it.
  const rescues = unpublishedRescues(status);
  const isRescue = rescues.some((rescue) => accountsFor(rescue, pending?.operation));
  if (pending?.sandbox && (isRescue || pending.sandbox.uid !== claim.uid)) {
    return refused(`waits: version ${pending.version} of Sandbox ${pending.sandbox.name} is being published`);
  }
  const [first] = rescues;
  if (first && claim.rescuePolicy !== "Ignore") {
    return refused(
      `waits: unpublished work of Sandbox ${first.sandbox.name} is kept on ${first.runtime}/${first.host} as ${first.computeId} (rescue ${first.operation}): ${first.lastError ?? first.message}`,
    );
  }
  if (rescues.length >= LIMITS.rescues) {
    return refused(
      `waits: ${rescues.length} rescues are kept, and no more can be: what this session does could not be kept`,
    );
  }
  return {
    kind: "hold",
    holder: {
      sandbox: claim.sandbox,
      uid: claim.uid,
      causedBy: claim.causedBy,
      acquiredAt: claim.at,
      ...(first ? { ignoredRescues: rescues.map((rescue) => rescue.operation) } : {}),
    },
  };
}

/** Why nothing boots and nothing is published: what the registry has is newer than head, and nobody said that it is right. */
export function explainRegistryHead(
  { head }: WorldStatus,
  { version, digest }: NonNullable<WorldStatus["registryHead"]>,
): string {
  const ours = head ? `head is version ${head.version} (${head.digest})` : "the status names no head";
  return `the registry has version ${version} (${digest ?? "which one cannot be told"}) of this World, and ${ours}`;
}

/** Why head is not to be booted: the list of versions names another digest for its number. */
export function explainContradiction({ head, versions = [] }: WorldStatus): string | undefined {
  const listed = versions.find(({ version }) => version === head?.version);
  if (!head || !listed || listed.digest === head.digest) return undefined;
  return `status.head says that version ${head.version} is ${head.digest}, and status.versions that it is ${listed.digest}`;
}

const refused = (message: string): HoldVerdict => ({ kind: "refused", reason: "WorldHeld", message });

/** The version a Sandbox boots from: the one asked for, else head. */
export function versionToBoot(
  status: WorldStatus,
  wanted: number | undefined,
): Pick<WorldVersion, "version" | "digest"> | undefined {
  if (wanted === undefined) return status.head && { version: status.head.version, digest: status.head.digest };
  const found = status.versions?.find((version) => version.version === wanted);
  return found && { version: found.version, digest: found.digest };
}
