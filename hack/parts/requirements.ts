/**
 * What an undertaking needs of this machine, looked at before anything is begun, so that everything that is missing is said
 * at once. What can be installed by itself (as root on Debian) is not missing.
 */
import { access, constants, mkdir } from "node:fs/promises";
import { isHelperBuilt } from "../../operator/src/runtime/helper.ts";
import { type BaseImageName, imageProgram } from "./base-images.ts";
import { defaultCacheDirectory, isCompiled, type ProgramName } from "./binaries.ts";
import { DEFAULT_DOCKER_HOST, ENGINE_PROGRAMS, namedDockerHost } from "./engine.ts";
import { engineAnswers } from "./engine-api.ts";
import { NotPrepared, systemErrorCode } from "./errors.ts";
import { givenKubeconfig } from "./given-cluster.ts";
import { isInstalled, type PackagedProgram } from "./packages.ts";
import { attempt } from "./process.ts";
import { whyTaken } from "./reserved-port.ts";
import {
  addressTrouble,
  clusterTrouble,
  engineFolderTrouble,
  temporaryFolder,
  temporaryTrouble,
} from "./surroundings.ts";
import { workbenchIsMade } from "./workbench.ts";

/** What is about to be begun. */
export interface Undertaking {
  /** As a person typed it: `make demo`. */
  readonly name: string;
  /** Whether it talks to clusters by kubectl. */
  readonly kubectl: boolean;
  /** Programs that it takes from the cache, or compiles. */
  readonly compiled: readonly ProgramName[];
  /** Whether sessions run, which need the helper in the container. */
  readonly sessions: boolean;
  /** Needs Go even where everything is compiled. */
  readonly goTests?: boolean;
  readonly images: readonly BaseImageName[];
  /** Debian programs beside those of engine and images. */
  readonly programs?: readonly PackagedProgram[];
  /** Where the parts have their folders; in temporary ones when absent. */
  readonly directory?: string;
  /** What becomes of a cluster that env KUBECONFIG names: the demo makes its own of it, tests may find our kinds there. */
  readonly givenCluster?: "Taken" | "Lent";
  /** A port with a fixed number, and who may hold it already. */
  readonly port?: number;
}

/** What was seen of the machine. */
export interface Machine {
  readonly platform: string;
  readonly isRoot: boolean;
  readonly hasApt: boolean;
  readonly installed: ReadonlySet<string>;
  readonly go: "Fine" | "TooOld" | "Missing";
  /** What would have to be compiled. */
  readonly uncompiled: readonly string[];
  readonly workbench: "Made" | "ToBeMade";
  readonly engine: "Answers" | "Silent" | "Forbidden" | "None";
  /** Where the engine was looked for. */
  readonly dockerHost: string;
  /** Why the cache cannot be written; undefined when it can. */
  readonly cacheTrouble?: string | undefined;
  /** Why DOCKER_HOST is no address of an engine; undefined when it is. */
  readonly addressTrouble?: string | undefined;
  /** Why a private engine could not have its folder; undefined when it could. */
  readonly engineFolderTrouble?: string | undefined;
  /** Why temporary files cannot be written; undefined when they can. */
  readonly temporaryTrouble?: string | undefined;
  /** Why the cluster of KUBECONFIG cannot be had; undefined when it can, or is not wanted. */
  readonly clusterTrouble?: string | undefined;
  /** Why the port cannot be had; undefined when it can. */
  readonly portTrouble?: string | undefined;
}

/** Programs of every part: they end with their owner, and wait for one another. */
const BASICS: readonly PackagedProgram[] = [
  { program: "setpriv", package: "util-linux", purpose: "ending what was started" },
  { program: "flock", package: "util-linux", purpose: "taking turns" },
  { program: "tar", package: "tar", purpose: "base images" },
];

const KUBECTL =
  "kubectl is not installed and is needed to talk to the cluster: install kubectl 1.31 or newer (package kubectl, or kubernetes-client of Debian 13)";
