import { randomUUID } from "node:crypto";
import type { ComputeOwner, ExecRecord, ExecRequest, ObservedCompute } from "../contract.ts";

/** A file of the fake: its bytes and permission bits. */
export interface FakeFile {
  readonly bytes: Buffer;
  readonly mode: number;
}

/** Paths are bytes; Latin-1 keeps them apart in a map's key. */
export type FakeFiles = Map<string, FakeFile>;

export const pathKey = (path: Uint8Array): string => Buffer.from(path).toString("latin1");

export interface FakeImage {
  readonly id: string;
  readonly files: FakeFiles;
  /** Container it is a commit of. */
  readonly commitOf: Pick<FakeContainer, "uid" | "owner"> | undefined;
}

export interface FakeContainer {
  readonly uid: string;
  readonly owner: ComputeOwner;
  readonly image: string;
  readonly files: FakeFiles;
  observed: Exclude<ObservedCompute, { state: "Absent" }>;
}

/** Every method of the driver that can be delayed or made to fail. */
export type FakeOperation =
  | "probe"
  | "identity"
  | "pull"
  | "create"
  | "inspect"
  | "ownerOf"
  | "exec"
  | "readFile"
  | "writeFile"
  | "sync"
  | "freeze"
  | "thaw"
  | "commit"
  | "push"
  | "forgetCommit"
  | "exportTar"
  | "stop"
  | "remove"
  | "list"
  | "listCaptures"
  | "pruneImages";

export interface FakeCall {
  readonly operation: FakeOperation;
  /** Container, image or local name; empty for calls on the whole host. */
  readonly subject: string;
  /** Before the effect, or after it and before the answer. */
  readonly moment: "before" | "after";
}

export interface FakeHostOptions {
  /** Images that a pull finds, besides those committed here. Default: every name. */
  readonly pullable?: (image: string) => boolean;
  /** What a command does. Default: exits 0 without output. */
  readonly command?: (request: ExecRequest, container: FakeContainer) => Partial<ExecRecord>;
  /** Called around every effect; throws to inject a failure, waits to inject delay. */
  readonly onCall?: (call: FakeCall, signal: AbortSignal) => Promise<void> | void;
  /** Called with the files of an image that is pushed. */
  readonly onPush?: (pushed: { repository: string; tag: string; files: FakeFiles }) => Promise<void> | void;
}

/** The state of one host. It outlives the drivers that talk to it, as a real host outlives an operator's restart. */
export class FakeHost {
  readonly options: FakeHostOptions;
  readonly containers = new Map<string, FakeContainer>();
  /** By name, oldest first. */
  readonly images = new Map<string, FakeImage>();

  constructor(options: FakeHostOptions = {}) {
    this.options = options;
  }

  /** Ends a container from outside, as a crash does. */
  kill(id: string): void {
    const container = this.containers.get(id);
    if (container === undefined || container.observed.state === "Exited") return;
    container.observed = { state: "Exited", exitCode: 137, outOfMemory: false, finishedAt: FAKE_TIME };
  }
}

/** Every time the fake reports: it has no clock. */
export const FAKE_TIME = "2026-01-01T00:00:00Z";

export const newImage = (files: FakeFiles, commitOf?: FakeImage["commitOf"]): FakeImage => ({
  id: `sha256:${randomUUID().replaceAll("-", "").repeat(2)}`,
  files,
  commitOf,
});
