import type { Platform } from "@agentworlds/crds";
import type { RegistryLogin } from "../registry/contract.ts";

/**
 * What a container host must offer so that a Sandbox can run on it (DESIGN §7). Every driver passes the same contract
 * suite. A driver knows no World and no Kubernetes object; it is handed plain values and answers with observations.
 */

/** An optional ability of a host. A wish that needs a missing one is refused by name at admission. */
export type Capability =
  | "exec"
  | "freeze"
  | "commit"
  | "deadContainerCapture"
  | "memoryLimit"
  | "cpuLimit"
  | "pidsLimit"
  | "isolatedNetwork"
  | "ociRuntime";

/** Whose compute this is. Written as labels; names derive from it, so that a retry adopts what the first try made. */
export interface ComputeOwner {
  /** Id of this installation of the operator. */
  readonly installation: string;
  readonly namespace: string;
  readonly sandbox: string;
  readonly sandboxUid: string;
  /** Boot ordinal of the Sandbox, from 1. */
  readonly boot: number;
}

/** The container name of one boot: `aw-<sandbox uid>-<boot>` (DESIGN §11). */
export const computeName = (owner: Pick<ComputeOwner, "sandboxUid" | "boot">): string =>
  `aw-${owner.sandboxUid}-${owner.boot}`;

/** The boot that a container name speaks of; 0 when it is not one of ours. */
export const bootNamed = (computeId: string): number => Number(/^aw-.+-([1-9]\d{0,14})$/.exec(computeId)?.[1] ?? 0);

/**
 * Whether an id is that of this very boot. An id is read from status, which others may write too, and a driver acts on whatever
 * of its installation the id names: nobody asks a driver about an id that has not passed here (DESIGN §4.5). A driver whose
 * ids say more than the name answers here too.
 */
export const isComputeOf = (computeId: string, owner: Pick<ComputeOwner, "sandboxUid" | "boot">): boolean =>
  computeId === computeName(owner);

/** The same for whichever boot of a Sandbox. */
export const isComputeOfSandbox = (computeId: string, sandboxUid: string): boolean =>
  isComputeOf(computeId, { sandboxUid, boot: bootNamed(computeId) });

/**
 * Everything needed to make one session's container. The session's environment is not among it: it is given to each exec,
 * because an engine writes a container's environment into the config of every commit (DESIGN §4.8).
 */
export interface ComputeSpec {
  readonly owner: ComputeOwner;
  /** `repository@sha256:…` as the host names it. */
  readonly image: string;
  /** Credentials for pulling `image`; used for the pull only, never enter the container. */
  readonly pullCredentials?: RegistryLogin;
  readonly limits: ComputeLimits;
  readonly isolation: Isolation;
}

export interface ComputeLimits {
  /** CPUs, for example 0.5. Absent: the host's share. */
  readonly cpus?: number;
  readonly memoryBytes?: number;
  readonly pids: number;
}

export interface Isolation {
  /** OCI runtime by its name on the host, for example `runsc`. Absent: the host's default. */
  readonly ociRuntime?: string;
  /** `Isolated`: an own bridge without traffic between containers. `None`: loopback only. */
  readonly network: "Isolated" | "None";
}

/** What is true of one container now. Always from inspection, never from memory. */
export type ObservedCompute =
  | { readonly state: "Absent" }
  | {
      readonly state: "Created" | "Running" | "Frozen";
      readonly startedAt: string | undefined;
      /** Of its first process, on the host: the same as long as it is not started anew. Absent where the host does not say. */
      readonly pid?: number;
    }
  | {
      readonly state: "Exited";
      /** The runtime's word. After a host crash it can be 0: never read it as "finished". */
      readonly exitCode: number;
      readonly outOfMemory: boolean;
      readonly finishedAt: string | undefined;
    };

export interface ExecRequest {
  readonly command: readonly string[];
  /** Session environment and the command's own, merged by the caller. Travels in the request body, never in argv. */
  readonly env?: Readonly<Record<string, string>>;
  /** Default: the image's working directory. */
  readonly workingDir?: string;
  /** `name`, `uid` or `uid:gid`. Default: the image's user. */
  readonly user?: string;
  readonly stdin?: Uint8Array;
  /** The whole process group is killed after this; the record says `timedOut`. Default 60 s. */
  readonly timeoutMs?: number;
  /** Most bytes of stdout and stderr together; more is `OutputTooLarge`. Default 16 MiB. */
  readonly maxOutputBytes?: number;
}

/** The supervisor's record: never invented, never read off a closed stream. */
export interface ExecRecord {
  /** Exit code; 128+n when killed by signal n; 124 when timed out. */
  readonly exitCode: number;
  /** Signal number that ended it, or 0. */
  readonly signal: number;
  readonly timedOut: boolean;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly durationMs: number;
}

export interface FileWrite {
  /** Absolute path inside the container, as bytes. */
  readonly path: Uint8Array;
  readonly content: AsyncIterable<Uint8Array>;
  /** Permission bits; absent: those of the file it replaces, else 0644. */
  readonly mode?: number;
}

/** What a commit of a container left on its host. */
export interface CommittedImage {
  /** Image id on the host, `sha256:…`. */
  readonly imageId: string;
}

