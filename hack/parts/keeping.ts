/** The process that runs local parts when the program that asked for them has ended: `make up`, `make demo KEEP=1`. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { open } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { BaseImageName } from "./base-images.ts";
import { PartFailed } from "./errors.ts";
import { endParts, type LocalPaths, runningParts } from "./local.ts";
import type { PartsFile } from "./parts-file.ts";
import { lastLines } from "./process.ts";
import { eventually } from "./wait.ts";

/** Bringing everything up, compiling included, takes no longer. */
export const UP_WITHIN_MS = 45 * 60_000;

/** What a keeper is to run. */
export interface KeeperOptions {
  readonly paths: LocalPaths;
  readonly registryPort: number;
  readonly images: readonly BaseImageName[];
  /** Who asks. The demo's keeper runs an operator beside the parts, and takes the cluster that env KUBECONFIG names. */
  readonly by: "make up" | "make demo";
}

class KeeperEnded extends Error {
  override readonly name = "KeeperEnded";
}

/** Starts the keeper as a process of its own and shows what it says until everything is up. */
export async function startKeeper(options: KeeperOptions, signal: AbortSignal): Promise<PartsFile> {
  const { paths } = options;
  await using log = await open(paths.log, "w");
  const script = fileURLToPath(new URL("./keeper.ts", import.meta.url));
  const words = [script, paths.directory, String(options.registryPort), options.images.join(",")];
  if (options.by === "make demo") words.push("demo");
  const keeper = spawn(process.execPath, words, { detached: true, stdio: ["ignore", log.fd, log.fd] });
  await once(keeper, "spawn");
  try {
    const parts = await followUntilUp(keeper, paths, signal);
    keeper.unref();
    return parts;
  } catch (error) {
    keeper.kill("SIGTERM");
    if (keeper.exitCode === null && keeper.signalCode === null) await once(keeper, "exit");
    const said = await lastLines(paths.log);
    await endParts(paths, AbortSignal.timeout(60_000));
    if (error instanceof KeeperEnded) throw new PartFailed(options.by === "make up" ? "up" : "demo", said);
    throw error;
  }
}

async function followUntilUp(keeper: ChildProcess, paths: LocalPaths, signal: AbortSignal): Promise<PartsFile> {
  await using log = await open(paths.log, "r");
  let shown = 0;
  const look = async (): Promise<PartsFile | "ended" | undefined> => {
    const ended = keeper.exitCode !== null || keeper.signalCode !== null;
    const parts = await runningParts(paths);
    if (!ended && parts === undefined) {
      const { buffer, bytesRead } = await log.read({ position: shown });
      process.stderr.write(buffer.subarray(0, bytesRead));
      shown += bytesRead;
    }
    return ended ? "ended" : parts;
  };
  const seen = await eventually(look, { signal, timeoutMs: UP_WITHIN_MS, intervalMs: 100, what: "the local parts up" });
  if (seen === "ended") throw new KeeperEnded();
  return seen;
}
