import { readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { identify, isAlive, type ProcessIdentity, parseIdentity } from "./directory.ts";
import { cleanEngine } from "./engine-cleanup.ts";
import { systemErrorCode } from "./errors.ts";
import { type PartsFile, readPartsFile } from "./parts-file.ts";
import { eventually } from "./wait.ts";

/** Files of the parts that `up` started, below its directory. */
export interface LocalPaths {
  directory: string;
  /** There when everything is up. */
  parts: string;
  /** There from the first moment on: who runs the parts. */
  keeper: string;
  log: string;
  lock: string;
}

/** `.local` of this clone. */
export const defaultDirectory = fileURLToPath(new URL("../../.local", import.meta.url));

/** Paths of the parts that `up` starts in a directory. */
export function localPaths(directory: string): LocalPaths {
  const at = (name: string): string => join(directory, name);
  return {
    directory,
    parts: at("parts.json"),
    keeper: at("keeper.json"),
    log: at("keeper.log"),
    lock: at("lock"),
  };
}

/** What is up in a directory, undefined when nothing or not everything is. */
export async function runningParts(paths: LocalPaths): Promise<PartsFile | undefined> {
  const parts = await orUndefined(readPartsFile(paths.parts));
  return parts !== undefined && (await isAlive(parts.keeper)) ? parts : undefined;
}

/** Says who runs the parts, so that they can be ended before they are up. */
export async function announceKeeper(paths: LocalPaths): Promise<void> {
  await writeFile(paths.keeper, JSON.stringify(await identify(process.pid)), { mode: 0o600 });
}

/**
 * Ends exactly the processes that an `up` in this directory started and removes what it made. Works on a half-started
 * or crashed one, and on nothing at all. Returns what was ended, for a sentence.
 */
export async function endParts(paths: LocalPaths, signal: AbortSignal): Promise<string | undefined> {
  const keeper = await orUndefined(readFile(paths.keeper, "utf8"));
  const identity = keeper === undefined ? undefined : parseIdentity(keeper);
  const listed = await orUndefined(readPartsFile(paths.parts).catch(notReadable));
  if (identity !== undefined) await endProcess(identity, { graceMs: graceOf(listed), signal });
  // Its children die with it; who is listed and still there was not its child any more.
  for (const one of listed?.processes ?? []) await endProcess(one, { graceMs: 10_000, signal });
  await cleanEngine(join(paths.directory, "engine"), signal);
  for (const folder of ["control-plane", "engine", "registry", "operator"]) {
    await rm(join(paths.directory, folder), { recursive: true, force: true, maxRetries: 3 });
  }
  for (const file of [paths.parts, paths.keeper, paths.log]) await rm(file, { force: true });
  if (listed !== undefined) return namesOf(listed);
  return keeper === undefined ? undefined : "a start that was not done, or not whole any more";
}

function namesOf({ controlPlane, engine, operator }: PartsFile): string {
  const names = [
    ...(operator === undefined ? [] : ["operator"]),
    // A cluster of somebody else has no folder here.
    ...(controlPlane.directory === "" ? [] : ["control plane"]),
    ...(engine.private ? ["engine"] : []),
    "registry",
  ];
  return names.join(", ");
}

/** Most time that `endParts` needs. */
export const DOWN_WITHIN_MS = 6 * 60_000;

/**
 * In order, the keeper needs some seconds: containers, then daemons, then folders. An operator may have sessions to end and a
 * cluster of somebody else to leave as it was.
 */
const graceOf = (listed: PartsFile | undefined): number => (listed?.operator === undefined ? 60_000 : 5 * 60_000);

/** Removes the directory itself when nothing of somebody else is in it. */
export async function removeEmpty(paths: LocalPaths): Promise<void> {
  await rm(paths.lock, { force: true });
  try {
    await rmdir(paths.directory);
  } catch (error) {
    const code = systemErrorCode(error);
    if (code !== "ENOENT" && code !== "ENOTEMPTY") throw error;
  }
}

/** TERM, then KILL. Never a process that merely got the same number later. */
async function endProcess(one: ProcessIdentity, limits: { graceMs: number; signal: AbortSignal }): Promise<void> {
  for (const [name, timeoutMs] of [["SIGTERM", limits.graceMs] as const, ["SIGKILL", 10_000] as const]) {
    if (!(await isAlive(one))) return;
    process.kill(one.pid, name);
    const gone = eventually(async () => !(await isAlive(one)), { timeoutMs, signal: limits.signal });
    if (name === "SIGKILL") await gone;
    else await gone.catch((error: unknown) => limits.signal.aborted && Promise.reject(error));
  }
}

/** A parts file of another version, or half a one: what it lists is not known. */
function notReadable(error: unknown): undefined {
  if (systemErrorCode(error) !== undefined) throw error;
  return undefined;
}

async function orUndefined<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}
