// Brings the local parts up, runs a command with them, and tears them down however the command ends. A cluster that env
// KUBECONFIG names is lent to the tests that need no more than a cluster.
//   node hack/with-parts.ts -- COMMAND [WORD …]
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { exitCodeOf, Interrupted, runCommandLine, UsageError } from "./parts/command-line.ts";
import { partDirectory } from "./parts/directory.ts";
import { givenKubeconfig } from "./parts/given-cluster.ts";
import { borrowCluster } from "./parts/lent-cluster.ts";
import { defaultDirectory, localPaths } from "./parts/local.ts";
import { forgetEndedParts } from "./parts/own-variables.ts";
import { startParts, writePartsFile } from "./parts/parts.ts";
import type { PartsFile } from "./parts/parts-file.ts";

const startWithinMs = 25 * 60_000;
const endWithinMs = 15_000;

await runCommandLine(async (words, interrupted) => {
  using orphaned = whenOrphaned();
  const stop = AbortSignal.any([interrupted, orphaned.signal]);
  const command = words[0] === "--" ? words.slice(1) : words;
  if (command.length === 0) throw new UsageError("usage: with-parts.ts -- COMMAND [WORD …]");
  await forgetEndedParts(localPaths(defaultDirectory));
  await using undo = new AsyncDisposableStack();
  const { path } = undo.use(await partDirectory({ kind: "with-parts" }));
  const signal = AbortSignal.any([stop, AbortSignal.timeout(startWithinMs)]);
  const parts = undo.use(await startParts({ baseImages: ["busybox"], signal }));
  const partsPath = join(path, "parts.json");
  const borrowed = givenKubeconfig() === undefined ? undefined : undo.use(await borrowCluster(path, signal));
  await writePartsFile(partsPath, { ...parts.file, ...(borrowed && { lent: borrowed.lent }) });
  return await runWith(command, environment(partsPath, parts.file), stop);
});

/**
 * Aborts when the process that started this one is gone. `npx` does not hand on a signal: it dies of it and leaves what
 * it started running.
 */
function whenOrphaned(): Disposable & { signal: AbortSignal } {
  const gone = new AbortController();
  const parent = process.ppid;
  const look = setInterval(() => {
    if (process.ppid !== parent) gone.abort(new Interrupted("SIGHUP"));
  }, 500);
  return { signal: gone.signal, [Symbol.dispose]: () => clearInterval(look) };
}

function environment(partsPath: string, parts: PartsFile): NodeJS.ProcessEnv {
  return {
    ...process.env,
    AGENTWORLDS_PARTS: partsPath,
    KUBECONFIG: parts.controlPlane.kubeconfig,
    DOCKER_HOST: parts.engine.dockerHost,
  };
}

/** Runs the command in a process group of its own, so that one signal to us is one signal to all of it. */
async function runWith(command: readonly string[], env: NodeJS.ProcessEnv, stop: AbortSignal): Promise<number> {
  stop.throwIfAborted();
  const child = spawn("setpriv", ["--pdeathsig", "KILL", "--", ...command], { stdio: "inherit", env, detached: true });
  const group = -(child.pid ?? 0);
  let patience: NodeJS.Timeout | undefined;
  const forward = (): void => {
    process.kill(group, stop.reason instanceof Interrupted ? stop.reason.signal : "SIGTERM");
    patience = setTimeout(() => process.kill(group, "SIGKILL"), endWithinMs);
  };
  stop.addEventListener("abort", forward, { once: true });
  try {
    const [code, signal] = await once(child, "exit");
    return typeof code === "number" ? code : exitCodeOf(signal);
  } finally {
    stop.removeEventListener("abort", forward);
    clearTimeout(patience);
  }
}