const GO_VERSION = "install Go 1.26 or newer (Debian's golang-go from 1.21 on fetches that by itself)";

/** One sentence for each thing that is missing, in the order in which a person would get them. No I/O. */
export function missingOn(machine: Machine, wanted: Undertaking): string[] {
  if (machine.platform !== "linux") return [`the local parts run on Linux only, and this is ${machine.platform}`];
  return [
    ...[machine.cacheTrouble, machine.temporaryTrouble].filter((trouble) => trouble !== undefined),
    ...(wanted.kubectl && !machine.installed.has("kubectl") ? [KUBECTL] : []),
    ...missingGo(machine, wanted),
    ...(machine.clusterTrouble === undefined ? [] : [machine.clusterTrouble]),
    ...missingEngine(machine),
    ...missingWorkbench(machine, wanted),
    ...missingPackages(machine, wanted),
    ...(machine.portTrouble === undefined ? [] : [machine.portTrouble]),
  ];
}

function missingGo({ go, uncompiled }: Machine, wanted: Undertaking): string[] {
  if (go === "Fine") return [];
  const uses = [
    ...(uncompiled.length === 0 ? [] : [`compiling ${uncompiled.join(", ")}`]),
    ...(wanted.goTests === true ? ["the helper's own tests"] : []),
  ];
  if (uses.length === 0) return [];
  const what = go === "Missing" ? "Go is not installed and is needed" : "Go is too old";
  return [`${what} for ${uses.join(" and ")}: ${GO_VERSION}`];
}

function missingEngine(machine: Machine): string[] {
  const { engine, dockerHost, isRoot } = machine;
  if (machine.addressTrouble !== undefined) return [machine.addressTrouble];
  if (engine === "Answers") return [];
  if (engine === "Silent") {
    return [`nothing answers at DOCKER_HOST=${dockerHost}: start that engine, or unset DOCKER_HOST`];
  }
  if (isRoot) return machine.engineFolderTrouble === undefined ? [] : [machine.engineFolderTrouble];
  const found =
    engine === "Forbidden"
      ? `${dockerHost} may not be used by this user`
      : `no container engine answers at ${dockerHost}`;
  const help = engine === "Forbidden" ? "join the group docker" : "start one and set DOCKER_HOST";
  return [`${found}, and only root can start a private one: ${help}, or run as root`];
}

function missingWorkbench({ workbench, isRoot }: Machine, { images }: Undertaking): string[] {
  if (isRoot || workbench === "Made" || !images.includes("workbench")) return [];
  return ["the workbench base image is not in the cache, and only root can make it (debootstrap): run as root"];
}

function missingPackages(machine: Machine, wanted: Undertaking): string[] {
  if (machine.isRoot && machine.hasApt) return [];
  return neededPrograms(machine, wanted)
    .filter(({ program }) => !machine.installed.has(program))
    .map(
      ({ program, purpose, package: name }) =>
        `${program} is not installed and is needed for ${purpose}: install the Debian package ${name}`,
    );
}

/** The workbench comes from the cache where it was made already, and can be made by root only. */
function neededPrograms(machine: Machine, { images, programs = [] }: Undertaking): PackagedProgram[] {
  const made = images.filter((name) => name !== "workbench" || (machine.workbench !== "Made" && machine.isRoot));
  return [
    ...BASICS,
    // Without root the missing engine itself is what is told.
    ...(machine.engine === "None" && machine.isRoot ? ENGINE_PROGRAMS : []),
    ...made.map(imageProgram),
    ...programs,
  ];
}

/**
 * Looks at this machine before anything is begun.
 * @throws NotPrepared with one sentence for each thing that is missing.
 */
export async function expectPrepared(wanted: Undertaking, signal: AbortSignal): Promise<void> {
  const missing = missingOn(await lookAt(wanted, signal), wanted);
  if (missing.length === 0) return;
  throw new NotPrepared([`${wanted.name} cannot begin:`, ...missing.map((sentence) => `- ${sentence}.`)].join("\n"));
}

