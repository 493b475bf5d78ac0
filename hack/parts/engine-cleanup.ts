import { readdir, readFile, rm, rmdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { defaultCacheDirectory } from "./binaries.ts";
import { identify, isAlive, type ProcessIdentity } from "./directory.ts";
import { type EngineNetwork, removeEngineNetwork } from "./engine-network.ts";
import { systemErrorCode } from "./errors.ts";
import { withLock } from "./lock.ts";
import { run } from "./process.ts";
import { eventually } from "./wait.ts";

/** What a private dockerd may leave behind, written before it is started. */
export interface EngineState {
  /** Cgroup that holds the cgroups of its containers, relative to each hierarchy. */
  cgroupParent: string;
  network: EngineNetwork;
  /** Folders outside the engine's directory that dockerd makes and that were not there before. */
  absentBefore: string[];
}

/** File of the state, below the engine's directory. */
export const stateFile = "engine.json";

/**
 * Folders that dockerd makes at compiled-in paths, children first. Each goes only while it is empty: what other engines of the
 * machine keep there is theirs.
 */
const fixedPaths = [
  "/etc/docker",
  "/run/docker/plugins",
  "/run/docker",
  "/run/containerd/s",
  "/run/containerd",
  // Made by umount(8).
  "/run/mount",
];

/** Those of the fixed paths that are not there yet. */
export async function absentFixedPaths(): Promise<string[]> {
  const absent: string[] = [];
  for (const path of fixedPaths) {
    try {
      await stat(path);
    } catch (error) {
      if (systemErrorCode(error) !== "ENOENT") throw error;
      absent.push(path);
    }
  }
  return absent;
}

async function removeFixedPaths(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    try {
      await rmdir(path);
    } catch (error) {
      // Somebody else has put something there since, or has removed it.
      const code = systemErrorCode(error);
      if (code !== "ENOENT" && code !== "ENOTEMPTY") throw error;
    }
  }
}

/** Folders below the engine's directory that dockerd fills. */
export const engineFolders = { data: "data", exec: "exec" } as const;

/**
 * Ends everything that a private dockerd started in `directory` and removes everything it made there and elsewhere:
 * processes, mounts, links, packet-filter rules, cgroups, files. Safe to repeat, and for a half-started engine.
 */
export async function cleanEngine(directory: string, signal: AbortSignal): Promise<void> {
  await withLock(join(defaultCacheDirectory(), "engine-clean.lock"), signal, async () => {
    const state = await readState(directory);
    if (state === undefined) return;
    await endProcesses(directory, state, signal);
    await unmountBelow(directory, signal);
    await removeEngineNetwork(state.network, signal);
    await removeCgroups(state.cgroupParent);
    await removeShimSockets(join(directory, engineFolders.exec));
    await removeFixedPaths(state.absentBefore);
    for (const folder of Object.values(engineFolders)) {
      await rm(join(directory, folder), { recursive: true, force: true, maxRetries: 3 });
    }
    await rm(join(directory, stateFile), { force: true });
  });
}

