import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { mergePatchBetween } from "./patch.ts";

type JsonObject = Record<string, unknown>;

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** RFC 7386 §2, as it is written there. */
function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const result: JsonObject = isObject(target) ? { ...target } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete result[name];
    else result[name] = mergePatch(result[name], value);
  }
  return result;
}

/** What travels: members without a value are gone. */
const asJson = (value: JsonObject): JsonObject => JSON.parse(JSON.stringify(value));

const cases: [name: string, before: JsonObject, after: JsonObject, patch: JsonObject | undefined][] = [
  ["equal values need no patch", { a: 1, b: { c: [1] } }, { b: { c: [1] }, a: 1 }, undefined],
  ["a changed field is named alone", { a: 1, b: 2 }, { a: 1, b: 3 }, { b: 3 }],
  ["a field that went is removed", { a: 1, b: 2 }, { a: 1 }, { b: null }],
  ["a field set to undefined is removed", { a: 1 }, { a: undefined }, { a: null }],
  ["undefined and absent are the same", { a: undefined }, {}, undefined],
  ["absent and undefined are the same", {}, { a: undefined }, undefined],
  ["only the changed part of a record is named", { a: { x: 1, y: 2 } }, { a: { x: 1, y: 3 } }, { a: { y: 3 } }],
  ["a list is replaced whole", { a: [1, 2] }, { a: [1] }, { a: [1] }],
  ["a record that becomes empty loses its fields and stays", { a: { x: 1 } }, { a: {} }, { a: { x: null } }],
  ["a new empty record is written", {}, { a: {} }, { a: {} }],
  ["a record may become a list", { a: { x: 1 } }, { a: [1] }, { a: [1] }],
  ["a list may become a record", { a: [1] }, { a: { x: 1 } }, { a: { x: 1 } }],
  ["falsy values are values", { a: 1, b: 1, c: 1 }, { a: 0, b: "", c: false }, { a: 0, b: "", c: false }],
];
for (const [name, before, after, patch] of cases) {
  test(name, () => assert.deepEqual(mergePatchBetween(before, after), patch));
}

const key = fc.constantFrom("a", "b", "c", "d");
const { value: object } = fc.letrec<{ value: JsonObject; member: unknown }>((tie) => ({
  value: fc.dictionary(key, tie("member"), { maxKeys: 4, noNullPrototype: true }),
  member: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom<unknown>(0, 1, "", "x", true, false, undefined),
    fc.array(fc.oneof(fc.nat(2), fc.record({ x: fc.nat(1) }, { noNullPrototype: true })), { maxLength: 3 }),
    tie("value"),
  ),
}));

test("for any two states: the patch, applied by RFC 7386 to the first, gives the second without its undefined members", () => {
  fc.assert(
    fc.property(object, object, (before, after) => {
      const patch = mergePatchBetween(before, after) ?? {};
      assert.deepEqual(mergePatch(asJson(before), asJson(patch)), asJson(after));
    }),
    { numRuns: 1_000 },
  );
});

test("for any two states: once applied, there is nothing left to write", () => {
  fc.assert(
    fc.property(object, object, (before, after) => {
      const patched = mergePatch(asJson(before), asJson(mergePatchBetween(before, after) ?? {}));
      assert.ok(isObject(patched));
      assert.equal(mergePatchBetween(patched, after), undefined);
    }),
    { numRuns: 1_000 },
  );
});

test("for any state: neither side is changed by comparing", () => {
  fc.assert(
    fc.property(object, object, (before, after) => {
      const copies = structuredClone([before, after]);
      mergePatchBetween(before, after);
      assert.deepEqual([before, after], copies);
    }),
  );
});
