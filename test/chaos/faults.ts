/** What each kind of fault does. Each begins, holds for a while, is undone, and says whether it came true. */
import type { Board } from "./board.ts";
import type { DrawnFault, FaultKind } from "./draw/faults.ts";
import { API_FAULTS } from "./faults/api-server.ts";
import { CONTAINER_FAULTS } from "./faults/containers.ts";
import { HOST_FAULTS } from "./faults/host.ts";
import { OPERATOR_FAULTS } from "./faults/operators.ts";
import { REGISTRY_FAULTS } from "./faults/registry.ts";
import type { Ground } from "./ground.ts";
import type { Operators } from "./operators.ts";

/** What faults act on. */
export interface Theatre {
  readonly ground: Ground;
  readonly operators: Operators;
  readonly board: Board;
}

export type FaultAct = (theatre: Theatre, fault: DrawnFault) => Promise<FaultOutcome>;

export interface FaultOutcome {
  /** Whether anything met it: a process died, a request was hit, a container ended. */
  readonly cameTrue: boolean;
  /** For the narration. */
  readonly detail: string;
}

const ACTS: Readonly<Record<FaultKind, FaultAct>> = {
  ...OPERATOR_FAULTS,
  ...API_FAULTS,
  ...REGISTRY_FAULTS,
  ...HOST_FAULTS,
  ...CONTAINER_FAULTS,
};

export interface Struck extends FaultOutcome {
  readonly kind: FaultKind;
  /** Operations that were on their way when it came, or while it held. */
  readonly inFlight: readonly string[];
  readonly seconds: number;
}

export async function strike(theatre: Theatre, fault: DrawnFault): Promise<Struck> {
  const { board } = theatre;
  await pause(fault.pauseMs);
  const before = board.inFlight();
  const since = performance.now();
  const outcome = await ACTS[fault.kind](theatre, fault);
  const inFlight = outcome.cameTrue ? [...new Set([...before, ...board.inFlight()])] : [];
  return { kind: fault.kind, ...outcome, inFlight, seconds: (performance.now() - since) / 1000 };
}

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));
