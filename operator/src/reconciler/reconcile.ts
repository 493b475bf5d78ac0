import type { Clock } from "./clock.ts";

/** `namespace/name`, or `name` for a cluster-scoped object. The only thing the queue knows about an object. */
export type Key = string;

/** What one pass over a key asks of the loop. A thrown error carries its own policy (policy.ts). */
export interface ReconcileResult {
  /** Come back after this many milliseconds (the loop caps it at 10 minutes). Absent: only when something changes. */
  requeueAfterMs?: number;
}

/** One level-based pass: reads what is, moves it one step towards what should be. Never told which event caused it. */
export type Reconcile = (key: Key, context: ReconcileContext) => Promise<ReconcileResult>;

/** What the loop hands to a pass. */
export interface ReconcileContext {
  /** Aborts when the leader's lease is lost, the process drains, or the pass exceeds its deadline. */
  readonly signal: AbortSignal;
  /** Aborts as `signal` does, except at the pass's deadline. Without it nothing is done after that. */
  readonly process?: AbortSignal;
  readonly clock: Clock;
  /** Unique per pass; goes into every log line of it. */
  readonly reconcileId: string;
}

/** What a phase of a pass says: go on, come back later, or end the pass here. */
export type PhaseResult = { kind: "continue" } | { kind: "requeueAfter"; ms: number } | { kind: "stop" };

export const CONTINUE: PhaseResult = { kind: "continue" };
export const STOP: PhaseResult = { kind: "stop" };
export const requeueAfter = (ms: number): PhaseResult => ({ kind: "requeueAfter", ms });
