import type { ActiveRule, FaultProxy, FaultRule } from "../../kit/fault-proxy.ts";
import type { DrawnFault } from "../draw/faults.ts";
import type { FaultOutcome } from "../faults.ts";

export const pause = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Between the two, as drawn. */
export const lengthOf = ({ length }: DrawnFault, least: number, most: number): number =>
  least + length * (most - least);

/** Keeps rules in force for a while; they came true if any request met one. */
export async function holdRules(
  proxy: FaultProxy,
  rules: readonly FaultRule[],
  milliseconds: number,
): Promise<FaultOutcome> {
  const active: ActiveRule[] = rules.map((rule) => proxy.add(rule));
  try {
    await pause(milliseconds);
  } finally {
    for (const rule of active) rule.remove();
  }
  const applied = active.reduce((sum, rule) => sum + rule.applied, 0);
  return { cameTrue: applied > 0, detail: `${applied} requests in ${Math.round(milliseconds)} ms` };
}
