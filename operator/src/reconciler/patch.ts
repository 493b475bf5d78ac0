/** The smallest merge patch between two JSON values, so that an unchanged status is never written. */
import { isDeepStrictEqual } from "node:util";

type JsonObject = { readonly [key: string]: unknown };

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * The JSON merge patch (RFC 7386) that turns `before` into `after`, or undefined when they are equal.
 * Lists are replaced whole; a field that is absent or undefined in `after` is removed with `null`.
 */
export function mergePatchBetween(before: JsonObject, after: JsonObject): Record<string, unknown> | undefined {
  const patch: Record<string, unknown> = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const from = before[key];
    const to = after[key];
    if (isDeepStrictEqual(from, to)) continue;
    if (to === undefined) {
      if (from !== undefined) patch[key] = null;
    } else if (isObject(from) && isObject(to)) {
      const inner = mergePatchBetween(from, to);
      if (inner) patch[key] = inner;
    } else {
      patch[key] = to;
    }
  }
  return Object.keys(patch).length > 0 ? patch : undefined;
}
