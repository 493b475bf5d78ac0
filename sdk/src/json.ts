/** Reading JSON of unknown shape without a schema library: the SDK's main path loads none. */

export type JsonRecord = { readonly [member: string]: unknown };

export const isRecord = (value: unknown): value is JsonRecord =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The member when it is a record, else an empty one. */
export function recordIn(value: unknown, member: string): JsonRecord {
  const found = isRecord(value) ? value[member] : undefined;
  return isRecord(found) ? found : {};
}

/** The member when it is text that is not empty. */
export function textIn(value: unknown, member: string): string | undefined {
  const found = isRecord(value) ? value[member] : undefined;
  return typeof found === "string" && found !== "" ? found : undefined;
}

/** The member when it is a number. */
export function numberIn(value: unknown, member: string): number | undefined {
  const found = isRecord(value) ? value[member] : undefined;
  return typeof found === "number" ? found : undefined;
}

/** The member when it is an RFC 3339 time. */
export function timeIn(value: unknown, member: string): Date | undefined {
  const text = textIn(value, member);
  const time = text === undefined ? Number.NaN : Date.parse(text);
  return Number.isNaN(time) ? undefined : new Date(time);
}
