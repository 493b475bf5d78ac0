/**
 * What a Sandbox wants now: one pure function from what is written and what was observed to the single goal of this pass.
 * The phases act on the goal only; none of them decides for itself whether the session should run.
 */
import type { Sandbox, SandboxOperation, SandboxRequest } from "@agentworlds/crds";
import type { ObservedCompute } from "../runtime/contract.ts";
import type { Drain } from "../runtime/drain.ts";
import { BOOT_TIMED_OUT, isBootOverdue } from "./boot-limit.ts";
import { judgeDeadline } from "./deadline.ts";

/** Why a session ends. Becomes the version's `reason` and the condition's. */
export type EndReason =
  | "DeadlinePassed"
  | "LifetimePassed"
  | "CloseRequested"
  | "SandboxDeleted"
  | "ModeHibernated"
  | "WorldDeleted"
  | "RuntimeDeleted"
  | "RuntimeCordoned"
  | "ContainerExited"
  | "BootTimedOut"
  /** Of a capture that was found without its operation: work since is lost. */
  | "ContainerGone"
  | "OutOfMemory";

export type SessionGoal =
  /** Closed, or deleted with nothing left: only clean-up remains. */
  | { readonly kind: "finished" }
  /** Nothing runs and nothing is wanted. */
  | { readonly kind: "asleep" }
  /** Nothing runs; a close was asked for. */
  | { readonly kind: "closeAsleep"; readonly request: SandboxRequest }
  /**
   * Nothing runs and the session is wanted: take hold and slot, then boot. `wakes` are answered by the boot. `notBefore`: the
   * boot before was given up, and this is when it is tried again.
   */
  | { readonly kind: "boot"; readonly wakes: readonly SandboxRequest[]; readonly notBefore?: string }
  /** Compute exists and should; Ready may still have to be reached. */
  | { readonly kind: "run" }
  /** A snapshot of the running session is asked for, or under way. */
  | { readonly kind: "snapshot"; readonly request: SandboxRequest | undefined }
  /** Compute exists and must end in a version (or be discarded). */
  | {
      readonly kind: "end";
      readonly verb: "Hibernate" | "Close";
      /** An `EndReason`; of an operation that a newer operator began, what that one wrote. */
      readonly reason: string;
      readonly discard: boolean;
    }
  /** Compute was there and is gone: say so, pretend nothing. */
  | { readonly kind: "lost" };

