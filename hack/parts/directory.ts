import { access, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemErrorCode } from "./errors.ts";

/** A running process, told from a later one that was given the same number. */
export interface ProcessIdentity {
  pid: number;
  /** Start time in clock ticks since boot, from /proc/PID/stat. */
  startTime: string;
}

/** The folder of one part: state, logs, keys. */
export interface PartDirectory extends AsyncDisposable {
  readonly path: string;
}

const ownerFile = "owner.json";
const prefix = "agent-worlds-";

/**
 * A folder for a part that is removed on dispose; `given` is used as it is (made when absent, and kept on dispose).
 * Folders of the same kind whose owner died without cleaning are cleaned first, by `cleanStale` and then by removal.
 */
export async function partDirectory(options: {
  kind: string;
  given?: string | undefined;
  /** Ends what a dead owner left outside its folder: processes, mounts, links. */
  cleanStale?: (directory: string) => Promise<void>;
}): Promise<PartDirectory> {
  await sweepStale(options.kind, options.cleanStale);
  if (options.given !== undefined) {
    await mkdir(options.given, { recursive: true, mode: 0o700 });
    await claim(options.given);
    const path = options.given;
    return { path, [Symbol.asyncDispose]: () => rm(join(path, ownerFile), { force: true }) };
  }
  const path = await mkdtemp(join(tmpdir(), `${prefix}${options.kind}-`));
  await claim(path);
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

async function claim(directory: string): Promise<void> {
  const owner = await identify(process.pid);
  await writeFile(join(directory, ownerFile), JSON.stringify(owner), { mode: 0o600 });
}

async function sweepStale(kind: string, cleanStale?: (directory: string) => Promise<void>): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    if (!name.startsWith(`${prefix}${kind}-`)) continue;
    const directory = join(tmpdir(), name);
    const owner = await ownerOf(directory);
    if (owner === undefined || (await isAlive(owner))) continue;
    await cleanStale?.(directory);
    await rm(directory, { recursive: true, force: true });
  }
}

/** Undefined while a folder has no owner yet (it is being made), is already gone, or is another user's. */
async function ownerOf(directory: string): Promise<ProcessIdentity | undefined> {
  try {
    return parseIdentity(await readFile(join(directory, ownerFile), "utf8"));
  } catch (error) {
    if (["ENOENT", "EACCES"].includes(systemErrorCode(error) ?? "")) return undefined;
    throw error;
  }
}

/** Reads what `JSON.stringify` made of a `ProcessIdentity`; undefined when it is cut short or something else. */
export function parseIdentity(text: string): ProcessIdentity | undefined {
  const match = /^\{"pid":(\d+),"startTime":"(\d+)"\}$/.exec(text.trim());
  if (match?.[1] === undefined || match[2] === undefined) return undefined;
  return { pid: Number(match[1]), startTime: match[2] };
}

/** The identity of a process, undefined when there is none of that number. */
export async function identify(pid: number): Promise<ProcessIdentity | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    // proc(5): the name in parentheses may hold anything, so fields are counted after the last one.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [state, startTime] = [fields[0], fields[19]];
    return state === "Z" || state === "X" || startTime === undefined ? undefined : { pid, startTime };
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
}

/** Whether that very process still runs (a zombie does not). */
export async function isAlive(identity: ProcessIdentity): Promise<boolean> {
  return (await identify(identity.pid))?.startTime === identity.startTime;
}

/** Whether there is something at a path. @throws what is not about its absence. */
export async function isThere(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch (error) {
    if (systemErrorCode(error) !== "ENOENT") throw error;
    return false;
  }
}
