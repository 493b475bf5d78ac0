/** A sweep of one host whose engine, Sandboxes, Worlds and Runtimes a test makes up. */
import type { Runtime, RuntimeRescue, Sandbox, World } from "@agentworlds/crds";
import { RUNTIMES, SANDBOXES, WORLDS } from "../kube/resource-types.ts";
import { silentLog } from "../reconciler/log.ts";
import { captureName } from "../snapshot/docker-commit.ts";
import type { ListedCapture, ListedCompute, ObservedCompute, RuntimeDriver } from "./contract.ts";
import { RuntimeError } from "./errors.ts";
import { memoryResource } from "./memory-resource.test-kit.ts";
import { createRuntimeRescues } from "./rescues.ts";
import { sweepHost } from "./sweep.ts";
import { at, runtimeOf, sandboxOf, T0 } from "./test-objects.test-kit.ts";

export const DAY = 86_400;
export const container = (uid: string, boot: number, sandbox = uid): ListedCompute => ({
  id: `aw-${uid}-${boot}`,
  owner: { installation: "install", namespace: "team", sandbox, sandboxUid: uid, boot },
  state: "Running",
});
export const stopped = (uid: string): ListedCompute => ({ ...container(uid, 1), state: "Exited" });
export const session = (uid: string, boot: number | undefined): Sandbox =>
  sandboxOf({
    metadata: { name: uid, uid },
    status: boot === undefined ? {} : { boot, compute: { runtime: "local", host: "a", id: `aw-${uid}-${boot}`, boot } },
  });
/** A session that began a boot, and whose status names no container any more. */
export const forgetful = (uid: string, boot: number): Sandbox =>
  sandboxOf({ metadata: { name: uid, uid }, status: { boot } });
/** A session whose first boot is written down as ended, in its second. */
export const later = (uid: string): Sandbox => {
  const { metadata, status } = session(uid, 2);
  const lastEnding = { boot: 1, reason: "DeadlinePassed", outcome: "Published", message: "", at: at(0) } as const;
  return sandboxOf({ metadata, status: { ...status, lastEnding } });
};
export const rescueOf = (uid: string, since: number, host = "a"): RuntimeRescue => ({
  operation: `publish-${uid}`,
  namespace: "team",
  sandbox: { name: uid, uid },
  host,
  computeId: `aw-${uid}-1`,
  reason: "SnapshotFailed",
  message: "",
  since: at(since),
});

export const captureOf = (uid: string, createdAt = 0, operation = `operation-${uid}`): ListedCapture => ({
  localName: captureName(operation),
  operation,
  owner: container(uid, 1).owner,
  createdAt: T0 + createdAt * 1000,
});
export const hibernating = (uid: string, operation: string): Sandbox => {
  const { metadata, status } = session(uid, 1);
  const facts = { verb: "Hibernate", reason: "DeadlinePassed", stage: "Captured", since: at(0), attempts: 0 } as const;
  return sandboxOf({ metadata, status: { ...status, operation: { id: operation, ...facts } } });
};

/** The calls a sweep makes; what happened to containers and captures, in order. */
export function hostWith(
  containers: readonly ListedCompute[],
  states: Readonly<Record<string, ObservedCompute>> = {},
  captures: readonly ListedCapture[] = [],
) {
  const calls: string[] = [];
  let isGone = false;
  const never = (): never => {
    throw new TypeError("a sweep makes no such call");
  };
  const driver: RuntimeDriver = {
    probe: never,
    identity: async () => "engine-a",
    pull: never,
    create: never,
    exec: never,
    readFile: never,
    writeFile: never,
    sync: never,
    freeze: never,
    thaw: never,
    commit: never,
    push: never,
    exportTar: never,
    forgetCommit: async (localName) => {
      if (localName === captureName("in-use")) throw new RuntimeError("HostRefused", "image is being used");
      calls.push(`forget ${localName}`);
    },
    pruneImages: never,
    close: never,
    ownerOf: never,
    inspect: async (id) => states[id] ?? (isGone ? { state: "Absent" } : { state: "Running", startedAt: undefined }),
    listCaptures: async (installation) =>
      captures.filter(({ owner }) => !isGone && owner.installation === installation),
    list: async (installation) => containers.filter(({ owner }) => !isGone && owner.installation === installation),
    stop: async (id) => void calls.push(`stop ${id}`),
    remove: async (id) => void calls.push(`remove ${id}`),
  };
  /** Whoever published the work removes everything of it. */
  const leave = (): void => {
    isGone = true;
  };
  return { driver, calls, leave };
}

export async function sweep(given: {
  containers: readonly ListedCompute[];
  states?: Readonly<Record<string, ObservedCompute>>;
  sandboxes?: readonly Sandbox[];
  rescues?: readonly RuntimeRescue[];
  rescueSeconds?: number;
  now?: number;
  captures?: readonly ListedCapture[];
  worlds?: readonly World[];
  /** Further Runtimes, with hosts that may be addresses of the same engine. */
  runtimes?: readonly Runtime[];
  /** Rescues that the Runtime has by now, and the sweep's own view of it lacks. */
  recordedSince?: readonly RuntimeRescue[];
  /** Whoever published the work removes container, capture and record right before the sweep writes one. */
  publishedMeanwhile?: boolean;
}) {
  const runtime: Runtime = runtimeOf({
    ...(given.rescueSeconds === undefined ? {} : { spec: { rescueSeconds: given.rescueSeconds } }),
    status: given.rescues ? { rescues: [...given.rescues] } : {},
  });
  const runtimes = memoryResource<Runtime>(RUNTIMES, [runtime, ...(given.runtimes ?? [])]);
  const sandboxes = memoryResource<Sandbox>(SANDBOXES, given.sandboxes ?? []);
  const { driver, calls, leave } = hostWith(given.containers, given.states, given.captures);
  if (given.recordedSince) {
    const rescues = [...(given.rescues ?? []), ...given.recordedSince];
    runtimes.put({ ...runtime, status: { ...runtime.status, rescues } });
  }
  if (given.publishedMeanwhile) runtimes.interfere(leave);
  const { over, orphans } = await sweepHost({
    runtime,
    host: "a",
    driver,
    installation: "install",
    sandboxes,
    worlds: memoryResource<World>(WORLDS, given.worlds ?? []),
    runtimes,
    rescues: createRuntimeRescues(runtimes),
    now: T0 + (given.now ?? 0) * 1000,
    log: silentLog,
    signal: new AbortController().signal,
  });
  return { over, orphans, calls, recorded: runtimes.peek({ name: "local" })?.status.rescues ?? [] };
}
