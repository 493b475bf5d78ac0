/** The World's conditions, derived once per pass from what the pass found. */
import type { Condition, World } from "@agentworlds/crds";
import { type DerivedCondition, mergeConditions } from "../reconciler/conditions.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { statusOf } from "./status-writer.ts";

export interface WorldFindings {
  /** What the pass threw, if it threw. */
  readonly failure: unknown;
  /** Why head's tags could not be looked at or repaired. */
  readonly headProblem: string | undefined;
  readonly now: number;
}

export function deriveWorldConditions(world: World, findings: WorldFindings): Condition[] {
  const status = statusOf(world);
  const observedGeneration = world.metadata.generation ?? 0;
  const failure = explain(findings.failure);
  const derived: DerivedCondition[] = [];
  if (status.head) {
    derived.push({
      type: "Ready",
      status: "True",
      reason: "Available",
      message: findings.headProblem ?? `version ${status.head.version} is head`,
      observedGeneration,
    });
    derived.push({
      type: "GenesisReady",
      status: "True",
      reason: "GenesisCopied",
      message: status.genesis ? `${status.genesis.image} for ${status.genesis.platform}` : "adopted",
      observedGeneration,
    });
  } else {
    const reason = failure?.reason ?? "CopyingGenesis";
    const message = failure?.message ?? `copying ${world.spec.from.image}`;
    derived.push({ type: "Ready", status: "False", reason, message, observedGeneration });
    derived.push({ type: "GenesisReady", status: "False", reason, message, observedGeneration });
  }
  if (failure?.stalled) {
    derived.push({
      type: "Stalled",
      status: "True",
      reason: failure.reason,
      message: failure.message,
      observedGeneration,
    });
  } else if (failure || !status.head) {
    derived.push({
      type: "Reconciling",
      status: "True",
      reason: failure?.reason ?? "CopyingGenesis",
      message: failure?.message ?? `copying ${world.spec.from.image}`,
      observedGeneration,
    });
  }
  return mergeConditions(status.conditions, derived, findings.now);
}

/** A failure as a condition shows it. */
export interface ExplainedFailure {
  readonly reason: string;
  readonly message: string;
  /** No retry until the spec changes. */
  readonly stalled: boolean;
}

/** Reason and message of a thrown error; the remediation is part of the message, so that `kubectl describe` shows it. */
export function explain(failure: unknown): ExplainedFailure | undefined {
  if (failure === undefined) return undefined;
  if (failure instanceof Terminal || failure instanceof Waiting) {
    const message = failure.remediation ? `${failure.message}; ${failure.remediation}` : failure.message;
    return { reason: failure.reason, message, stalled: failure instanceof Terminal };
  }
  const message = failure instanceof Error ? failure.message : String(failure);
  return { reason: "Retrying", message, stalled: false };
}
