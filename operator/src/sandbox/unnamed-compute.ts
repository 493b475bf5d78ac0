/** What the hosts say of a Sandbox whose status names no container although there may be one: decided without I/O. */
import type { Sandbox, VersionPointer, World } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import { isDigest } from "../registry/digest.ts";
import type { ListedCapture, ListedCompute } from "../runtime/contract.ts";
import { isBootUnaccounted, lastEndedBoot } from "../runtime/open-boot.ts";
import type { Found, SearchResult } from "../runtime/search.ts";

/** It is not proven what is left of the session: nothing is booted, ended or released before it is (DESIGN §4.5). */
export class ComputeUnknown extends Waiting {}

export interface HostFindings {
  readonly containers: SearchResult<ListedCompute>;
  readonly captures: SearchResult<ListedCapture>;
  /** Ids of containers and operations that a rescue keeps: they belong to it. */
  readonly rescued: ReadonlySet<string>;
  /** Operations that the World has a version of: what is left of their captures is nothing but a copy. */
  readonly published: ReadonlySet<string>;
}

/** One container of the session, or what was captured of one that is gone. */
export interface Remnant {
  readonly runtime: string;
  readonly host: string;
  readonly engine: string;
  readonly boot: number;
  /** `Absent`: the capture is all that is left. */
  readonly state: ListedCompute["state"] | "Absent";
  readonly image?: string;
}

export type Discovery =
  | { readonly kind: "nothing" }
  | { readonly kind: "remnant"; readonly remnant: Remnant }
  | { readonly kind: "unproven"; readonly problem: ComputeUnknown };

const LOOK_AGAIN_MS = 30_000;

export function unproven(
  reason: "HostsNotAsked" | "SeveralContainers" | "ContainerNotAdopted",
  message: string,
  remediation: string,
): ComputeUnknown {
  return new ComputeUnknown(reason, { message, remediation, afterMs: LOOK_AGAIN_MS });
}

/** One remnant is the session's. Two, of whichever boots and hosts, are nobody's to choose from. */
export function judgeFindings(sandbox: Sandbox, findings: HostFindings): Discovery {
  const silent = [...new Set([...findings.containers.silent, ...findings.captures.silent])];
  // Status that says how the last boot ended is believed where nobody can contradict it: the operator may have ended in
  // between that record and the end of the finalizer, and its host may be gone for good.
  const isAccountedFor = (sandbox.status?.boot ?? 0) > 0 && !isBootUnaccounted(sandbox);
  if (silent.length > 0 && !isAccountedFor) {
    const message = `status names no container, and it cannot be asked whether there is one: ${silent.join("; ")}`;
    return {
      kind: "unproven",
      problem: unproven("HostsNotAsked", message, "it goes on when each of these hosts answers or is taken out"),
    };
  }
  const isOpen = ({ what }: Found<{ readonly owner: ListedCompute["owner"] }>) =>
    what.owner.boot > lastEndedBoot(sandbox);
  const containers = findings.containers.found
    .filter(isOpen)
    .filter(({ what }) => !findings.rescued.has(what.id))
    .map(containerOf);
  const left = containers.length > 0 ? containers : capturesLeft(sandbox, findings, isOpen);
  const [first, second] = left;
  if (!first) return { kind: "nothing" };
  if (!second) return { kind: "remnant", remnant: first.remnant };
  const names = left.map(({ name, remnant }) => `${name} on ${remnant.runtime}/${remnant.host}`).join(" and ");
  return {
    kind: "unproven",
    problem: unproven(
      "SeveralContainers",
      `status names no container, and there are several of this Sandbox: ${names}; nothing is touched`,
      "find out which of them holds the work, and remove the others by hand",
    ),
  };
}

interface NamedRemnant {
  readonly name: string;
  readonly remnant: Remnant;
}

const containerOf = ({ what, runtime, host, engine }: Found<ListedCompute>): NamedRemnant => ({
  name: what.id,
  remnant: {
    runtime,
    host,
    engine,
    boot: what.owner.boot,
    state: what.state,
    ...(what.image === undefined ? {} : { image: what.image }),
  },
});

/** Captures of a container that is gone. The current operation's is the one; else on each engine the newest holds it all. */
function capturesLeft(
  { status }: Sandbox,
  { captures, rescued, published }: HostFindings,
  isOpen: (capture: Found<ListedCapture>) => boolean,
): NamedRemnant[] {
  const open = captures.found
    .filter(isOpen)
    .filter(({ what }) => !rescued.has(what.operation) && !published.has(what.operation));
  const own = open.filter(({ what }) => what.operation === status?.operation?.id);
  const left = own.length > 0 ? own : open;
  const newest = left.filter(
    (one) => !left.some((other) => other.engine === one.engine && isLater(other.what, one.what)),
  );
  return newest.map(({ what, runtime, host, engine }) => ({
    name: what.localName,
    remnant: { runtime, host, engine, boot: what.owner.boot, state: "Absent" },
  }));
}

const isLater = (one: ListedCapture, other: ListedCapture): boolean =>
  one.owner.boot > other.owner.boot || (one.owner.boot === other.owner.boot && one.createdAt > other.createdAt);

/** Where a remnant's work began, and the version that it goes on from. */
export interface Origin {
  readonly bootedFrom: VersionPointer;
  readonly base: VersionPointer;
}

/**
 * From status, if it speaks of this very boot; else from the image that the container was made of, which must be of the
 * World's own repository, and from the versions that this session has published since.
 */
export function originOf(
  { status, metadata }: Sandbox,
  remnant: Remnant,
  of: { readonly world: World | undefined; readonly repository: string | undefined },
): Origin | undefined {
  if (status?.boot === remnant.boot && status.bootedFrom) {
    return { bootedFrom: status.bootedFrom, base: status.base ?? status.bootedFrom };
  }
  const [repository, digest] = remnant.image?.split("@") ?? [];
  if (digest === undefined || !isDigest(digest) || (of.repository !== undefined && repository !== of.repository))
    return undefined;
  const versions = of.world?.status?.versions ?? [];
  const booted = versions.find((version) => version.digest === digest);
  const bootedFrom = { digest, ...(booted ? { version: booted.version } : {}) };
  const own = versions.findLast(
    ({ sandbox, version }) => sandbox?.uid === metadata.uid && booted !== undefined && version > booted.version,
  );
  return { bootedFrom, base: own ? { version: own.version, digest: own.digest } : bootedFrom };
}
