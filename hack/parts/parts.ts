import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type BaseImageName, loadBaseImage, unloadBaseImage } from "./base-images.ts";
import { type ControlPlane, startControlPlane } from "./control-plane.ts";
import { identify, type ProcessIdentity } from "./directory.ts";
import { type Engine, startEngine } from "./engine.ts";
import { rememberEngine } from "./engine-residue.ts";
import { PartFailed } from "./errors.ts";
import type { PartsFile } from "./parts-file.ts";
import { type Registry, startRegistry } from "./registry.ts";

/** What to bring up together. */
export interface PartsOptions {
  /** Folder with one folder per part; kept on dispose. Default: temporary ones. */
  directory?: string;
  /** Port of the registry; default: a free one. */
  registryPort?: number;
  baseImages: readonly BaseImageName[];
  /** Kubeconfig of a cluster that runs already. Default: a control plane of our own. */
  kubeconfig?: string;
  /** Limits starting, compiling included. */
  signal: AbortSignal;
}

/** Control plane, engine, registry and base images, running in this process. */
export interface Parts extends AsyncDisposable {
  readonly file: PartsFile;
}

/** Starts everything, or nothing: when one part does not start, the others are ended before the error is thrown. */
export async function startParts(options: PartsOptions): Promise<Parts> {
  const { directory, signal } = options;
  const at = (part: string): { directory?: string } =>
    directory === undefined ? {} : { directory: join(directory, part) };
  await using undo = new AsyncDisposableStack();
  const [engine, registry, controlPlane] = await allOrNothing(
    undo,
    startEngine({ ...at("engine"), signal }),
    startRegistry({
      ...at("registry"),
      ...(options.registryPort === undefined ? {} : { port: options.registryPort }),
      signal,
    }),
    options.kubeconfig === undefined
      ? startControlPlane({ ...at("control-plane"), signal })
      : Promise.resolve(given(options.kubeconfig)),
  );
  // An engine that is not ours is left as it was found.
  if (!engine.private) undo.use(await rememberEngine(engine.dockerHost, { registryHost: registry.host, signal }));
  const baseImages: Record<string, string> = {};
  for (const name of options.baseImages) {
    const target = { dockerHost: engine.dockerHost, registry };
    baseImages[name] = await loadBaseImage(name, { ...target, signal });
    // An engine that is not ours must not keep it.
    undo.defer(() => unloadBaseImage(name, { ...target, signal: AbortSignal.timeout(30_000) }));
  }
  const file = await describe({ engine, registry, controlPlane }, baseImages);
  const owned = undo.move();
  return { file, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** What is known of a control plane that somebody else runs. */
type RunningControlPlane = Pick<ControlPlane, "url" | "directory" | "kubeconfigPath" | "auditLogPath" | "pids"> &
  AsyncDisposable;

function given(kubeconfigPath: string): RunningControlPlane {
  return {
    url: `that of ${kubeconfigPath}`,
    directory: "",
    kubeconfigPath,
    auditLogPath: "",
    pids: () => [],
    async [Symbol.asyncDispose]() {
      // Whoever started it ends it.
    },
  };
}

/** Waits for all three before it throws, since a part still starting cannot be ended yet. */
async function allOrNothing(
  undo: AsyncDisposableStack,
  ...starting: [Promise<Engine>, Promise<Registry>, Promise<RunningControlPlane>]
): Promise<[Engine, Registry, RunningControlPlane]> {
  for (const started of await Promise.allSettled(starting)) {
    if (started.status === "fulfilled") undo.use(started.value);
  }
  return Promise.all(starting);
}

async function describe(
  parts: { engine: Engine; registry: Registry; controlPlane: RunningControlPlane },
  baseImages: Record<string, string>,
): Promise<PartsFile> {
  const { engine, registry, controlPlane } = parts;
  const keeper = await identify(process.pid);
  if (keeper === undefined) throw new PartFailed("parts", "this process is not in /proc");
  const identities = await Promise.all(
    [...engine.pids(), ...registry.pids(), ...controlPlane.pids()].map((pid) => identify(pid)),
  );
  return {
    version: 1,
    keeper,
    controlPlane: {
      url: controlPlane.url,
      directory: controlPlane.directory,
      kubeconfig: controlPlane.kubeconfigPath,
      auditLog: controlPlane.auditLogPath,
    },
    engine: { dockerHost: engine.dockerHost, private: engine.private },
    registry: { url: registry.url, host: registry.host },
    baseImages,
    processes: identities.filter((one): one is ProcessIdentity => one !== undefined),
  };
}

/** Writes a parts file in one step, so that nobody reads half of it. */
export async function writePartsFile(path: string, file: PartsFile): Promise<void> {
  await writeFile(`${path}.unfinished`, `${JSON.stringify(file, undefined, 2)}\n`, { mode: 0o600 });
  await rename(`${path}.unfinished`, path);
}
