/** The Runtime's status from one round of probes: pure. */
import type { Platform, Runtime, RuntimeHostStatus, RuntimeRescue, RuntimeStatus, Sandbox } from "@agentworlds/crds";
import { clip, counted, LIMITS } from "@agentworlds/crds";
import { type DerivedCondition, mergeConditions } from "../reconciler/conditions.ts";
import type { HostFacts } from "./contract.ts";
import { drainOf } from "./drain.ts";
import { isHostLost } from "./host-loss.ts";
import { withoutSilence } from "./rescue-time.ts";
import { holdsWork, isFull } from "./rescues.ts";

/** What one host answered. */
export type HostProbe =
  | { readonly name: string; readonly facts: HostFacts }
  | { readonly name: string; readonly problem: string };

export function deriveRuntimeStatus(
  runtime: Runtime,
  input: { readonly probes: readonly HostProbe[]; readonly sandboxes: readonly Sandbox[]; readonly now: number },
): RuntimeStatus {
  const name = runtime.metadata.name;
  const sessions = input.sandboxes.filter((sandbox) => sandbox.status?.compute?.runtime === name);
  const hosts = input.probes.map((probe) => hostStatus(probe, { sessions, before: runtime.status, now: input.now }));
  const reachable = input.probes.flatMap((probe) => ("facts" in probe ? [probe.facts] : []));
  const platform = onlyPlatform(reachable);
  const total = runtime.spec.capacity?.maxSandboxes ?? 20;
  const before = runtime.status;
  return {
    observedGeneration: runtime.metadata.generation ?? 0,
    conditions: mergeConditions(
      before?.conditions,
      deriveConditions(runtime, { hosts, platform, reachable, sessions, now: input.now }),
      input.now,
    ),
    hosts,
    ...(runtime.spec.scheduling === "Cordoned" ? { cordonedAt: before?.cordonedAt ?? iso(input.now) } : {}),
    hostsReachable: `${reachable.length}/${hosts.length}`,
    capacity: { total, used: sessions.length },
    // What was known of a Runtime whose hosts are all silent stays: its sessions go on when a host answers again.
    ...(reachable.length > 0 ? factsOf(reachable, platform) : keptFacts(before)),
    ...(before?.rescues ? { rescues: keptRescues(runtime, before.rescues, { hosts, now: input.now }) } : {}),
  };
}

/** What was kept on a host that answers again has its time from now on. */
function keptRescues(
  runtime: Runtime,
  rescues: readonly RuntimeRescue[],
  { hosts, now }: { readonly hosts: readonly RuntimeHostStatus[]; readonly now: number },
): RuntimeRescue[] {
  const answering = new Set(hosts.filter(({ state }) => state === "Reachable").map(({ name }) => name));
  return rescues.map((rescue) => {
    const host = runtime.status?.hosts?.find(({ name }) => name === rescue.host);
    return host && answering.has(host.name) ? withoutSilence(rescue, runtime, { host, now }) : rescue;
  });
}

function hostStatus(
  probe: HostProbe,
  known: { sessions: readonly Sandbox[]; before: RuntimeStatus | undefined; now: number },
): RuntimeHostStatus {
  const used = known.sessions.filter((sandbox) => sandbox.status?.compute?.host === probe.name).length;
  if (!("facts" in probe)) {
    const before = known.before?.hosts?.find(({ name }) => name === probe.name);
    const unreachableAt = before?.unreachableAt ?? iso(known.now);
    const message = clip(probe.problem, LIMITS.message);
    return { name: probe.name, state: "Unreachable", message, unreachableAt, used };
  }
  const { version, platform, capabilities, ociRuntimes } = probe.facts;
  return {
    name: probe.name,
    state: "Reachable",
    version,
    platform,
    capabilities: [...capabilities],
    ociRuntimes: [...ociRuntimes],
    used,
  };
}

const factsOf = (reachable: readonly HostFacts[], platform: Platform | undefined) => ({
  capabilities: common(reachable.map(({ capabilities }) => capabilities)),
  ociRuntimes: common(reachable.map(({ ociRuntimes }) => ociRuntimes)),
  version: reachable.map((facts) => facts.version).sort(byVersion)[0] ?? "",
  ...(platform === undefined ? {} : { platform }),
});

function keptFacts(
  before: RuntimeStatus | undefined,
): Pick<RuntimeStatus, "capabilities" | "ociRuntimes" | "version" | "platform"> {
  const { capabilities, ociRuntimes, version, platform } = before ?? {};
  return {
    ...(capabilities === undefined ? {} : { capabilities }),
    ...(ociRuntimes === undefined ? {} : { ociRuntimes }),
    ...(version === undefined ? {} : { version }),
    ...(platform === undefined ? {} : { platform }),
  };
}

/** What every reachable host has: a session may land on any of them. */
function common([first = [], ...others]: readonly (readonly string[])[]): string[] {
  return first.filter((name) => others.every((names) => names.includes(name))).sort();
}

function onlyPlatform(reachable: readonly HostFacts[]): Platform | undefined {
  const platforms = new Set(reachable.map((facts) => facts.platform));
  return platforms.size === 1 ? reachable[0]?.platform : undefined;
}

