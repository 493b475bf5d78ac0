import { PassDeadlineExceeded, startDeadline } from "./deadline.ts";
import { Terminal, Waiting } from "./policy.ts";
import type { PhaseResult, ReconcileContext, ReconcileResult } from "./reconcile.ts";

/**
 * One step of a pass: finds nothing to do, acts once, or says when to come back. Writes what it learned into the scope, and
 * relies only on what earlier phases wrote. Its function name is its name in logs.
 */
export type Phase<S> = (scope: S, context: ReconcileContext) => Promise<PhaseResult>;

/** How a pass over the phases ended, as `finish` sees it. */
export type PassOutcome =
  | { readonly kind: "completed" }
  | { readonly kind: "requeueAfter"; readonly phase: string; readonly ms: number }
  | { readonly kind: "stopped"; readonly phase: string }
  | { readonly kind: "failed"; readonly phase: string; readonly error: unknown; readonly isCutOff?: true };

export interface PassOptions<S> {
  readonly phases: readonly Phase<S>[];
  readonly scope: S;
  readonly context: ReconcileContext;
  /**
   * A pass that was cut off by its own deadline gives it a context of its own, for a short while, so that a call that hangs
   * in every pass is counted and told. `isCutOff` says so.
   *
   * Called once, however the phases ended: the one place that derives conditions and writes status. May ask to come back
   * sooner than the phases did.
   */
  readonly finish: (scope: S, outcome: PassOutcome, context: ReconcileContext) => Promise<ReconcileResult>;
}

/** What a pass may take to finish after its deadline. */
export const FINISH_MS = 90_000;

/**
 * Runs the phases in order up to the first that stops, asks to come back, or throws; then `finish`; then rethrows the phase's
 * error for the loop to judge. When `finish` fails too, a phase's `Waiting` or `Terminal` gives way to it: the loop would
 * otherwise rest on a condition that was never written. Two real failures become an AggregateError.
 */
export async function runPhases<S>(options: PassOptions<S>): Promise<ReconcileResult> {
  const { scope, context, finish } = options;
  const walked = await walk(options);
  const cutOff = walked.kind === "failed" ? passDeadlineOf(context) : undefined;
  const outcome =
    walked.kind === "failed" && cutOff ? { ...walked, error: cutOff.reason, isCutOff: true as const } : walked;
  using late = cutOff && startDeadline({ clock: context.clock, milliseconds: FINISH_MS, parent: cutOff.process });
  let asked: ReconcileResult;
  try {
    asked = await finish(scope, outcome, late ? { ...context, signal: late.signal } : context);
  } catch (finishError) {
    if (outcome.kind !== "failed" || outcome.error instanceof Waiting || outcome.error instanceof Terminal) {
      throw finishError;
    }
    throw new AggregateError(
      [outcome.error, finishError],
      `phase ${outcome.phase} failed, and so did finishing the pass`,
    );
  }
  if (outcome.kind === "failed") throw outcome.error;
  return outcome.kind === "requeueAfter" ? soonest(asked, outcome.ms) : asked;
}

/** Undefined: the pass was not cut off, or its process is at its end, too. */
function passDeadlineOf({ signal, process }: ReconcileContext) {
  const reason: unknown = signal.reason;
  if (!signal.aborted || !(reason instanceof PassDeadlineExceeded) || !process || process.aborted) return undefined;
  return { reason, process };
}

async function walk<S>(options: PassOptions<S>): Promise<PassOutcome> {
  const { phases, scope, context } = options;
  for (const phase of phases) {
    try {
      context.signal.throwIfAborted();
      const result = await phase(scope, context);
      if (result.kind === "stop") return { kind: "stopped", phase: phase.name };
      if (result.kind === "requeueAfter") return { kind: "requeueAfter", phase: phase.name, ms: result.ms };
    } catch (error) {
      return { kind: "failed", phase: phase.name, error };
    }
  }
  return { kind: "completed" };
}

function soonest(asked: ReconcileResult, ms: number): ReconcileResult {
  return { requeueAfterMs: asked.requeueAfterMs === undefined ? ms : Math.min(asked.requeueAfterMs, ms) };
}