async function readState(directory: string): Promise<EngineState | undefined> {
  try {
    const parsed: EngineState = JSON.parse(await readFile(join(directory, stateFile), "utf8"));
    return parsed;
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

async function endProcesses(directory: string, state: EngineState, signal: AbortSignal): Promise<void> {
  // First who starts others (dockerd, containerd, shims: they carry the folder in their arguments), then the contained.
  for (const find of [() => processesWithArgument(directory), () => processesInCgroup(state.cgroupParent)]) {
    await eventually(
      async () => {
        await thaw(state.cgroupParent);
        const alive = await find();
        for (const one of alive) await kill(one);
        return alive.length === 0;
      },
      { signal, timeoutMs: 30_000, intervalMs: 20, what: `the processes of ${directory} gone` },
    );
  }
}

async function kill(one: ProcessIdentity): Promise<void> {
  if (!(await isAlive(one))) return;
  try {
    process.kill(one.pid, "SIGKILL");
  } catch (error) {
    if (systemErrorCode(error) !== "ESRCH") throw error;
  }
}

const engineProgram = /(?:^|\/)(?:dockerd|containerd|containerd-shim[^/]*|docker-proxy|runc)$/;

async function processesWithArgument(directory: string): Promise<ProcessIdentity[]> {
  const found: ProcessIdentity[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const args = (await readGone(`/proc/${name}/cmdline`)).split("\0");
    if (!engineProgram.test(args[0] ?? "") || !args.some((word) => word.includes(`${directory}/`))) continue;
    const identity = await identify(Number(name));
    if (identity !== undefined) found.push(identity);
  }
  return found;
}

async function processesInCgroup(parent: string): Promise<ProcessIdentity[]> {
  const found: ProcessIdentity[] = [];
  for (const group of await cgroupsBelow(parent)) {
    for (const pid of (await readGone(join(group, "cgroup.procs"))).split("\n").filter(Boolean)) {
      const identity = await identify(Number(pid));
      if (identity !== undefined) found.push(identity);
    }
  }
  return found;
}

/** A paused container's processes take no signal, SIGKILL included, until their group is thawed (cgroup v1). */
async function thaw(parent: string): Promise<void> {
  for (const group of await cgroupsBelow(parent)) {
    const path = join(group, "freezer.state");
    if ((await readGone(path)).trim() !== "FROZEN") continue;
    try {
      await writeFile(path, "THAWED");
    } catch (error) {
      if (systemErrorCode(error) !== "ENOENT") throw error;
    }
  }
}

async function unmountBelow(directory: string, signal: AbortSignal): Promise<void> {
  const points = mountPoints(await readFile("/proc/self/mountinfo", "utf8")).filter((point) =>
    point.startsWith(`${directory}/`),
  );
  // The newest first: mounts below mounts come later in the list.
  for (const point of points.reverse()) await run(["umount", "--lazy", point], { signal });
}

/** Mount points of /proc/PID/mountinfo, in order, with octal escapes undone (proc(5)). */
export function mountPoints(mountinfo: string): string[] {
  return mountinfo.split("\n").flatMap((line) => {
    const point = line.split(" ")[4];
    if (point === undefined) return [];
    return [point.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))];
  });
}

/** A shim's socket is outside the exec root, at the address it wrote into its bundle; a killed one leaves it behind. */
async function removeShimSockets(execRoot: string): Promise<void> {
  for (const file of await filesNamed("address", execRoot)) {
    const socket = /^unix:\/\/(\/run\/containerd\/s\/[0-9a-f]+)$/.exec((await readGone(file)).trim())?.[1];
    if (socket !== undefined) await rm(socket, { force: true });
  }
}

async function filesNamed(name: string, below: string): Promise<string[]> {
  try {
    const entries = await readdir(below, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.name === name).map((entry) => join(entry.parentPath, entry.name));
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return [];
    throw error;
  }
}

async function removeCgroups(parent: string): Promise<void> {
  for (const group of await cgroupsBelow(parent)) {
    try {
      await rmdir(group);
    } catch (error) {
      if (systemErrorCode(error) !== "ENOENT") throw error;
    }
  }
}

/** Every cgroup of that name and those below it, children first, in each hierarchy (v1) or the only one (v2). */
async function cgroupsBelow(parent: string): Promise<string[]> {
  const root = "/sys/fs/cgroup";
  const entries = await readdir(root, { withFileTypes: true });
  const unified = entries.some((entry) => entry.name === "cgroup.controllers");
  const hierarchies = unified ? [root] : entries.filter((e) => e.isDirectory()).map((e) => join(root, e.name));
  const found: string[] = [];
  for (const hierarchy of hierarchies) await collect(join(hierarchy, parent), found);
  return found;
}

async function collect(group: string, into: string[]): Promise<void> {
  try {
    for (const entry of await readdir(group, { withFileTypes: true })) {
      if (entry.isDirectory()) await collect(join(group, entry.name), into);
    }
    into.push(group);
  } catch (error) {
    if (systemErrorCode(error) !== "ENOENT") throw error;
  }
}

/** The content of a file of /proc or /sys, empty when its process or group is gone. */
async function readGone(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === "ENOENT" || code === "ESRCH" || code === "ENODEV") return "";
    throw error;
  }
}
