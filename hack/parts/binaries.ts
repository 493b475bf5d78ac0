import { createHash } from "node:crypto";
import { access, constants, mkdir, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
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
 * The path of a program: from KUBEBUILDER_ASSETS when that folder has it, else compiled once per content of its module
 * and build settings. What is compiled already needs no Go.
 * @throws MissingProgram when Go is needed and not installed; PartFailed when the build fails.
 */
export async function binary(name: ProgramName, options: BinaryOptions): Promise<string> {
  const given = await givenProgram(name, options);
  if (given !== undefined) return given;
  const build = await describeBuild(name, options);
  if (await isExecutable(build.path)) return build.path;
  await withLock(`${build.path}.lock`, options.signal, async () => {
    if (!(await isExecutable(build.path))) await compile(name, build, options);
  });
  return build.path;
}

/** Whether `binary` has it without compiling. */
export async function isCompiled(name: ProgramName, options: Omit<BinaryOptions, "signal"> = {}): Promise<boolean> {
  if ((await givenProgram(name, options)) !== undefined) return true;
  return isExecutable((await describeBuild(name, options)).path);
}

async function givenProgram(
  name: ProgramName,
  { env = process.env }: Pick<BinaryOptions, "env">,
): Promise<string | undefined> {
  const assets = env["KUBEBUILDER_ASSETS"];
  if (assets === undefined || assets === "") return undefined;
  return (await isExecutable(join(assets, name))) ? join(assets, name) : undefined;
}

interface Build {
  /** Where the program is, or will be. */
  path: string;
  command: readonly string[];
  cwd: string;
}

async function describeBuild(name: ProgramName, options: Pick<BinaryOptions, "cacheDirectory">): Promise<Build> {
  const program = programs[name];
  const cwd = fileURLToPath(new URL(`../${program.module}`, import.meta.url));
  const flags = ["-trimpath", "-ldflags", `-s -w ${program.stamp}`.trimEnd()];
  const hash = createHash("sha256");
  for (const file of ["go.mod", "go.sum"]) hash.update(await readFile(join(cwd, file)));
  // Not the version of Go: finding it out would need Go, and any version that can build these modules will do.
  hash.update(JSON.stringify([flags, process.platform, process.arch]));
  const directory = join(options.cacheDirectory ?? defaultCacheDirectory(), hash.digest("hex").slice(0, 24));
  return { path: join(directory, name), command: ["go", "build", ...flags], cwd };
}

async function compile(name: ProgramName, build: Build, options: BinaryOptions): Promise<void> {
  const { env = process.env, signal } = options;
  const progress = options.progress ?? ((line: string) => void process.stderr.write(`${line}\n`));
  await expectGo(name, env, signal);
  const started = performance.now();
  progress(`compiling ${name} (once; a cold build takes minutes)`);
  await mkdir(dirname(build.path), { recursive: true });
  const unfinished = `${build.path}.unfinished`;
  const guarded = ["setpriv", "--pdeathsig", "KILL", "--", ...build.command];
  try {
    await run([...guarded, "-o", unfinished, programs[name].package], {
      cwd: build.cwd,
      env: { ...env, CGO_ENABLED: "0" },
      signal,
    });
    await rename(unfinished, build.path);
  } finally {
    await rm(unfinished, { force: true });
  }
  progress(`compiled ${name} in ${Math.round((performance.now() - started) / 1000)} s`);
}

/** `setpriv` would say of a missing Go only that it could not execute it. */
async function expectGo(name: ProgramName, env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<void> {
  try {
    await run(["go", "version"], { env, signal });
  } catch (error) {
    if (!(error instanceof MissingProgram)) throw error;
    throw new MissingProgram(
      "go",
      `Go is not installed, and ${name} is compiled from its module: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a folder that holds ${name}.`,
    );
  }
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
