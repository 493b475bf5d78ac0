/** Who may boot now: pure checks against what exists, and the desk where hold and slot are taken together. */

import type { Runtime, Sandbox } from "@agentworlds/crds";
import { Turns } from "../reconciler/turns.ts";
import type { Capability } from "../runtime/contract.ts";
import { explainNotReady } from "../runtime/selection.ts";

/** What a session needs of its Runtime. */
export interface SessionNeeds {
  readonly saves: boolean;
  readonly platform: string | undefined;
  readonly cpu: boolean;
  readonly memory: boolean;
}

export type RuntimeCheck =
  | { readonly kind: "fits" }
  | {
      readonly kind: "waits";
      readonly reason: string;
      readonly message: string;
      readonly remediation: string;
      readonly tells?: "Normal" | "Warning";
    }
  | { readonly kind: "refused"; readonly reason: string; readonly message: string; readonly remediation: string };

/** A missing capability, another platform: refused by name. A cordon or a silent host: it heals, so the session waits. */
export function checkRuntime(runtime: Runtime, needs: SessionNeeds): RuntimeCheck {
  const name = runtime.metadata.name;
  if (runtime.spec.scheduling === "Cordoned") {
    return {
      kind: "waits",
      reason: "RuntimeCordoned",
      message: `Runtime ${name} takes no new sessions`,
      remediation: "wait until spec.scheduling is Enabled again, or name another Runtime",
    };
  }
  const platform = runtime.status?.platform;
  if (platform === undefined) {
    return {
      kind: "waits",
      reason: "RuntimeNotReady",
      ...explainNotReady(runtime),
    };
  }
  if (needs.platform !== undefined && needs.platform !== platform) {
    return {
      kind: "refused",
      reason: "PlatformMismatch",
      message: `the World is ${needs.platform}, Runtime ${name} is ${platform}`,
      remediation: "name a Runtime of the World's platform",
    };
  }
  const missing = [
    ...wantedCapabilities(runtime, needs).filter((capability) => !runtime.status?.capabilities?.includes(capability)),
    ...missingOciRuntime(runtime),
  ];
  if (missing.length > 0) {
    return {
      kind: "refused",
      reason: "CapabilityMissing",
      message: `Runtime ${name} lacks ${missing.join(", ")}`,
      remediation: "name a Runtime that has it, or ask for less",
    };
  }
  return { kind: "fits" };
}

function wantedCapabilities(runtime: Runtime, needs: SessionNeeds): Capability[] {
  const { isolation } = runtime.spec;
  const wanted: [Capability, boolean][] = [
    ["exec", true],
    ["commit", needs.saves],
    ["cpuLimit", needs.cpu || isolation?.cpu !== undefined],
    ["memoryLimit", needs.memory || isolation?.memory !== undefined],
    ["pidsLimit", true],
    ["isolatedNetwork", isolation?.network !== "None"],
    // Until its hosts are probed by an operator that asks for the names.
    ["ociRuntime", isolation?.ociRuntime !== undefined && runtime.status?.ociRuntimes === undefined],
  ];
  return wanted.filter(([, needed]) => needed).map(([capability]) => capability);
}

/** An engine refuses a runtime that it does not know only when a container starts; and knowing another one is no help. */
function missingOciRuntime({ spec, status }: Runtime): string[] {
  const wanted = spec.isolation?.ociRuntime;
  const known = status?.ociRuntimes;
  if (wanted === undefined || known === undefined || known.includes(wanted)) return [];
  return [`ociRuntime ${wanted} (its hosts know ${known.join(", ") || "none"})`];
}

/** Sessions by host of one Runtime, from the recorded compute of every Sandbox. */
export function sessionsByHost(sandboxes: readonly Sandbox[], runtime: string): Map<string, number> {
  const byHost = new Map<string, number>();
  for (const { status } of sandboxes) {
    if (status?.compute?.runtime !== runtime) continue;
    byHost.set(status.compute.host, (byHost.get(status.compute.host) ?? 0) + 1);
  }
  return byHost;
}

/** A slot given out whose Sandbox the cache does not show yet. */
interface GivenSlot {
  readonly runtime: string;
  readonly host: string;
  readonly boot: number;
}

/**
 * One desk per leader: admissions happen one after another, so that two sessions never count the same free slot. A slot
 * given out counts at once, not when the cache has caught up.
 */
export class AdmissionDesk {
  readonly #given = new Map<string, GivenSlot>();
  readonly #turns = new Turns();

  /** Runs `admit` when every earlier admission has ended. Every other boot waits meanwhile: `admit` asks no registry. */
  inTurn<R>(admit: () => Promise<R>, signal: AbortSignal): Promise<R> {
    return this.#turns.take(admit, signal);
  }

  /** Sessions by host, the ones just admitted included. */
  occupancy(sandboxes: readonly Sandbox[], runtime: string): Map<string, number> {
    const byHost = sessionsByHost(sandboxes, runtime);
    const known = new Set(sandboxes.map(({ metadata }) => metadata.uid));
    for (const uid of this.#given.keys()) if (!known.has(uid)) this.#given.delete(uid);
    for (const sandbox of sandboxes) {
      const given = this.#given.get(sandbox.metadata.uid);
      if (!given) continue;
      const seen = (sandbox.status?.boot ?? 0) >= given.boot;
      if (seen) this.#given.delete(sandbox.metadata.uid);
      else if (given.runtime === runtime) byHost.set(given.host, (byHost.get(given.host) ?? 0) + 1);
    }
    return byHost;
  }

  /** Counts a slot as taken from now on. */
  give(sandboxUid: string, slot: GivenSlot): void {
    this.#given.set(sandboxUid, slot);
  }

  /** The boot that a Sandbox was given a slot for, as long as no cache has shown it. */
  bootGiven(sandboxUid: string): number | undefined {
    return this.#given.get(sandboxUid)?.boot;
  }

  /** Takes back a slot whose boot was never recorded. */
  takeBack(sandboxUid: string): void {
    this.#given.delete(sandboxUid);
  }
}
