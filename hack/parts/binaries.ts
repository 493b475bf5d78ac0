import { createHash } from "node:crypto";
import { access, constants, mkdir, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { MissingProgram } from "./errors.ts";
import { withLock } from "./lock.ts";
import { run } from "./process.ts";

/** A program that the local parts compile from a pinned Go module. */
export type ProgramName = "etcd" | "kube-apiserver" | "kube-controller-manager" | "registry";

interface Program {
  /** Folder below hack/ that holds the go.mod. */
  module: string;
  package: string;
  /** Linker settings beside `-s -w`. */
  stamp: string;
}

const kubernetesVersion = { full: "v1.37.2", major: "1", minor: "37" };
const kubernetesStamp = [
  `-X k8s.io/component-base/version.gitVersion=${kubernetesVersion.full}`,
  `-X k8s.io/component-base/version.gitMajor=${kubernetesVersion.major}`,
  `-X k8s.io/component-base/version.gitMinor=${kubernetesVersion.minor}`,
].join(" ");

const programs: Readonly<Record<ProgramName, Program>> = {
  etcd: { module: "etcd", package: "go.etcd.io/etcd/server/v3", stamp: "" },
  registry: { module: "registry", package: "github.com/distribution/distribution/v3/cmd/registry", stamp: "" },
  "kube-apiserver": {
    module: "control-plane",
    package: "k8s.io/kubernetes/cmd/kube-apiserver",
    stamp: kubernetesStamp,
  },
  "kube-controller-manager": {
    module: "control-plane",
    package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    stamp: kubernetesStamp,
  },
};

/** Where to build and where to keep what was built. */
export interface BinaryOptions {
  /** A cold build of kube-apiserver takes ten minutes on two cores: give it twenty. */
  signal: AbortSignal;
  /** Receives one line before a build and one after; default stderr. */
  progress?: (line: string) => void;
  /** Default `~/.cache/agent-worlds`. */
  cacheDirectory?: string;
  /** Default `process.env`; read for KUBEBUILDER_ASSETS and PATH. */
  env?: NodeJS.ProcessEnv;
}

/** The folder that keeps compiled programs and prepared file systems, outside every clone. */
export function defaultCacheDirectory(): string {
  return join(homedir(), ".cache", "agent-worlds");
}

/**
 * The path of a program: from KUBEBUILDER_ASSETS when that folder has it, else compiled once per content of its
 * module, build settings and Go version.
 * @throws MissingProgram when Go is needed and not installed; PartFailed when the build fails.
 */
export async function binary(name: ProgramName, options: BinaryOptions): Promise<string> {
  const env = options.env ?? process.env;
  const assets = env["KUBEBUILDER_ASSETS"];
  if (assets !== undefined && assets !== "") {
    const given = join(assets, name);
    if (await isExecutable(given)) return given;
  }
  const build = await describeBuild(name, env, options.signal);
  const directory = join(options.cacheDirectory ?? defaultCacheDirectory(), build.key);
  const path = join(directory, name);
  if (await isExecutable(path)) return path;
  await withLock(join(directory, `${name}.lock`), options.signal, async () => {
    if (await isExecutable(path)) return;
    await compile({ name, build, directory, path, env }, options);
  });
  return path;
}

interface Build {
  key: string;
  command: readonly string[];
  cwd: string;
}

async function describeBuild(name: ProgramName, env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<Build> {
  const program = programs[name];
  const cwd = fileURLToPath(new URL(`../${program.module}`, import.meta.url));
  const flags = ["-trimpath", "-ldflags", `-s -w ${program.stamp}`.trimEnd()];
  const hash = createHash("sha256");
  for (const file of ["go.mod", "go.sum"]) hash.update(await readFile(join(cwd, file)));
  hash.update(JSON.stringify([flags, await goVersion(name, { cwd, env, signal })]));
  return { key: hash.digest("hex").slice(0, 24), command: ["go", "build", ...flags], cwd };
}

async function goVersion(
  name: ProgramName,
  options: { cwd: string; env: NodeJS.ProcessEnv; signal: AbortSignal },
): Promise<string> {
  try {
    return await run(["go", "env", "GOVERSION", "GOOS", "GOARCH"], options);
  } catch (error) {
    if (!(error instanceof MissingProgram)) throw error;
    throw new MissingProgram(
      "go",
      `Go is not installed, and ${name} is compiled from its module: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a folder that holds ${name}.`,
    );
  }
}

async function compile(
  target: { name: ProgramName; build: Build; directory: string; path: string; env: NodeJS.ProcessEnv },
  options: BinaryOptions,
): Promise<void> {
  const progress = options.progress ?? ((line: string) => void process.stderr.write(`${line}\n`));
  const started = performance.now();
  progress(`compiling ${target.name} (once; a cold build takes minutes)`);
  await mkdir(target.directory, { recursive: true });
  const unfinished = `${target.path}.unfinished`;
  try {
    await run(
      [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "--",
        ...target.build.command,
        "-o",
        unfinished,
        programs[target.name].package,
      ],
      { cwd: target.build.cwd, env: { ...target.env, CGO_ENABLED: "0" }, signal: options.signal },
    );
    await rename(unfinished, target.path);
  } finally {
    await rm(unfinished, { force: true });
  }
  progress(`compiled ${target.name} in ${Math.round((performance.now() - started) / 1000)} s`);
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
