import type { ActiveRule, FaultProxy, FaultRule } from "../../kit/fault-proxy.ts";
import type { DrawnFault } from "../draw/faults.ts";
import type { FaultOutcome } from "../faults.ts";

export const pause = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Between the two, as drawn. */
export const lengthOf = ({ length }: DrawnFault, least: number, most: number): number =>
  least + length * (most - least);

/** How long rules wait for somebody to meet one, beyond the time they are to hold. */
const MET_WITHIN_MS = 6_000;

/** Keeps rules in force for a while, and longer when nobody has met one yet; they came true if any request did. */
export async function holdRules(
  proxy: FaultProxy,
  rules: readonly FaultRule[],
  milliseconds: number,
): Promise<FaultOutcome> {
  const active: ActiveRule[] = rules.map((rule) => proxy.add(rule));
  const applied = (): number => active.reduce((sum, rule) => sum + rule.applied, 0);
  try {
    await pause(milliseconds);
    for (let waited = 0; applied() === 0 && waited < MET_WITHIN_MS; waited += 50) await pause(50);
  } finally {
    for (const rule of active) rule.remove();
  }
  return { cameTrue: applied() > 0, detail: `${applied()} requests in ${Math.round(milliseconds)} ms` };
}
