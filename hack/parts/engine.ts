import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defaultCacheDirectory } from "./binaries.ts";
import { type PartDirectory, partDirectory } from "./directory.ts";
import { callEngine, engineAnswers, expectSuccess } from "./engine-api.ts";
import { absentFixedPaths, cleanEngine, type EngineState, engineFolders, stateFile } from "./engine-cleanup.ts";
import { chooseEngineNetwork, createEngineNetwork, packetFilter, restoreOthersRules } from "./engine-network.ts";
import { PartFailed } from "./errors.ts";
import { withLock } from "./lock.ts";
import { ensureProgram, type PackagedProgram } from "./packages.ts";
import { type RunningProcess, run, startProcess } from "./process.ts";

/** A container engine that answers. */
export interface Engine extends AsyncDisposable {
  /** As in env DOCKER_HOST. */
  readonly dockerHost: string;
  /** Whether the daemon was started here, and so ends with everything in it on dispose. */
  readonly private: boolean;
  /** Processes started here. */
  pids(): number[];
}

/** A daemon of our own, which can die and come back. */
export interface PrivateEngine extends Engine {
  readonly private: true;
  /** SIGKILL of the daemon: its containers are left behind. Resolves when it is gone. */
  kill(): Promise<void>;
  /** Orderly end of the daemon; its containers end with it, or stay with `live-restore`. Resolves when it is gone. */
  stop(): Promise<void>;
  /** At the same address, with the same data; resolves when it answers. Does nothing while it runs. */
  start(signal?: AbortSignal): Promise<void>;
}

/** How to find or start an engine. */
export interface EngineOptions {
  /** Folder of a private daemon; default: a temporary one that dispose removes. */
  directory?: string;
  /** True: always a private daemon. */
  own?: boolean;
  signal: AbortSignal;
}

export const DEFAULT_DOCKER_HOST = "unix:///var/run/docker.sock";

/** What a private daemon needs. */
export const ENGINE_PROGRAMS: readonly PackagedProgram[] = [
  { program: "dockerd", package: "docker.io", purpose: "a private container engine" },
  { program: "iptables", package: "iptables", purpose: "a private container engine" },
  { program: "ip", package: "iproute2", purpose: "a private container engine" },
];

/** The engine that env DOCKER_HOST names. */
export function namedDockerHost(): string | undefined {
  const named = process.env["DOCKER_HOST"];
  return named === "" ? undefined : named;
}

/**
 * The engine of DOCKER_HOST or of the default socket if one answers; else a private dockerd, installed where needed.
 * @throws MissingProgram naming the package when there is none and it cannot be installed; PartFailed when DOCKER_HOST
 * is set and does not answer, or dockerd does not come up.
 */
export async function startEngine(options: EngineOptions): Promise<Engine> {
  const existing = options.own === true ? undefined : await existingEngine(options.signal);
  return existing ?? startPrivateEngine(options);
}

async function existingEngine(signal: AbortSignal): Promise<Engine | undefined> {
  const named = namedDockerHost();
  if (named !== undefined) {
    if (await engineAnswers(named, signal)) return borrowed(named);
    throw new PartFailed("engine", `nothing answers at DOCKER_HOST=${named}: start that engine, or unset DOCKER_HOST`);
  }
  return (await engineAnswers(DEFAULT_DOCKER_HOST, signal)) ? borrowed(DEFAULT_DOCKER_HOST) : undefined;
}

/** An engine that somebody else runs; dispose leaves it alone. */
export function borrowed(dockerHost: string): Engine {
  return {
    dockerHost,
    private: false,
    pids: () => [],
    async [Symbol.asyncDispose]() {
      // Whoever started it ends it.
    },
  };
}

/** A dockerd of our own, installed where needed, whatever else runs on this machine. */
export async function startPrivateEngine(
  options: Omit<EngineOptions, "own"> & { readonly daemonSettings?: Readonly<Record<string, unknown>> },
): Promise<PrivateEngine> {
  const { signal } = options;
  for (const program of ENGINE_PROGRAMS) await ensureProgram(program, signal);
  await using undo = new AsyncDisposableStack();
  const directory = undo.use(
    await partDirectory({
      kind: "engine",
      given: options.directory,
      cleanStale: (stale) => cleanEngine(stale, AbortSignal.timeout(60_000)),
    }),
  );
  // A folder given again after a crash still holds what the crashed daemon left.
  await cleanEngine(directory.path, signal);
  undo.use(await guard(directory, options.directory === undefined));
  const dockerHost = `unix://${join(directory.path, "docker.sock")}`;
  undo.defer(() => cleanEngine(directory.path, AbortSignal.timeout(60_000)));
  const begin = (until: AbortSignal) =>
    withLock(join(defaultCacheDirectory(), "engine-start.lock"), until, async () => {
      const rules = await packetFilter(until);
      state ??= await prepareState(directory.path, until);
      await using failed = new AsyncDisposableStack();
      await forgetContainerd(directory.path);
      const started = failed.use(await launch(directory.path, state, options.daemonSettings ?? {}));
      await started.ready((probe) => engineAnswers(dockerHost, probe), { timeoutMs: 60_000, signal: until });
      await restoreOthersRules(rules, until);
      failed.move();
      return started;
    });
  let state: EngineState | undefined;
  let daemon = await begin(signal);
  undo.defer(() => daemon.stop());
  await expectOverlay(dockerHost, signal);
  const owned = undo.move();
  return {
    dockerHost,
    private: true,
    pids: () => (daemon.isRunning() ? [daemon.pid] : []),
    kill: () => daemon.kill(),
    stop: () => daemon.stop(20_000),
    async start(until = AbortSignal.timeout(120_000)) {
      if (!daemon.isRunning()) daemon = await begin(until);
    },
    async [Symbol.asyncDispose]() {
      await using _ = owned;
      await emptyEngine(dockerHost, AbortSignal.timeout(30_000));
    },
  };
}

