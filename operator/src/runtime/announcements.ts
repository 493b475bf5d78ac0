/** What changed with a Runtime, as Events; their reasons are those of its conditions. Nothing is said twice. */
import type { Runtime, RuntimeRescue } from "@agentworlds/crds";
import { findCondition } from "../reconciler/conditions.ts";

export interface RuntimeEvent {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  /** What the operator did or tried, PascalCase. */
  readonly action: string;
  readonly message: string;
}

/** Emits a Kubernetes Event about a Runtime. Never fails the pass. */
export type AnnounceRuntime = (about: { kind: "Runtime"; object: Runtime }, event: RuntimeEvent) => void;

/** Says what differs between the Runtime before a pass and as that pass has stored it. */
export function announceChanges(
  announce: AnnounceRuntime,
  change: { readonly before: Runtime; readonly after: Runtime; readonly over: readonly RuntimeRescue[] },
): void {
  const events = [
    ...hostEvents(change.before, change.after),
    ...becameTrue("HostLost", "Probe", change),
    ...rescueEvents(change),
    ...becameTrue("RescuesFull", "Sweep", change),
  ];
  for (const event of events) announce({ kind: "Runtime", object: change.after }, event);
}

/** What nobody accounts for was written down. */
export function announceOrphan(
  announce: AnnounceRuntime,
  runtime: Runtime,
  { namespace, sandbox, host, computeId, capture, message }: RuntimeRescue,
): void {
  const what = capture === undefined ? `container ${computeId}` : `capture ${capture} of ${computeId}`;
  announce(
    { kind: "Runtime", object: runtime },
    {
      type: "Warning",
      reason: "Orphaned",
      action: "Sweep",
      message: `${what} on ${host}, of Sandbox ${namespace}/${sandbox.name}: ${message}`,
    },
  );
}

const silentHosts = (runtime: Runtime): ReadonlySet<string> =>
  new Set((runtime.status?.hosts ?? []).filter((host) => host.state === "Unreachable").map((host) => host.name));

function hostEvents(before: Runtime, after: Runtime): RuntimeEvent[] {
  const was = silentHosts(before);
  const is = silentHosts(after);
  const fallen = [...is].filter((name) => !was.has(name));
  const present = new Set(after.status?.hosts?.map((host) => host.name));
  const returned = [...was].filter((name) => !is.has(name) && present.has(name));
  if (fallen.length === 0 && returned.length === 0) return [];
  const changes = [
    ...(fallen.length > 0 ? [`no answer from ${fallen.join(", ")}`] : []),
    ...(returned.length > 0 ? [`${returned.join(", ")} answers again`] : []),
  ];
  const message = `${changes.join("; ")}; ${after.status?.hostsReachable ?? "0"} hosts answer`;
  if (is.size === 0) return [{ type: "Normal", reason: "AllHostsReachable", action: "Probe", message }];
  const reason = is.size === present.size ? "NoHostReachable" : "SomeHostsUnreachable";
  return [{ type: "Warning", reason, action: "Probe", message }];
}

function rescueEvents({ over }: { readonly over: readonly RuntimeRescue[] }): RuntimeEvent[] {
  return over.map((rescue) => ({
    type: "Warning",
    reason: "RescueOver",
    action: "Sweep",
    message: `what was kept of Sandbox ${rescue.namespace}/${rescue.sandbox.name} on ${rescue.host} as ${rescue.computeId} is removed: its time is over`,
  }));
}

/** A condition that is there only while true, and was not there before. */
function becameTrue(
  type: string,
  action: string,
  { before, after }: { before: Runtime; after: Runtime },
): RuntimeEvent[] {
  const condition = findCondition(after.status?.conditions, type);
  if (!condition || findCondition(before.status?.conditions, type)) return [];
  return [{ type: "Warning", reason: condition.reason, action, message: condition.message }];
}
