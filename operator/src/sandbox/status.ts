/** Conditions and phase of a Sandbox, derived whole from its status and from how the pass ended. No I/O, no clock. */
import type { Condition, Sandbox, SandboxPhase, SandboxStatus } from "@agentworlds/crds";
import { type DerivedCondition, mergeConditions } from "../reconciler/conditions.ts";
import type { ObservedCompute } from "../runtime/contract.ts";
import type { Drain } from "../runtime/drain.ts";
import { isBootUnaccounted } from "../runtime/open-boot.ts";
import { type ExplainedFailure, explain } from "../world/status.ts";
import { ComputeUnknown } from "./unnamed-compute.ts";

export interface SandboxFindings {
  /** What the pass threw, if it threw. */
  readonly failure: unknown;
  /** What the pass saw of the container, if it came to look. */
  readonly observed?: ObservedCompute | undefined;
  /** The Runtime gives its sessions up. */
  readonly drain?: Drain | undefined;
  /** Epoch milliseconds. */
  readonly now: number;
}

interface Failed {
  readonly failure: unknown;
  readonly explained: ExplainedFailure | undefined;
}

/** The session's state as the conditions tell it. */
type SessionState = "closed" | "ending" | "running" | "booting" | "wanted" | "asleep" | "unknown";

export function deriveSandboxStatus(
  sandbox: Sandbox,
  findings: SandboxFindings,
): Pick<SandboxStatus, "conditions" | "phase" | "observedGeneration" | "observedMode"> {
  const failure = explain(findings.failure);
  const state = stateOf(sandbox, { failure: findings.failure, explained: failure });
  const observedGeneration = sandbox.metadata.generation ?? 0;
  const derived = [
    ...readiness(state, sandbox, { failure, observed: findings.observed }),
    ...admission(state, failure),
    ...hibernation(state, sandbox),
    ...draining(state, sandbox, findings.drain),
    ...trouble(sandbox, failure),
    ...progress(state, sandbox, failure),
  ].map((condition) => ({ ...condition, observedGeneration }));
  const conditions: Condition[] = mergeConditions(sandbox.status?.conditions, derived, findings.now);
  // One that sleeps by its deadline has acted on mode Hibernated by sleeping on: turned back to Running, it wakes.
  const sleepsByMode = state === "asleep" && sandbox.spec.mode === "Hibernated";
  return {
    conditions,
    phase: state === "running" && findings.drain ? "Draining" : phaseOf(state, sandbox, failure),
    observedGeneration,
    ...(sleepsByMode ? { observedMode: "Hibernated" } : {}),
  };
}

function stateOf(sandbox: Sandbox, { failure, explained }: Failed): SessionState {
  const { spec, status } = sandbox;
  // What is not proven is not reported: neither that it sleeps, nor that it is over, nor that it will boot.
  if (failure instanceof ComputeUnknown || (explained && isBootUnaccounted(sandbox))) return "unknown";
  if (status?.closed && !status.compute) return "closed";
  if (status?.compute) {
    if (status.operation && status.operation.verb !== "Snapshot") return "ending";
    return status.compute.provisionedAt === undefined ? "booting" : "running";
  }
  const neverBooted = (status?.boot ?? 0) === 0;
  const wakes = status?.requests?.some((request) => request.verb === "Touch" && request.result === undefined);
  const modeTurned = status?.observedMode === "Hibernated" && spec.mode === "Running";
  const isTriedAgain = status?.lastEnding?.retryAt !== undefined;
  const wanted = spec.mode === "Running" && (neverBooted || wakes || modeTurned || isTriedAgain);
  return wanted || (explained && spec.mode === "Running" && neverBooted) ? "wanted" : "asleep";
}

/** What keeps an ending from going on; an attempt that failed is told by `SnapshotFailed`. */
const hindrance = (status: SandboxStatus | undefined, failure: ExplainedFailure | undefined) =>
  (status?.operation?.attempts ?? 0) > 0 && failure?.reason === "PublishFailed" ? undefined : because(failure);

/** A snapshot of a running session failed and is tried again: told by `SnapshotFailed`, and the session is none the worse. */
const isRetriedSnapshot = ({ status }: Sandbox, failure: ExplainedFailure | undefined): boolean =>
  status?.operation?.verb === "Snapshot" && status.operation.attempts > 0 && failure?.reason === "PublishFailed";

interface Seen {
  readonly failure: ExplainedFailure | undefined;
  readonly observed: ObservedCompute | undefined;
}

/** Where the pass failed, a session is Ready only if its container was seen running; if none was seen, nobody knows. */
function readinessOfRunning(sandbox: Sandbox, { failure, observed }: Seen): Omitted {
  const { status } = sandbox;
  const isSilent = observed === undefined || failure?.reason === "HostUnreachable";
  const runs = !isSilent && observed.state === "Running";
  const hasEnded = observed?.state === "Absent" || observed?.state === "Exited";
  if (!failure || runs || (isRetriedSnapshot(sandbox, failure) && !hasEnded)) {
    const message = `boot ${status?.boot} on ${status?.compute?.runtime}/${status?.compute?.host}`;
    return { type: "Ready", status: "True", reason: "Running", message };
  }
  return { type: "Ready", status: isSilent ? "Unknown" : "False", reason: failure.reason, message: failure.message };
}

