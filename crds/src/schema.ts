import * as z from "zod";
import { isQuantity } from "./quantity.ts";

/**
 * The words the three kinds are written in. Each word carries its bound, so that no field can be declared without one,
 * and each rule carries both of its forms: CEL for the API server, a predicate for `parse` in this process.
 */

/** One entry of `x-kubernetes-validations`. */
export interface CelRule {
  readonly rule: string;
  readonly message: string;
  /** Where the API server points, relative to the field the rule is on; `.ttlSeconds` for example. */
  readonly fieldPath?: string;
  readonly reason?: "FieldValueForbidden" | "FieldValueInvalid";
}

/** The keyword under which an OpenAPI schema carries its CEL rules. */
export const VALIDATIONS = "x-kubernetes-validations";

const isRuleList = (value: unknown): value is readonly CelRule[] => Array.isArray(value);

/** Adds rules that only the API server can judge, because they compare with the stored object. */
export function transition<T extends z.ZodType>(schema: T, ...rules: readonly CelRule[]): T {
  const present = schema.meta()?.[VALIDATIONS];
  return schema.meta({ [VALIDATIONS]: [...(isRuleList(present) ? present : []), ...rules] });
}

/** Adds one rule in both of its forms. `holds` sees the parsed value, defaults included, as the CEL rule does. */
export function rule<T extends z.ZodType>(schema: T, cel: CelRule, holds: (value: z.output<T>) => boolean): T {
  const path = cel.fieldPath === undefined ? [] : cel.fieldPath.split(".").filter((part) => part !== "");
  return transition(schema.refine(holds, { error: cel.message, path }), cel);
}

/** A string of 0 to `max` characters. */
export const text = (max: number) => z.string().max(max);

/** A string of 1 to `max` characters. */
export const word = (max: number) => z.string().min(1).max(max);

/**
 * A string that must match. The pattern is checked by a CEL rule and not by the `pattern` keyword, because the keyword's
 * refusal shows the expression and not the reason.
 */
export function matching(pattern: RegExp, options: { max: number; message: string }) {
  // RegExp.source writes / as \/, which a CEL reader need not see.
  const expression = pattern.source.replaceAll("\\/", "/");
  const cel = { rule: `self.matches(${celString(expression)})`, message: options.message };
  return rule(word(options.max), cel, (value) => pattern.test(value));
}

/** A CEL string literal of any text. */
export const celString = (value: string): string => `'${value.replace(/[\\']/g, (found) => `\\${found}`)}'`;

/** A whole number between two bounds, both included. */
export const integer = (min: number, max: number) => z.int().min(min).max(max);

/** Most a 32-bit field holds. */
export const INT32_MAX = 2_147_483_647;

/** A count or an ordinal: 0 … 2³¹−1. */
export const count = () => integer(0, INT32_MAX);

/** A number of bytes: 0 … 2⁵³−1, the most a JSON number carries exactly in JavaScript. */
export const bytes = () => integer(0, Number.MAX_SAFE_INTEGER);

/** An absolute time, RFC 3339 in UTC. */
export const time = () => z.iso.datetime();

const DAY_SECONDS = 86_400;

/** The longest any duration may be. */
export const MAX_DURATION_SECONDS = 30 * DAY_SECONDS;

/** A duration in whole seconds, at most 30 days. */
export const seconds = (min: 0 | 1 = 1) => integer(min, MAX_DURATION_SECONDS);

/** `sha256:<64 hex>`. */
export const digest = () => z.templateLiteral(["sha256:", z.string().regex(/^[0-9a-f]{64}$/)]).meta({ maxLength: 71 });

/** A Kubernetes quantity above zero: `500m`, `2Gi`, or a plain whole number. */
export const quantity = () =>
  rule(
    z.union([integer(1, Number.MAX_SAFE_INTEGER), word(32)]).meta({ "x-kubernetes-int-or-string": true }),
    {
      rule: "type(self) == int ? int(self) > 0 : isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",
      message: "must be a Kubernetes quantity above zero, such as 500m, 2 or 2Gi",
    },
    (value) => isQuantity(value),
  );

/** The name of a World, Sandbox or Runtime in a reference. */
export const objectName = () =>
  matching(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/, {
    max: 63,
    message:
      "must be the name of an object: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
  });

/** A list whose items are told apart by one of their fields; server-side apply merges by it, duplicates are refused. */
export const listByKey = <T extends z.ZodType>(item: T, options: { max: number; key: string }) =>
  z
    .array(item)
    .max(options.max)
    .meta({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [options.key] });

/** A list that is always written whole. */
export const list = <T extends z.ZodType>(item: T, max: number) =>
  z.array(item).max(max).meta({ "x-kubernetes-list-type": "atomic" });

/** A list of distinct plain values; the API server refuses duplicates. */
export const setOf = <T extends z.ZodType>(item: T, max: number) =>
  z
    .array(item)
    .max(max)
    .refine((values) => new Set(values).size === values.length, { error: "must not name a value twice" })
    .meta({ "x-kubernetes-list-type": "set" });

/** CEL: how many of these members of `self` are set is exactly one. Further members join the list. */
export const exactlyOne = (...members: readonly string[]): string =>
  `[${members.map((member) => `has(self.${member})`).join(", ")}].exists_one(isSet, isSet)`;

/** True when exactly one of the members is set. The predicate beside `exactlyOne`. */
export const hasExactlyOne = (value: object, ...members: readonly string[]): boolean =>
  members.filter((member) => Object.hasOwn(value, member)).length === 1;
