/** Which faults a run brings about, in which order and with which pauses: all of it follows from the seed. */
import type { Random } from "./random.ts";

/** Every kind of fault, with its share of the draw. */
export const FAULT_WEIGHTS = {
  operatorKilledAtPoint: 24,
  leaderKilled: 8,
  operatorsKilled: 3,
  leaderDrained: 3,
  apiThrottles: 4,
  apiFails: 5,
  apiResets: 4,
  apiAnswersLost: 6,
  apiHalfOpen: 2,
  apiPartition: 2,
  apiServerRestart: 2,
  etcdRestart: 2,
  watchDuplicates: 2,
  watchStale: 2,
  registryFails: 5,
  registrySlow: 3,
  registryResets: 3,
  registryAnswersLost: 3,
  registryShortRead: 3,
  registryLyingHead: 3,
  registryDiskFull: 3,
  registryRestart: 3,
  registryGarbage: 3,
  engineRestart: 2,
  hostPaused: 3,
  containerKilled: 4,
  containerStopped: 2,
  containerOutOfMemory: 2,
  containerRemoved: 2,
  clockForward: 1,
  clockBack: 1,
} as const;

export type FaultKind = keyof typeof FAULT_WEIGHTS;

export interface DrawnFault {
  readonly kind: FaultKind;
  /** Decides what the kind leaves open: which point, which container; 0 ≤ x < 1. */
  readonly choice: number;
  /** How long it lasts, 0 ≤ x < 1 of what its kind allows. */
  readonly length: number;
  /** Time before it. */
  readonly pauseMs: number;
}

const LONGEST_PAUSE_MS = 1_000;

export function drawFaults(random: Random, count: number): DrawnFault[] {
  const kinds = Object.keys(FAULT_WEIGHTS).filter(isFaultKind);
  const among = kinds.map((kind) => ({ value: kind, weight: FAULT_WEIGHTS[kind] }));
  return Array.from({ length: count }, () => ({
    kind: random.pick(among),
    choice: random.next(),
    length: random.next(),
    pauseMs: Math.round(random.next() * LONGEST_PAUSE_MS),
  }));
}

/** Kills at points, and as many other kinds as there is room for, no kind twice: for a run that has little time. */
export function drawVaried(random: Random, counts: { kills: number; others: number }): DrawnFault[] {
  const drawn = drawFaults(random, 2_000);
  const kills = drawn.filter(({ kind }) => kind === KILL).slice(0, counts.kills);
  const others = drawn.filter(
    ({ kind }, index) => kind !== KILL && drawn.findIndex((earlier) => earlier.kind === kind) === index,
  );
  const chosen = new Set([...kills, ...others.slice(0, counts.others)]);
  return drawn.filter((fault) => chosen.has(fault));
}

const KILL: FaultKind = "operatorKilledAtPoint";

export const isFaultKind = (name: string): name is FaultKind => Object.hasOwn(FAULT_WEIGHTS, name);