/** A container of this installation found on a host. */
export interface ListedCompute {
  readonly id: string;
  readonly owner: ComputeOwner;
  readonly state: Exclude<ObservedCompute["state"], "Absent">;
  /** `repository@sha256:…` that it was made from, as the host names it; absent when the host does not know it any more. */
  readonly image?: string;
}

/** Repository of the local names under which captures are committed; the tag is the operation's id. */
export const CAPTURE_REPOSITORY = "agentworlds/capture";

/** A commit of a container of this installation that is still on a host under its local name. */
export interface ListedCapture {
  readonly localName: string;
  /** Id of the operation that made it. */
  readonly operation: string;
  readonly owner: ComputeOwner;
  /** `repository@sha256:…` that its container was made from, as the host names it; absent where its labels do not say. */
  readonly image?: string;
  /** Epoch milliseconds, by the host's clock. */
  readonly createdAt: number;
}

export interface HostFacts {
  /** Engine version as the host reports it. */
  readonly version: string;
  readonly platform: Platform;
  readonly capabilities: readonly Capability[];
  /** Names of the OCI runtimes that the host knows. */
  readonly ociRuntimes: readonly string[];
  readonly cpus: number;
  readonly memoryBytes: number;
}

/**
 * One container host. Every call takes a signal and has a deadline of its own; every call may be repeated.
 * `id` is a compute id as returned by `create` (docker: the container name, known before the create). A container of that
 * name that is not this installation's and this boot's counts as absent: it is neither looked into nor touched.
 */
export interface RuntimeDriver {
  /** Asks the host what it is. Throws `HostUnreachable`. */
  probe(signal: AbortSignal): Promise<HostFacts>;
  /**
   * Id of the engine as its own data tells it: the same across restarts, addresses and what the engine calls itself. Read again
   * after every new connection, so whoever observes asks for it after the observation. Throws `HostUnreachable`.
   */
  identity(signal: AbortSignal): Promise<string>;
  /** Pulls the image unless present; a digest is never pulled twice. Throws `ImageUnavailable`. */
  pull(image: string, login: RegistryLogin | undefined, signal: AbortSignal): Promise<void>;
  /**
   * Makes and starts the container of this boot, or adopts the one an earlier try made. Returns when its helper answers.
   * Throws `ComputeConflict` when a container of that name is not this boot's.
   */
  create(spec: ComputeSpec, signal: AbortSignal): Promise<string>;
  inspect(id: string, signal: AbortSignal): Promise<ObservedCompute>;
  /** Whose it is, as written when it was made: not by its name alone. Undefined when there is none. */
  ownerOf(id: string, signal: AbortSignal): Promise<ComputeOwner | undefined>;
  /** Throws `CommandTooLarge`, `ComputeNotRunning`, `ExecConnectionLost`, `OutputTooLarge`. */
  exec(id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecRecord>;
  /** The bytes of a regular file. Throws `FileNotFound`, `NotAFile`. A stream that ends early throws. */
  readFile(
    id: string,
    path: Uint8Array,
    signal: AbortSignal,
  ): Promise<{ size: number; content: AsyncIterable<Uint8Array> }>;
  /** Writes the file atomically: a reader sees the old bytes or the new ones. */
  writeFile(id: string, write: FileWrite, signal: AbortSignal): Promise<void>;
  /** Has all that was written in the container brought to the disk. Throws when that fails; `ComputeNotRunning`. */
  sync(id: string, signal: AbortSignal): Promise<void>;
  /** Stops every process of the container where it stands. Freezing a frozen one is a success. */
  freeze(id: string, signal: AbortSignal): Promise<void>;
  /** Thawing one that is not frozen is a success. */
  thaw(id: string, signal: AbortSignal): Promise<void>;
  /** Commits the container (running, frozen or dead) under a local name; the same name again returns the first commit. */
  commit(id: string, localName: string, signal: AbortSignal): Promise<CommittedImage>;
  /** Pushes a local image to `repository:tag`. Repeatable. */
  push(
    localName: string,
    target: { repository: string; tag: string; login: RegistryLogin | undefined },
    signal: AbortSignal,
  ): Promise<void>;
  /** Removes local names made by `commit`; absent ones are a success. */
  forgetCommit(localName: string, signal: AbortSignal): Promise<void>;
  /**
   * The whole filesystem of a container (running or dead) as a tar. Throws `ComputeNotFound` before the first byte; a stream that
   * ends early throws.
   */
  exportTar(id: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** Ends every process, keeps the filesystem. Stopping a stopped one is a success. */
  stop(id: string, signal: AbortSignal): Promise<void>;
  /** Removes the container and its filesystem. Absent is a success. */
  remove(id: string, signal: AbortSignal): Promise<void>;
  /** Every container of an installation on this host. */
  list(installation: string, signal: AbortSignal): Promise<ListedCompute[]>;
  /** Every capture of an installation on this host. */
  listCaptures(installation: string, signal: AbortSignal): Promise<ListedCapture[]>;
  /** Removes images of `repositoryPrefix` that no container uses, oldest first, until `keep` remain. Returns what went. */
  pruneImages(options: { repositoryPrefix: string; keep: number }, signal: AbortSignal): Promise<string[]>;
  /** Closes connections. Calls in flight may end until `patience` aborts; without it they are cut. */
  close(patience?: AbortSignal): Promise<void>;
}
