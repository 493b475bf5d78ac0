import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { isThere } from "../../../hack/parts/directory.ts";
import { type EngineState, mountPoints, stateFile } from "../../../hack/parts/engine-cleanup.ts";
import { ownedLinks, ownedRules } from "../../../hack/parts/engine-network.ts";
import { attempt, run } from "../../../hack/parts/process.ts";

/** Everything on this machine that can be traced to one part's folder. Empty lists when it left nothing. */
export interface Leftovers {
  processes: string[];
  files: string[];
  mounts: string[];
}

/** What is still there of a part that ran in `directory`. */
export async function leftoversOf(directory: string): Promise<Leftovers> {
  return {
    processes: await processesNaming(directory),
    files: (await isThere(directory)) ? await readdir(directory) : [],
    mounts: mountPoints(await readFile("/proc/self/mountinfo", "utf8")).filter((point) =>
      point.startsWith(`${directory}/`),
    ),
  };
}

/** Nothing at all. */
export const nothing: Leftovers = { processes: [], files: [], mounts: [] };

/** What an engine has outside its folder. */
export interface OutsideEngine {
  links: string[];
  rules: string[];
  cgroups: string[];
}

/** The state of a running engine, to look for its traces once it is gone. */
export async function engineState(directory: string): Promise<EngineState> {
  const state: EngineState = JSON.parse(await readFile(join(directory, stateFile), "utf8"));
  return state;
}

/** Links, packet-filter rules and cgroups of an engine. */
export async function outsideEngine(state: EngineState, signal: AbortSignal): Promise<OutsideEngine> {
  const { network } = state;
  const addresses = await run(["ip", "-o", "-4", "addr"], { signal });
  const named = await attempt(["ip", "-o", "link", "show", network.bridge], { signal });
  const rules = ownedRules(network, [network.bridge], await run(["iptables-save"], { signal }));
  const cgroups = await run(["find", "/sys/fs/cgroup", "-maxdepth", "3", "-name", state.cgroupParent], { signal });
  return {
    links: [...new Set([...ownedLinks(network, addresses), ...(named.code === 0 ? [network.bridge] : [])])],
    rules: rules.map(({ table, args }) => `${table}: ${args.join(" ")}`),
    cgroups: cgroups.split("\n").filter(Boolean),
  };
}

/** Nothing at all. */
export const nothingOutside: OutsideEngine = { links: [], rules: [], cgroups: [] };

async function processesNaming(directory: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    try {
      const words = (await readFile(`/proc/${pid}/cmdline`, "utf8")).split("\0").join(" ");
      if (words.includes(directory)) found.push(`${pid} ${words}`);
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}
