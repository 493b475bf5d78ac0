/** Conditions by the Kubernetes convention, as pure functions: recomputed whole in every pass, times kept where nothing changed. */

/** `metav1.Condition`. */
export interface ConditionValue {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  /** PascalCase constant. */
  readonly reason: string;
  readonly message: string;
  /** ISO time, whole seconds. */
  readonly lastTransitionTime: string;
  readonly observedGeneration?: number;
}

/** A condition as a pass derives it; the times come from what is already there. */
export type DerivedCondition = Omit<ConditionValue, "lastTransitionTime">;

/** `metav1.Time` has whole seconds. */
export const isoSeconds = (epochMs: number): string => new Date(epochMs).toISOString().replace(/\.\d{3}Z$/, "Z");

/** Longest message kept; the schemas allow no more (world/status.test.ts holds the two together). */
export const LONGEST_MESSAGE = 4096;

/**
 * The new list: exactly the derived conditions, in their order. A type that is not derived disappears.
 * `lastTransitionTime` moves only when the status does.
 */
export function mergeConditions(
  before: readonly ConditionValue[] | undefined,
  derived: readonly DerivedCondition[],
  now: number,
): ConditionValue[] {
  return derived.map((condition) => {
    const known = before?.find((other) => other.type === condition.type);
    return {
      ...condition,
      message: cut(condition.message),
      lastTransitionTime: known?.status === condition.status ? known.lastTransitionTime : isoSeconds(now),
    };
  });
}

/** Half a character would be stored as another one, and so be found changed, and written, in every pass. */
function cut(message: string): string {
  const wellFormed = message.toWellFormed();
  return wellFormed.length <= LONGEST_MESSAGE
    ? wellFormed
    : `${wellFormed.slice(0, LONGEST_MESSAGE - 1).toWellFormed()}…`;
}

/** The condition of a type, if present. */
export const findCondition = <C extends { readonly type: string }>(
  conditions: readonly C[] | undefined,
  type: string,
): C | undefined => conditions?.find((condition) => condition.type === type);

/** True when the condition is present and `True`. */
export const isTrue = (
  conditions: readonly { readonly type: string; readonly status: string }[] | undefined,
  type: string,
): boolean => findCondition(conditions, type)?.status === "True";
