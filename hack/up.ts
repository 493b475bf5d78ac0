// Brings every local part up and leaves it running; `hack/down.ts` ends it. Does nothing when it is up already.
//   node hack/up.ts [--directory DIR] [--registry-port PORT] [--images busybox,workbench]
import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { isBaseImageName } from "./parts/base-images.ts";
import { runCommandLine, UsageError } from "./parts/command-line.ts";
import { givenKubeconfig } from "./parts/given-cluster.ts";
import { type KeeperOptions, startKeeper, UP_WITHIN_MS } from "./parts/keeping.ts";
import { defaultDirectory, endParts, type LocalPaths, localPaths, runningParts } from "./parts/local.ts";
import { withLock } from "./parts/lock.ts";
import { forgetEndedParts, ownVariables } from "./parts/own-variables.ts";
import type { PartsFile } from "./parts/parts-file.ts";
import { expectPrepared } from "./parts/requirements.ts";
import { exportLines } from "./parts/shell.ts";
import { REGISTRY_PORT, up } from "./parts/undertakings.ts";

await runCommandLine(async (words, stop) => {
  const options = parse(words);
  const signal = AbortSignal.any([stop, AbortSignal.timeout(UP_WITHIN_MS)]);
  await forgetEndedParts(options.paths);
  await mkdir(options.paths.directory, { recursive: true, mode: 0o700 });
  const parts = await withLock(options.paths.lock, signal, async () => {
    const running = await runningParts(options.paths);
    if (running !== undefined) return running;
    await endParts(options.paths, signal);
    await expectPrepared(up(options.images, options.registryPort, options.paths.directory), signal);
    return startKeeper(options, signal);
  });
  sayUnused(options.paths);
  report(parts, options.paths);
  return 0;
});

/** A cluster that the shell names already is not what `make up` is for; what it prints names another one. */
function sayUnused(paths: LocalPaths): void {
  const given = givenKubeconfig();
  if (given === undefined || ownVariables(process.env, paths).includes("KUBECONFIG")) return;
  process.stderr.write(`KUBECONFIG=${given} is not used: \`make up\` has a control plane of its own\n`);
}

function parse(words: readonly string[]): KeeperOptions {
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
  return { paths: localPaths(resolve(values.directory)), registryPort, images, by: "make up" };
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