/** What this machine has of what the undertaking may need. */
export async function lookAt(wanted: Undertaking, signal: AbortSignal): Promise<Machine> {
  const seen = { platform: process.platform, isRoot: process.getuid?.() === 0 };
  const installed = new Set<string>();
  const looked = [...BASICS, ...ENGINE_PROGRAMS, ...wanted.images.map(imageProgram), ...(wanted.programs ?? [])];
  for (const name of new Set(["kubectl", "apt-get", ...looked.map(({ program }) => program)])) {
    if (await isInstalled(name, signal)) installed.add(name);
  }
  return {
    ...seen,
    hasApt: installed.has("apt-get"),
    installed,
    go: await lookAtGo(signal),
    uncompiled: await uncompiled(wanted),
    workbench: (await workbenchIsMade()) ? "Made" : "ToBeMade",
    ...(await lookForEngine(signal)),
    engineFolderTrouble: engineFolderTrouble(wanted.directory, temporaryFolder(process.env)),
    temporaryTrouble: await temporaryTrouble(),
    clusterTrouble: installed.has("kubectl") ? await givenClusterTrouble(wanted, signal) : undefined,
    cacheTrouble: await cacheTrouble(),
    ...(wanted.port === undefined ? {} : { portTrouble: await whyTaken(wanted.port, signal) }),
  };
}

async function lookAtGo(signal: AbortSignal): Promise<Machine["go"]> {
  if (!(await isInstalled("go", signal))) return "Missing";
  const { code, stdout } = await attempt(["go", "env", "GOVERSION"], { signal });
  const version = /^go1\.(\d+)/.exec(stdout)?.[1];
  // Before 1.21 it could not fetch the version that a module asks for.
  return code === 0 && (version === undefined || Number(version) >= 21) ? "Fine" : "TooOld";
}

async function uncompiled({ compiled, sessions }: Undertaking): Promise<string[]> {
  const missing: string[] = [];
  for (const name of compiled) if (!(await isCompiled(name))) missing.push(name);
  const platform = process.arch === "arm64" ? "linux/arm64" : "linux/amd64";
  if (sessions && !(await isHelperBuilt({ platform }))) missing.push("the helper");
  return missing;
}

async function givenClusterTrouble({ givenCluster }: Undertaking, signal: AbortSignal): Promise<string | undefined> {
  const kubeconfig = givenKubeconfig();
  if (kubeconfig === undefined || givenCluster === undefined) return undefined;
  return clusterTrouble(kubeconfig, { mayHaveKinds: givenCluster === "Lent", signal });
}

async function lookForEngine(signal: AbortSignal): Promise<Pick<Machine, "engine" | "dockerHost" | "addressTrouble">> {
  const named = namedDockerHost();
  const dockerHost = named ?? DEFAULT_DOCKER_HOST;
  const trouble = addressTrouble(dockerHost);
  if (trouble !== undefined) return { engine: "Silent", dockerHost, addressTrouble: trouble };
  if (await engineAnswers(dockerHost, signal)) return { engine: "Answers", dockerHost };
  if (named !== undefined) return { engine: "Silent", dockerHost };
  return { engine: (await isForbidden(dockerHost)) ? "Forbidden" : "None", dockerHost };
}

async function isForbidden(dockerHost: string): Promise<boolean> {
  try {
    await access(dockerHost.replace("unix://", ""), constants.R_OK | constants.W_OK);
    return false;
  } catch (error) {
    return systemErrorCode(error) === "EACCES";
  }
}

async function cacheTrouble(): Promise<string | undefined> {
  const directory = defaultCacheDirectory();
  try {
    await mkdir(directory, { recursive: true });
    await access(directory, constants.W_OK);
    return undefined;
  } catch (error) {
    return `${directory} cannot be written (${systemErrorCode(error)}): set HOME to a folder of yours`;
  }
}