function readiness(state: SessionState, sandbox: Sandbox, seen: Seen): Omitted[] {
  const { status } = sandbox;
  const { failure } = seen;
  switch (state) {
    case "running":
      return [readinessOfRunning(sandbox, seen)];
    case "booting":
      return [
        {
          type: "Ready",
          status: "False",
          ...(because(failure) ?? said("Provisioning", "the container is being made")),
        },
      ];
    case "ending":
      return [
        {
          type: "Ready",
          status: "False",
          ...(hindrance(status, failure) ?? said("Hibernating", `ends: ${status?.operation?.reason}`)),
        },
      ];
    case "unknown":
      return [
        { type: "Ready", status: "Unknown", ...(because(failure) ?? said("HostsNotAsked", "the hosts are asked")) },
      ];
    case "wanted":
      return [
        { type: "Ready", status: "False", ...(because(failure) ?? said("Waking", "waits for its World and a slot")) },
      ];
    case "closed":
    case "asleep":
      // Absent, not False: kstatus calls False "in progress" for ever (DESIGN §3).
      return [];
  }
}

function admission(state: SessionState, failure: ExplainedFailure | undefined): Omitted[] {
  if (state === "wanted") {
    return [
      { type: "Admitted", status: "False", ...(because(failure) ?? said("Waking", "waits for its World and a slot")) },
    ];
  }
  if (state === "asleep" || state === "closed" || state === "unknown") return [];
  return [
    { type: "Admitted", status: "True", ...said("Admitted", "a slot is taken, and the World is held if there is one") },
  ];
}

/** "Hibernated" is said only when the last boot's work was read back, or there was none to save. */
function hibernation(state: SessionState, { status, spec }: Sandbox): Omitted[] {
  const ending = status?.lastEnding;
  if (state === "closed") {
    const { version, digest } = status?.closed ?? {};
    const message = digest === undefined ? "nothing was saved" : `ended in version ${version} (${digest})`;
    const closed: Omitted = { type: "Closed", status: "True", ...said(ending?.reason ?? "CloseRequested", message) };
    return ending?.outcome === "Rescued" ? [closed, kept(ending)] : [closed];
  }
  if (state !== "asleep") return [];
  if (!ending)
    return [
      { type: "Hibernated", status: "True", ...said("ModeHibernated", `spec.mode is ${spec.mode}; never booted`) },
    ];
  // The work may still be there, and nothing can be said of it before the host answers.
  if (ending.outcome === "Lost" || ending.reason === "HostLost")
    return [{ type: "ComputeLost", status: "True", ...said(ending.reason, ending.message) }];
  if (ending.outcome === "Rescued") return [kept(ending)];
  return [{ type: "Hibernated", status: "True", ...said(ending.reason, ending.message) }];
}

/** Said while there is still time to do something about it. */
function draining(state: SessionState, { status }: Sandbox, drain: Drain | undefined): Omitted[] {
  if (state !== "running" || !drain) return [];
  const runtime = `Runtime ${status?.compute?.runtime}`;
  const why = drain.reason === "RuntimeDeleted" ? `${runtime} is being deleted` : `${runtime} is cordoned`;
  const message = `${why}: the session hibernates at ${new Date(drain.at).toISOString()}, and wakes by a touch once the Runtime takes sessions`;
  return [{ type: "Draining", status: "True", ...said(drain.reason, message) }];
}

/** Work that is in no version is on a host, and the condition stays until that has changed. */
const kept = ({ reason, message }: NonNullable<SandboxStatus["lastEnding"]>): Omitted => ({
  type: "SnapshotFailed",
  status: "True",
  reason,
  message,
});

function trouble({ status }: Sandbox, failure: ExplainedFailure | undefined): Omitted[] {
  const { operation } = status ?? {};
  if (operation && operation.attempts > 0) {
    const message = `attempt ${operation.attempts}: ${operation.lastError ?? "unknown"}; the container is kept, the next attempt is at ${operation.retryAt}`;
    return [{ type: "SnapshotFailed", status: "True", ...said("PublishFailed", message) }];
  }
  return failure?.stalled
    ? [{ type: "Stalled", status: "True", reason: failure.reason, message: failure.message }]
    : [];
}

/** Present only while the session is on its way somewhere, or something keeps its passes from their end. */
function progress(state: SessionState, sandbox: Sandbox, failure: ExplainedFailure | undefined): Omitted[] {
  if (failure?.stalled) return [];
  if (state === "unknown" && failure) {
    return [
      { type: "ComputeUnknown", status: "True", ...said(failure.reason, failure.message) },
      { type: "Reconciling", status: "True", ...said(failure.reason, failure.message) },
    ];
  }
  if (state === "booting")
    return [{ type: "Reconciling", status: "True", ...(because(failure) ?? said("Provisioning", "boots")) }];
  if (state === "ending") {
    const why = hindrance(sandbox.status, failure) ?? said("Hibernating", "becomes a version");
    return [{ type: "Reconciling", status: "True", ...why }];
  }
  if (state === "wanted")
    return [{ type: "Reconciling", status: "True", ...(because(failure) ?? said("Waking", "waits")) }];
  if (!failure || isRetriedSnapshot(sandbox, failure)) return [];
  return [{ type: "Reconciling", status: "True", reason: failure.reason, message: failure.message }];
}

type Omitted = Omit<DerivedCondition, "observedGeneration">;

const said = (reason: string, message: string) => ({ reason, message });
const because = (failure: ExplainedFailure | undefined) =>
  failure === undefined ? undefined : said(failure.reason, failure.message);

function phaseOf(state: SessionState, { status }: Sandbox, failure: ExplainedFailure | undefined): SandboxPhase {
  if (failure?.stalled) return "Failed";
  switch (state) {
    case "closed":
      return "Closed";
    case "ending":
      return status?.operation?.verb === "Close" ? "Closing" : "Hibernating";
    case "running":
      return "Running";
    case "booting":
      return "Provisioning";
    case "unknown":
      return "Waiting";
    case "wanted":
      return failure ? "Waiting" : "Pending";
    case "asleep":
      return status?.lastEnding?.outcome === "Lost" || status?.lastEnding?.outcome === "Rescued"
        ? "Failed"
        : "Hibernated";
  }
}
