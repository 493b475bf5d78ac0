import { isOciRuntime, OCI_RUNTIMES_MAX, type Platform } from "@agentworlds/crds";
import { z } from "zod";
import type { Capability, HostFacts } from "../contract.ts";
import { RuntimeError } from "../errors.ts";

/** The part of `/info` that decides what a host can do. */
export const hostInfo = z.object({
  ServerVersion: z.string(),
  OSType: z.string(),
  Architecture: z.string(),
  NCPU: z.number(),
  MemTotal: z.number(),
  MemoryLimit: z.boolean().default(false),
  CpuCfsQuota: z.boolean().default(false),
  PidsLimit: z.boolean().default(false),
  BridgeNfIptables: z.boolean().optional(),
  CgroupDriver: z.string().default("none"),
  Runtimes: z.record(z.string(), z.unknown()).nullish(),
  Plugins: z.object({ Network: z.array(z.string()).nullish() }).nullish(),
});
export type HostInfo = z.infer<typeof hostInfo>;

const platforms: Readonly<Record<string, Platform>> = {
  x86_64: "linux/amd64",
  amd64: "linux/amd64",
  aarch64: "linux/arm64",
  arm64: "linux/arm64",
};

/** Throws `HostRefused` for a host that cannot run sessions at all. */
export function hostFacts(info: HostInfo): HostFacts {
  const platform = info.OSType === "linux" ? platforms[info.Architecture] : undefined;
  if (platform === undefined)
    throw new RuntimeError(
      "HostRefused",
      `the host is ${info.OSType}/${info.Architecture}; linux on amd64 or arm64 is needed`,
    );
  return {
    version: info.ServerVersion,
    platform,
    capabilities: capabilitiesOf(info),
    ociRuntimes: Object.keys(info.Runtimes ?? {})
      .filter(isOciRuntime)
      .sort()
      .slice(0, OCI_RUNTIMES_MAX),
    cpus: info.NCPU,
    memoryBytes: info.MemTotal,
  };
}

function capabilitiesOf(info: HostInfo): Capability[] {
  const offers: [Capability, boolean][] = [
    ["exec", true],
    ["commit", true],
    // PID 1 is the helper, so starting a dead container again runs nothing of the workload.
    ["deadContainerCapture", true],
    // Rootless engines without delegated cgroups say "none"; every other one has the freezer.
    ["freeze", info.CgroupDriver !== "none"],
    ["memoryLimit", info.MemoryLimit],
    ["cpuLimit", info.CpuCfsQuota],
    ["pidsLimit", info.PidsLimit],
    // Traffic within a bridge passes iptables only with br_netfilter; engines since 28 no longer report it.
    ["isolatedNetwork", info.BridgeNfIptables !== false && (info.Plugins?.Network ?? []).includes("bridge")],
    ["ociRuntime", Object.keys(info.Runtimes ?? {}).some(isChoice)],
  ];
  return offers.filter(([, offered]) => offered).map(([capability]) => capability);
}

/** runc and the names of its containerd shims are one and the same choice: none. */
const isChoice = (runtime: string): boolean => runtime !== "runc" && !runtime.startsWith("io.containerd.");
