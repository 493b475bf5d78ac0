// Runs the parts that `hack/up.ts` or `hack/demo.ts` asked for until SIGTERM, which `hack/down.ts` sends.
//   node hack/parts/keeper.ts DIRECTORY REGISTRY_PORT IMAGE[,IMAGE] [demo]
import { rm } from "node:fs/promises";
import { dirname } from "node:path";
import { type BaseImageName, isBaseImageName } from "./base-images.ts";
import { runCommandLine, UsageError } from "./command-line.ts";
import { startDemoOperator } from "./demo-operator.ts";
import { identify } from "./directory.ts";
import { givenKubeconfig, useGivenCluster } from "./given-cluster.ts";
import { announceKeeper, localPaths } from "./local.ts";
import { startParts, writePartsFile } from "./parts.ts";
import type { PartsFile } from "./parts-file.ts";
import { reservePort } from "./reserved-port.ts";

const startWithinMs = 40 * 60_000;

await runCommandLine(async ([directory, port, images, what], stop) => {
  if (directory === undefined || port === undefined || images === undefined) {
    throw new UsageError("usage: keeper.ts DIRECTORY REGISTRY_PORT IMAGE[,IMAGE] [demo]");
  }
  const isDemo = what === "demo";
  const paths = localPaths(directory);
  await announceKeeper(paths);
  await using undo = new AsyncDisposableStack();
  undo.defer(() => rm(paths.parts, { force: true }));
  const signal = AbortSignal.any([stop, AbortSignal.timeout(startWithinMs)]);
  const toEnd = `\`make down\` in ${dirname(directory)} ends it`;
  undo.use(await reservePort({ port: Number(port), by: isDemo ? "make demo" : "make up", toEnd, signal }));
  const kubeconfig = isDemo ? givenKubeconfig() : undefined;
  const cluster = kubeconfig === undefined ? undefined : undo.use(await useGivenCluster(kubeconfig, signal));
  const parts = undo.use(
    await startParts({
      directory,
      registryPort: Number(port),
      baseImages: images.split(",").filter((name): name is BaseImageName => isBaseImageName(name)),
      ...(kubeconfig === undefined ? {} : { kubeconfig }),
      signal,
    }),
  );
  let { file } = parts;
  if (isDemo) {
    const operator = undo.use(await startDemoOperator({ parts: file, directory, cluster, signal }));
    if (operator.unstamped !== undefined) process.stderr.write(`${operator.unstamped}\n`);
    file = await withOperator(file, operator);
  }
  await writePartsFile(paths.parts, file);
  // A timer, since a promise alone does not keep the process.
  const awake = setInterval(() => undefined, 60_000);
  await new Promise<void>((resolve) => {
    if (stop.aborted) resolve();
    stop.addEventListener("abort", () => resolve(), { once: true });
  });
  clearInterval(awake);
  return 0;
});

async function withOperator(
  file: PartsFile,
  { running, pid }: { running: NonNullable<PartsFile["operator"]>; pid: number },
): Promise<PartsFile> {
  const identity = await identify(pid);
  return { ...file, operator: running, processes: [...file.processes, ...(identity === undefined ? [] : [identity])] };
}
