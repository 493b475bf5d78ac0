/** Which Runtime a session uses, and why not: pure decisions over the Runtimes that exist. There is never a fallback. */
import type { Runtime } from "@agentworlds/crds";
import { findCondition } from "../reconciler/conditions.ts";

export type RuntimeVerdict =
  | { readonly kind: "found"; readonly runtime: Runtime }
  | {
      readonly kind: "missing";
      readonly reason:
        | "RuntimeNotFound"
        | "NoDefaultRuntime"
        | "SeveralDefaultRuntimes"
        | "RuntimeNotAllowed"
        | "RuntimeDeleting"
        | "RuntimeChanged";
      readonly message: string;
      readonly remediation: string;
    };

export interface RuntimeWish {
  /** `spec.runtime.name` of the Sandbox, else of the World. */
  readonly name: string | undefined;
  readonly namespace: string;
  readonly namespaceLabels: Readonly<Record<string, string>>;
}

export function selectRuntime(runtimes: readonly Runtime[], wish: RuntimeWish): RuntimeVerdict {
  const named =
    wish.name === undefined ? selectDefault(runtimes, wish.namespaceLabels) : selectByName(runtimes, wish.name);
  return named.kind === "missing" ? named : judgeUse(named.runtime, wish);
}

/** For a boot that is recorded on this Runtime already: another default than the one at its admission does not move it. */
export function judgeRecorded(runtime: Runtime, wish: RuntimeWish): RuntimeVerdict {
  const { name } = runtime.metadata;
  if (wish.name === undefined ? runtime.spec.selection === "Default" : wish.name === name)
    return judgeUse(runtime, wish);
  return {
    kind: "missing",
    reason: "RuntimeChanged",
    message: `the boot is recorded on Runtime ${name}, and ${wish.name === undefined ? "the default" : `Runtime ${wish.name}`} is asked for`,
    remediation: "it is admitted anew",
  };
}

function judgeUse(runtime: Runtime, wish: RuntimeWish): RuntimeVerdict {
  if (runtime.metadata.deletionTimestamp) {
    return {
      kind: "missing",
      reason: "RuntimeDeleting",
      message: `Runtime ${runtime.metadata.name} is being deleted`,
      remediation: "name another Runtime in spec.runtime",
    };
  }
  if (!isNamespaceAllowed(runtime, wish.namespaceLabels)) {
    return {
      kind: "missing",
      reason: "RuntimeNotAllowed",
      message: `Runtime ${runtime.metadata.name} may not be used from namespace ${wish.namespace}`,
      remediation: "name another Runtime in spec.runtime, or ask its owner to widen spec.namespaces",
    };
  }
  return { kind: "found", runtime };
}

/** Why a Runtime without a platform cannot be used yet. That its hosts were not asked yet is how every Runtime begins. */
export function explainNotReady({ metadata: { name }, status }: Runtime): {
  readonly message: string;
  readonly remediation: string;
  readonly tells: "Normal" | "Warning";
} {
  const ready = findCondition(status?.conditions, "Ready");
  if (!ready) {
    return {
      message: `the hosts of Runtime ${name} are being asked`,
      remediation: "this goes on by itself",
      tells: "Normal",
    };
  }
  // Its message names addresses of hosts, which not everybody may read.
  return {
    message: `Runtime ${name} cannot be used now: ${ready.reason}`,
    remediation: `see its conditions: kubectl describe runtime ${name}`,
    tells: "Warning",
  };
}

function selectByName(runtimes: readonly Runtime[], name: string): RuntimeVerdict {
  const runtime = runtimes.find((candidate) => candidate.metadata.name === name);
  if (runtime) return { kind: "found", runtime };
  return {
    kind: "missing",
    reason: "RuntimeNotFound",
    message: `Runtime ${name} does not exist`,
    remediation:
      "create it, or name another one: in spec.runtime of the World, which may be changed, or in a Sandbox made anew",
  };
}

/** Two defaults fail closed, unless their `namespaces` keep them apart. */
function selectDefault(runtimes: readonly Runtime[], labels: RuntimeWish["namespaceLabels"]): RuntimeVerdict {
  const defaults = runtimes.filter(
    (runtime) =>
      runtime.spec.selection === "Default" &&
      !runtime.metadata.deletionTimestamp &&
      isNamespaceAllowed(runtime, labels),
  );
  const [first, second] = defaults;
  if (first && !second) return { kind: "found", runtime: first };
  if (!first) {
    return {
      kind: "missing",
      reason: "NoDefaultRuntime",
      message: "no Runtime is named and none with selection: Default is for this namespace",
      remediation: "name one in spec.runtime, or set spec.selection: Default on one Runtime",
    };
  }
  return {
    kind: "missing",
    reason: "SeveralDefaultRuntimes",
    message: `several Runtimes have selection: Default: ${defaults.map((runtime) => runtime.metadata.name).join(", ")}`,
    remediation: "name one in spec.runtime, or leave selection: Default on one Runtime only",
  };
}

/** An absent selector allows every namespace; an empty one, as everywhere in Kubernetes, too. */
export function isNamespaceAllowed(runtime: Runtime, labels: Readonly<Record<string, string>>): boolean {
  const selector = runtime.spec.namespaces;
  if (!selector) return true;
  const matchesLabels = Object.entries(selector.matchLabels ?? {}).every(([key, value]) => labels[key] === value);
  const matchesExpressions = (selector.matchExpressions ?? []).every((expression) => {
    const value = labels[expression.key];
    const values = expression.values ?? [];
    switch (expression.operator) {
      case "In":
        return value !== undefined && values.includes(value);
      case "NotIn":
        return value === undefined || !values.includes(value);
      case "Exists":
        return value !== undefined;
      case "DoesNotExist":
        return value === undefined;
      default:
        return false;
    }
  });
  return matchesLabels && matchesExpressions;
}

/** The host with the fewest sessions among the reachable ones; the name decides a tie, so that a retry picks the same. */
export function selectHost(runtime: Runtime, sessionsByHost: ReadonlyMap<string, number>): string | undefined {
  const configured = new Set(runtime.spec.docker?.hosts.map((host) => host.name));
  const reachable = (runtime.status?.hosts ?? [])
    .filter((host) => host.state === "Reachable" && configured.has(host.name))
    .map((host) => host.name);
  return reachable.sort((a, b) => (sessionsByHost.get(a) ?? 0) - (sessionsByHost.get(b) ?? 0) || a.localeCompare(b))[0];
}
