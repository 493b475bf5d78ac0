import type { DrawnFault, FaultKind } from "../draw/faults.ts";
import type { FaultAct } from "../faults.ts";
import type { KillPoint } from "../gate/points.ts";
import type { Operators } from "../operators.ts";

/** A point that is not passed for so long is given up. */
const PASSED_WITHIN_MS = 12_000;
/** The lease is renewed all the time: a death there hits nothing on its way. Coverage kills there as well. */
const isWork = ({ name }: KillPoint): boolean => !name.includes(" leases");

/** Points that every life passes: only these come by within seconds. */
function choosePoint(operators: Operators, choice: number): KillPoint | undefined {
  const all = operators.frequentPoints().filter(isWork);
  const usual = all.slice(0, Math.max(1, Math.ceil(all.length / 2)));
  return usual[Math.floor(choice * usual.length)];
}

const nthOf = ({ length }: DrawnFault): number => 1 + Math.floor(length * 2);

export const OPERATOR_FAULTS = {
  async operatorKilledAtPoint({ operators }, fault) {
    const point = choosePoint(operators, fault.choice);
    if (point === undefined) return { cameTrue: false, detail: "no point was passed yet" };
    const nth = nthOf(fault);
    const cameTrue = await operators.killAt(point, nth, PASSED_WITHIN_MS);
    return { cameTrue, detail: `${point.moment} ${point.name}, ${nth}.` };
  },

  async leaderKilled({ operators }) {
    await operators.killLeader();
    return { cameTrue: true, detail: "the other replica takes over" };
  },

  async operatorsKilled({ operators }) {
    await operators.killAll();
    return { cameTrue: true, detail: "nobody leads until one is back" };
  },

  async leaderDrained({ operators }) {
    await operators.drainLeader();
    return { cameTrue: true, detail: "SIGTERM to the leader" };
  },
} satisfies Partial<Record<FaultKind, FaultAct>>;