export interface JudgeInput {
  readonly sandbox: Sandbox;
  /** From inspection in this pass; undefined when nothing is recorded or the host could not be asked. */
  readonly observed: ObservedCompute | undefined;
  /** The World is being deleted, gone, or replaced by another of its name. */
  readonly worldEnding: boolean;
  /** The Runtime gives its sessions up. */
  readonly drain?: Drain | undefined;
  /** The session may never publish: a throwaway image, or pinned below head. */
  readonly savesNothing: boolean;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Requests nobody has answered, oldest first. */
export const openRequests = (sandbox: Sandbox, verb: SandboxRequest["verb"]): SandboxRequest[] =>
  (sandbox.status?.requests ?? []).filter((request) => request.verb === verb && request.result === undefined);

export function judgeSession(input: JudgeInput): SessionGoal {
  const { sandbox } = input;
  if (!sandbox.status?.compute) return judgeWithoutCompute(sandbox);
  return judgeWithCompute(input);
}

function judgeWithoutCompute(sandbox: Sandbox): SessionGoal {
  if (sandbox.status?.closed || sandbox.metadata.deletionTimestamp) return { kind: "finished" };
  const close = openRequests(sandbox, "Close")[0];
  if (close) return { kind: "closeAsleep", request: close };
  if (sandbox.spec.mode === "Hibernated") return { kind: "asleep" };
  const wakes = openRequests(sandbox, "Touch");
  const neverBooted = (sandbox.status?.boot ?? 0) === 0;
  const modeTurned = sandbox.status?.observedMode === "Hibernated";
  if (neverBooted || modeTurned || wakes.length > 0) return { kind: "boot", wakes };
  const notBefore = sandbox.status?.lastEnding?.retryAt;
  return notBefore === undefined ? { kind: "asleep" } : { kind: "boot", wakes, notBefore };
}

function judgeWithCompute({ sandbox, observed, worldEnding, drain, savesNothing, now }: JudgeInput): SessionGoal {
  const status = sandbox.status ?? { observedGeneration: -1 };
  const { operation } = status;
  const provisioned = status.compute?.provisionedAt !== undefined;
  const isGone = observed?.state === "Absent" && provisioned;
  if (isGone && !isPastCapture(operation?.stage) && operation?.outcome !== "Discard") return { kind: "lost" };

  if (operation && operation.verb !== "Snapshot") {
    const dropped = isFailing(operation) ? whyDropped(sandbox) : undefined;
    if (dropped) return { kind: "end", verb: "Close", reason: dropped, discard: true };
    return {
      kind: "end",
      verb: operation.verb,
      reason: operation.reason,
      discard: savesNothing || operation.outcome === "Discard",
    };
  }
  // A snapshot in its course is finished first; one that fails, or is a version already, gives way to an ending, which captures
  // anew: never from a container that is gone, whose capture is the only copy.
  const isInItsCourse = operation?.attempts === 0 && operation.stage !== "Committed";
  if (operation && (isInItsCourse || isGone)) return snapshotUnderWay(status.requests, operation.request);

  const end = (verb: "Hibernate" | "Close", reason: EndReason, discard = false): SessionGoal => ({
    kind: "end",
    verb,
    reason,
    // Nothing was ever run in a container that never became ready, so there is nothing to save.
    discard: discard || savesNothing || !provisioned,
  });
  const discardsOnClose = sandbox.spec.closePolicy === "Discard";
  if (sandbox.metadata.deletionTimestamp) return end("Close", "SandboxDeleted", discardsOnClose);
  // A container that was found after the session had been closed: its work becomes a version, and it goes.
  if (status.closed) return end("Close", "CloseRequested");
  const close = openRequests(sandbox, "Close")[0];
  if (close) return end("Close", "CloseRequested", discards(sandbox, close));
  if (worldEnding) return end("Hibernate", "WorldDeleted");
  if (sandbox.spec.mode === "Hibernated") return end("Hibernate", "ModeHibernated");
  if (observed?.state === "Exited" && provisioned) {
    return end("Hibernate", observed.outOfMemory ? "OutOfMemory" : "ContainerExited");
  }
  if (isBootOverdue(status, now)) return end("Hibernate", BOOT_TIMED_OUT);
  if (drain && now >= drain.at) return end("Hibernate", drain.reason);
  const deadline = judgeDeadline(
    { expiresAt: epoch(status.expiresAt), lifetimeEndsAt: epoch(status.lifetimeEndsAt) },
    now,
  );
  if (deadline.kind === "expired") {
    return end("Hibernate", deadline.by === "lifetime" ? "LifetimePassed" : "DeadlinePassed");
  }
  if (operation) return snapshotUnderWay(status.requests, operation.request);
  const snapshot = openRequests(sandbox, "Snapshot")[0];
  if (snapshot && deadline.kind === "alive" && !savesNothing) return { kind: "snapshot", request: snapshot };
  return { kind: "run" };
}

const isFailing = ({ verb, attempts, outcome }: SandboxOperation): boolean =>
  verb === "Hibernate" && attempts > 0 && outcome !== "Discard";

/** A hibernation that keeps failing must not hold who has decided to drop the work. */
function whyDropped(sandbox: Sandbox): Extract<EndReason, "SandboxDeleted" | "CloseRequested"> | undefined {
  if (sandbox.metadata.deletionTimestamp && sandbox.spec.closePolicy === "Discard") return "SandboxDeleted";
  const close = openRequests(sandbox, "Close")[0];
  return close && discards(sandbox, close) ? "CloseRequested" : undefined;
}

const discards = (sandbox: Sandbox, close: SandboxRequest): boolean =>
  (close.parameters?.discard ?? sandbox.spec.closePolicy) === "Discard";

const snapshotUnderWay = (requests: readonly SandboxRequest[] | undefined, id: string | undefined): SessionGoal => ({
  kind: "snapshot",
  request: requests?.find((request) => request.id === id),
});

/** From `Captured` on the work no longer lives in the container alone. */
export const isPastCapture = (stage: string | undefined): boolean =>
  stage === "Captured" ||
  stage === "Uploaded" ||
  stage === "Manifested" ||
  stage === "Verified" ||
  stage === "Committed" ||
  stage === "Discarded";

/** ISO time of a status field as epoch milliseconds. */
export const epoch = (iso: string | undefined): number | undefined => (iso === undefined ? undefined : Date.parse(iso));
