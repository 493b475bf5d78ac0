// Runs the parts that `hack/up.ts` asked for until SIGTERM, which `hack/down.ts` sends.
//   node hack/parts/keeper.ts DIRECTORY REGISTRY_PORT IMAGE[,IMAGE]
import { rm } from "node:fs/promises";
import { dirname } from "node:path";
import { type BaseImageName, isBaseImageName } from "./base-images.ts";
import { runCommandLine, UsageError } from "./command-line.ts";
import { announceKeeper, localPaths } from "./local.ts";
import { startParts, writePartsFile } from "./parts.ts";
import { reservePort } from "./reserved-port.ts";

const startWithinMs = 40 * 60_000;

await runCommandLine(async ([directory, port, images], stop) => {
  if (directory === undefined || port === undefined || images === undefined) {
    throw new UsageError("usage: keeper.ts DIRECTORY REGISTRY_PORT IMAGE[,IMAGE]");
  }
  const paths = localPaths(directory);
  await announceKeeper(paths);
  await using undo = new AsyncDisposableStack();
  undo.defer(() => rm(paths.parts, { force: true }));
  const signal = AbortSignal.any([stop, AbortSignal.timeout(startWithinMs)]);
  const toEnd = `\`make down\` in ${dirname(directory)} ends it`;
  undo.use(await reservePort({ port: Number(port), by: "make up", toEnd, signal }));
  const parts = undo.use(
    await startParts({
      directory,
      registryPort: Number(port),
      baseImages: images.split(",").filter((name): name is BaseImageName => isBaseImageName(name)),
      signal,
    }),
  );
  await writePartsFile(paths.parts, parts.file);
  // A timer, since a promise alone does not keep the process.
  const awake = setInterval(() => undefined, 60_000);
  await new Promise<void>((resolve) => {
    if (stop.aborted) resolve();
    stop.addEventListener("abort", () => resolve(), { once: true });
  });
  clearInterval(awake);
  return 0;
});
