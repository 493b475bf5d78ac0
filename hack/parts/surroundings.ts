/** Whether the folders and the cluster that the environment names can be used, looked at before anything is begun. */
import { access, constants, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemErrorCode } from "./errors.ts";
import { lookAtCluster } from "./given-cluster.ts";

/**
 * Measured with dockerd 20.10: with an engine's folder of 66 characters its containerd starts, with 67 it does not (the longest
 * socket below it is exec/containerd/containerd.sock.ttrpc, and unix(7) allows 107 bytes with room for a suffix).
 */
const LONGEST_ENGINE_FOLDER = 66;

/** As `mkdtemp` completes them in `partDirectory`. */
const TEMPORARY_ENGINE = "agent-worlds-engine-XXXXXX";

/** What an engine's address, which is also a Runtime's endpoint, cannot hold. */
const NOT_IN_ADDRESS = /[\s?#%]/;

/** Why an engine could not be reached by this address; undefined when it could. No I/O. */
export function addressTrouble(dockerHost: string): string | undefined {
  if (/^unix:\/\/\/.+$/.test(dockerHost) && NOT_IN_ADDRESS.test(dockerHost)) {
    return `DOCKER_HOST=${dockerHost} holds a space, ?, # or %, which a Runtime's endpoint cannot: name the socket by another path`;
  }
  if (/^(unix:\/\/\/.+|(tcp|http):\/\/[^/]+\/?)$/.test(dockerHost)) return undefined;
  return `DOCKER_HOST=${dockerHost} is neither unix:///path/to/socket nor tcp://host:port: correct it, or unset DOCKER_HOST`;
}

/**
 * Why a private engine cannot have its folder where the parts are: below `directory`, or in a temporary folder. No I/O.
 * @param temporary the folder for temporary files, and the variable that names it.
 */
export function engineFolderTrouble(
  directory: string | undefined,
  temporary: { readonly path: string; readonly variable: string },
): string | undefined {
  const folder = directory === undefined ? join(temporary.path, TEMPORARY_ENGINE) : join(directory, "engine");
  const named = directory ?? `${temporary.variable}=${temporary.path}`;
  const instead =
    directory === undefined ? `set ${temporary.variable} to another folder, such as /tmp` : "clone to another path";
  if (NOT_IN_ADDRESS.test(folder)) {
    return `${named} holds a space, ?, # or %, which the address of the container engine below it cannot: ${instead}`;
  }
  const over = Buffer.byteLength(folder) - LONGEST_ENGINE_FOLDER;
  if (over <= 0) return undefined;
  return `${named} is too long by ${over} characters for the sockets of the container engine below it: ${instead}`;
}

/** Where temporary files go, and who says so: in the order of node:os. */
export function temporaryFolder(env: NodeJS.ProcessEnv): { readonly path: string; readonly variable: string } {
  const variable = ["TMPDIR", "TMP", "TEMP"].find((name) => env[name] !== undefined && env[name] !== "") ?? "TMPDIR";
  return { path: tmpdir(), variable };
}

/** Why temporary files cannot be written; undefined when they can. */
export async function temporaryTrouble(): Promise<string | undefined> {
  const { path, variable } = temporaryFolder(process.env);
  const why = await folderTrouble(path);
  if (why === undefined) return undefined;
  return `${variable}=${path} ${why}: name a folder that is there and that you may write to, or unset ${variable}`;
}

async function folderTrouble(path: string): Promise<string | undefined> {
  try {
    if (!(await stat(path)).isDirectory()) return "is not a folder";
    await access(path, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return "does not exist";
    return `cannot be written to (${systemErrorCode(error)})`;
  }
}

/** Why the cluster that KUBECONFIG names cannot be had for a demo or for tests; undefined when it can. */
export async function clusterTrouble(
  kubeconfig: string,
  { mayHaveKinds, signal }: { mayHaveKinds: boolean; signal: AbortSignal },
): Promise<string | undefined> {
  const seen = await lookAtCluster(kubeconfig, signal);
  if (seen === "Empty" || (seen === "HasAgentWorlds" && mayHaveKinds)) return undefined;
  if (seen === "HasAgentWorlds") {
    return `the cluster of KUBECONFIG=${kubeconfig} has Agent Worlds already: unset KUBECONFIG for a demo beside it`;
  }
  return `the cluster of KUBECONFIG=${kubeconfig} cannot be used (${seen.trouble}): correct it, or unset KUBECONFIG`;
}
