// Brings every local part up and leaves it running; `hack/down.ts` ends it. Does nothing when it is up already.
//   node hack/up.ts [--directory DIR] [--registry-port PORT] [--images busybox,workbench]
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, open } from "node:fs/promises";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type BaseImageName, isBaseImageName } from "./parts/base-images.ts";
import { runCommandLine, UsageError } from "./parts/command-line.ts";
import { PartFailed } from "./parts/errors.ts";
import { defaultDirectory, endParts, type LocalPaths, localPaths, runningParts } from "./parts/local.ts";
import { withLock } from "./parts/lock.ts";
import type { PartsFile } from "./parts/parts-file.ts";
import { lastLines } from "./parts/process.ts";
import { expectPrepared } from "./parts/requirements.ts";
import { exportLines } from "./parts/shell.ts";
import { REGISTRY_PORT, up } from "./parts/undertakings.ts";
import { eventually } from "./parts/wait.ts";

const withinMs = 45 * 60_000;

interface UpOptions {
  paths: LocalPaths;
  registryPort: number;
  images: readonly BaseImageName[];
}

/** Above the first await of this module: a class is not there before its line was run. */
class KeeperEnded extends Error {
  override readonly name = "KeeperEnded";
}

await runCommandLine(async (words, stop) => {
  const options = parse(words);
  const signal = AbortSignal.any([stop, AbortSignal.timeout(withinMs)]);
  await mkdir(options.paths.directory, { recursive: true, mode: 0o700 });
  const parts = await withLock(options.paths.lock, signal, async () => {
    const running = await runningParts(options.paths);
    if (running !== undefined) return running;
    await endParts(options.paths, signal);
    await expectPrepared(up(options.images, options.registryPort), signal);
    return startKeeper(options, signal);
  });
  report(parts, options.paths);
  return 0;
});

function parse(words: readonly string[]): UpOptions {
  const { values } = parseArgs({
    args: [...words],
    options: {
      directory: { type: "string", default: defaultDirectory },
      "registry-port": { type: "string", default: String(REGISTRY_PORT) },
      images: { type: "string", default: "busybox,workbench" },
    },
  });
  const registryPort = Number(values["registry-port"]);
  if (!Number.isInteger(registryPort) || registryPort < 1 || registryPort > 65_535) {
    throw new UsageError(`--registry-port ${values["registry-port"]} is not a port`);
  }
  const images = values.images.split(",").map((name) => {
    if (isBaseImageName(name)) return name;
    throw new UsageError(`--images ${name}: there are busybox and workbench`);
  });
  return { paths: localPaths(resolve(values.directory)), registryPort, images };
}

/** Starts the keeper as a process of its own and shows what it says until everything is up. */
async function startKeeper(options: UpOptions, signal: AbortSignal): Promise<PartsFile> {
  const { paths } = options;
  await using log = await open(paths.log, "w");
  const script = fileURLToPath(new URL("./parts/keeper.ts", import.meta.url));
  const words = [script, paths.directory, String(options.registryPort), options.images.join(",")];
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
    if (error instanceof KeeperEnded) throw new PartFailed("up", said);
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
  const seen = await eventually(look, { signal, timeoutMs: withinMs, intervalMs: 100, what: "the local parts up" });
  if (seen === "ended") throw new KeeperEnded();
  return seen;
}

/** On stdout what a shell evaluates, and nothing else; for whoever reads it, what cannot be exported goes to stderr. */
function report(parts: PartsFile, paths: LocalPaths): void {
  const variables = {
    KUBECONFIG: parts.controlPlane.kubeconfig,
    DOCKER_HOST: parts.engine.dockerHost,
    AGENTWORLDS_PARTS: paths.parts,
  };
  process.stdout.write(`${exportLines(variables)}\n`);
  const images = Object.values(parts.baseImages).map((reference) => `image    ${reference}`);
  process.stderr.write(`${[`registry ${parts.registry.url}`, ...images].join("\n")}\n`);
}