function byVersion(a: string, b: string): number {
  return a.localeCompare(b, "en", { numeric: true });
}

function deriveConditions(
  runtime: Runtime,
  found: {
    readonly hosts: readonly RuntimeHostStatus[];
    readonly reachable: readonly HostFacts[];
    readonly platform: Platform | undefined;
    readonly sessions: readonly Sandbox[];
    readonly now: number;
  },
): DerivedCondition[] {
  const observedGeneration = runtime.metadata.generation ?? 0;
  const silent = found.hosts.filter((host) => host.state === "Unreachable");
  const names = silent.map(({ name, message }) => `${addressed(runtime, name)} (${message})`).join("; ");
  const homeless = found.sessions.filter(
    (sandbox) => !found.hosts.some((host) => host.name === sandbox.status?.compute?.host),
  );
  const ready = readiness(runtime, found, names);
  const conditions: DerivedCondition[] = [{ type: "Ready", ...ready, observedGeneration }];
  if (homeless.length > 0) {
    conditions.push({
      type: "Available",
      status: "False",
      reason: "HostInUse",
      message: `sessions on hosts that left spec.docker.hosts wait for them: ${homeless.map((sandbox) => `${sandbox.metadata.namespace}/${sandbox.metadata.name} on ${sandbox.status?.compute?.host}`).join(", ")}`,
      observedGeneration,
    });
  } else {
    conditions.push({
      type: "Available",
      ...(silent.length === 0
        ? {
            status: "True",
            reason: "AllHostsReachable",
            message: `all answer: ${counted(found.hosts.length, "host")}`,
          }
        : {
            status: "False",
            reason: silent.length === found.hosts.length ? "NoHostReachable" : "SomeHostsUnreachable",
            message: names,
          }),
      observedGeneration,
    });
  }
  const lost = found.hosts.filter((host) => isHostLost(host.unreachableAt, runtime, found.now));
  if (lost.length > 0) {
    conditions.push({
      type: "HostLost",
      status: "True",
      reason: "HostLost",
      message: `${lost.map((host) => `${host.name} since ${host.unreachableAt}`).join(", ")}: no answer for longer than spec.hostLossSeconds; what sessions had there is in status.rescues`,
      observedGeneration,
    });
  }
  const { rescues = [] } = runtime.status ?? {};
  const kept = rescues.filter(holdsWork);
  if (kept.length > 0) {
    const named = kept.map((one) => `${one.operation} of Sandbox ${one.namespace}/${one.sandbox.name} on ${one.host}`);
    conditions.push({
      type: "RescuesKept",
      status: "True",
      reason: "RescuesKept",
      message: clip(
        `${counted(kept.length, "rescue")} of work that is in no version: ${named.join("; ")}; status.rescues says until when`,
        LIMITS.message,
      ),
      observedGeneration,
    });
  }
  if (isFull(rescues)) {
    conditions.push({
      type: "RescuesFull",
      status: "True",
      reason: "RescuesFull",
      message: `${rescues.length} rescues are recorded and no more can be: what has to be kept beyond them stays on its host, stopped, and is recorded once there is room`,
      observedGeneration,
    });
  }
  return conditions;
}

function addressed({ spec }: Runtime, name: string): string {
  const host = spec.docker?.hosts.find((one) => one.name === name);
  return host ? `${name} at ${host.endpoint}` : name;
}

const iso = (epochMs: number): string => new Date(epochMs).toISOString();

function readiness(
  runtime: Runtime,
  found: {
    readonly hosts: readonly RuntimeHostStatus[];
    readonly reachable: readonly HostFacts[];
    readonly platform: Platform | undefined;
    readonly sessions: readonly Sandbox[];
    readonly now: number;
  },
  silentHosts: string,
): Pick<DerivedCondition, "status" | "reason" | "message"> {
  if (runtime.metadata.deletionTimestamp !== undefined) {
    const rescues = runtime.status?.rescues?.length ?? 0;
    return {
      status: "False",
      reason: "RuntimeDeleting",
      message: `takes no sessions; ${found.sessions.length} that have compute hibernate, ${rescues} rescues are kept`,
    };
  }
  if (found.reachable.length === 0) {
    const message = clip(
      `no host answers: ${silentHosts}; check spec.docker.hosts[].endpoint, and that the operator reaches it from where it runs`,
      LIMITS.message,
    );
    return { status: "False", reason: "NoHostReachable", message };
  }
  if (found.platform === undefined) {
    const platforms = found.hosts.flatMap(({ name, platform }) => (platform ? [`${name} is ${platform}`] : []));
    const message = `the hosts of one Runtime must have one platform: ${platforms.join(", ")}; make a Runtime of each`;
    return { status: "False", reason: "PlatformsDiffer", message };
  }
  if (runtime.spec.scheduling === "Cordoned") {
    const { cordonedAt = iso(found.now) } = runtime.status ?? {};
    const at =
      drainOf({ ...runtime, status: { ...runtime.status, observedGeneration: 0, cordonedAt } })?.at ?? found.now;
    const message = `takes no new sessions; the ${found.sessions.length} that have compute hibernate from ${iso(at)} on`;
    return { status: "True", reason: "Cordoned", message };
  }
  return { status: "True", reason: "Available", message: `${found.platform}, takes sessions` };
}
