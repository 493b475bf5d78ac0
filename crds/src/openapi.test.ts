import assert from "node:assert/strict";
import { test } from "node:test";
import * as z from "zod";
import { structuralSchema } from "./openapi.ts";
import { digest, integer, list, quantity, rule, text, time, transition } from "./schema.ts";

const propertyOf = (schema: z.ZodType): unknown => {
  const { properties } = structuralSchema(z.object({ field: schema }));
  return z.looseObject({ field: z.unknown() }).parse(properties).field;
};

const cases: [promise: string, schema: z.ZodType, want: unknown][] = [
  ["a string has its bound", text(5), { type: "string", maxLength: 5 }],
  ["a small integer is an int32", integer(0, 9), { type: "integer", format: "int32", minimum: 0, maximum: 9 }],
  [
    "a large integer is an int64 with the bound of JavaScript",
    integer(-1, Number.MAX_SAFE_INTEGER),
    { type: "integer", format: "int64", minimum: -1, maximum: 9_007_199_254_740_991 },
  ],
  ["a time has its format and not zod's long pattern", time(), { type: "string", format: "date-time" }],
  ["a description comes first", text(5).describe("Text."), { description: "Text.", type: "string", maxLength: 5 }],
  ["an optional field is not required", text(5).exactOptional(), { type: "string", maxLength: 5 }],
  [
    "a default is written",
    integer(0, 9).default(3),
    { type: "integer", format: "int32", default: 3, minimum: 0, maximum: 9 },
  ],
  [
    "a list has its type",
    list(text(5), 2),
    { type: "array", maxItems: 2, items: { type: "string", maxLength: 5 }, "x-kubernetes-list-type": "atomic" },
  ],
];

for (const [promise, schema, want] of cases) test(promise, () => assert.deepEqual(propertyOf(schema), want));

test("a digest is bounded by its length and its pattern", () => {
  const node = z.looseObject({ maxLength: z.number(), pattern: z.string() }).parse(propertyOf(digest()));
  assert.equal(node.maxLength, 71);
  const pattern = new RegExp(node.pattern);
  assert.ok(pattern.test(`sha256:${"0".repeat(64)}`));
  assert.ok(!pattern.test(`sha256:${"0".repeat(63)}`));
});

test("a quantity is the one int-or-string fragment that the API server takes", () => {
  const node = z.looseObject({ anyOf: z.unknown() }).parse(propertyOf(quantity()));
  assert.deepEqual(node.anyOf, [{ type: "integer" }, { type: "string" }]);
  assert.ok(!("type" in node));
});

test("rules add up, in the order they were added", () => {
  const once = rule(z.object({ a: text(5).exactOptional() }), { rule: "one", message: "first" }, () => true);
  const twice = transition(once, { rule: "two", message: "second" });
  assert.deepEqual(structuralSchema(twice)["x-kubernetes-validations"], [
    { rule: "one", message: "first" },
    { rule: "two", message: "second" },
  ]);
});

test("a rule's predicate speaks with the rule's message, at the rule's path", () => {
  const schema = rule(z.object({ a: text(5) }), { rule: "x", message: "must be so", fieldPath: ".a" }, () => false);
  assert.deepEqual(
    schema.safeParse({ a: "" }).error?.issues.map(({ path, message }) => ({ path, message })),
    [{ path: ["a"], message: "must be so" }],
  );
});

test("what a structural schema cannot say throws while generating", () => {
  for (const schema of [z.date(), z.bigint(), z.map(z.string(), z.string())])
    assert.throws(() => structuralSchema(z.object({ schema })));
});