/** Written before the link is made, so that a crash in between leaves nothing that nobody knows of. */
async function prepareState(directory: string, signal: AbortSignal): Promise<EngineState> {
  const id = randomBytes(4).toString("hex");
  const network = await chooseEngineNetwork(id, signal);
  const state: EngineState = { cgroupParent: `agent-worlds-${id}`, network, absentBefore: await absentFixedPaths() };
  const path = join(directory, stateFile);
  await writeFile(`${path}.unfinished`, JSON.stringify(state));
  await rename(`${path}.unfinished`, path);
  await createEngineNetwork(network, signal);
  return state;
}

/**
 * A killed dockerd takes its containerd along. Where PID 1 does not reap it, the next dockerd takes the zombie for a containerd
 * that runs and waits 15 s for it in vain.
 */
async function forgetContainerd(directory: string): Promise<void> {
  await rm(join(directory, engineFolders.exec, "containerd", "containerd.pid"), { force: true });
}

async function launch(
  directory: string,
  state: EngineState,
  settings: Readonly<Record<string, unknown>>,
): Promise<RunningProcess> {
  // A daemon.json of the machine would contradict these flags, and dockerd would refuse to start.
  const config = join(directory, "daemon.json");
  await writeFile(config, JSON.stringify({ ...(await ownKey(directory)), ...settings }));
  await mkdir(join(directory, "home"), { recursive: true });
  return startProcess({
    name: "dockerd",
    command: "dockerd",
    args: [
      `--config-file=${config}`,
      `--host=unix://${join(directory, "docker.sock")}`,
      `--data-root=${join(directory, engineFolders.data)}`,
      `--exec-root=${join(directory, engineFolders.exec)}`,
      `--pidfile=${join(directory, "dockerd.pid")}`,
      `--bridge=${state.network.bridge}`,
      `--default-address-pool=base=${state.network.pool},size=26`,
      `--cgroup-parent=/${state.cgroupParent}`,
      "--exec-opt=native.cgroupdriver=cgroupfs",
      "--storage-driver=overlay2",
      "--shutdown-timeout=5",
      "--log-level=warn",
    ],
    env: {
      PATH: programPath(),
      HOME: join(directory, "home"),
    },
    logPath: join(directory, "dockerd.log"),
  });
}

/**
 * Before 23 the engine's id is made of a key that all engines of a machine share at a compiled-in path: an engine that made or
 * removed it would change the id of others under their running containers. It has no flag, and newer ones know it no more.
 */
async function ownKey(directory: string): Promise<{ readonly "deprecated-key-path"?: string }> {
  const said = await run(["dockerd", "--version"], {
    env: { PATH: programPath() },
    signal: AbortSignal.timeout(10_000),
  });
  const major = /\bversion (\d+)\./.exec(said)?.[1];
  if (major === undefined || Number(major) >= 23) return {};
  return { "deprecated-key-path": join(directory, engineFolders.data, "key.json") };
}

/** Daemons and their helpers are where a person's PATH may not lead. */
const programPath = (): string => `${process.env["PATH"] ?? ""}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin`;

async function expectOverlay(dockerHost: string, signal: AbortSignal): Promise<void> {
  const info = expectSuccess("GET /info", await callEngine(dockerHost, { path: "/info", signal }));
  if (!info.includes('"Driver":"overlay2"'))
    throw new PartFailed("dockerd", "does not use the overlay2 storage driver");
}

/** Removes containers and networks in order, so that little is left to be cleaned by force. */
async function emptyEngine(dockerHost: string, signal: AbortSignal): Promise<void> {
  if (!(await engineAnswers(dockerHost, signal))) return;
  const list = async (path: string): Promise<string[]> => {
    const text = expectSuccess(`GET ${path}`, await callEngine(dockerHost, { path, signal }));
    return [...text.matchAll(/"Id":"([0-9a-f]{64})"/g)].map((match) => match[1] ?? "");
  };
  for (const id of await list("/containers/json?all=1")) {
    await callEngine(dockerHost, { method: "DELETE", path: `/containers/${id}?force=1&v=1`, signal });
  }
  for (const id of await list("/networks?filters=%7B%22type%22%3A%5B%22custom%22%5D%7D")) {
    await callEngine(dockerHost, { method: "DELETE", path: `/networks/${id}`, signal });
  }
}

/**
 * A shell that waits for the end of its stdin, which is the end of this process however it ends, and then cleans up.
 * dockerd itself dies with us; its containers, mounts and links would not. A word on stdin sends it home instead.
 */
async function guard(directory: PartDirectory, removeFolder: boolean): Promise<AsyncDisposable> {
  const warden = fileURLToPath(new URL("./engine-warden.ts", import.meta.url));
  const shell = spawn(
    "sh",
    [
      "-c",
      'read -r word && exit 0; exec "$@"',
      "sh",
      process.execPath,
      warden,
      directory.path,
      removeFolder ? "remove" : "keep",
    ],
    { stdio: ["pipe", "ignore", "ignore"], detached: true },
  );
  await once(shell, "spawn");
  const closed = once(shell, "close");
  return {
    async [Symbol.asyncDispose]() {
      shell.stdin.end("done\n");
      await closed;
    },
  };
}
