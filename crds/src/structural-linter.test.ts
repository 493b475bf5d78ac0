import assert from "node:assert/strict";
import { test } from "node:test";
import { objectSchema } from "./custom-resource.ts";
import { DEFINITIONS } from "./generated-files.ts";
import type { SchemaNode } from "./openapi.ts";
import { lintSchema } from "./structural-linter.ts";

const object = (properties: SchemaNode, rest: SchemaNode = {}): SchemaNode => ({
  description: "An object.",
  type: "object",
  properties,
  ...rest,
});
const text: SchemaNode = { description: "A text.", type: "string", maxLength: 5 };
const number: SchemaNode = { description: "A number.", type: "integer", format: "int32", minimum: 0, maximum: 9 };
const rule = (expression: string, rest: SchemaNode = {}): SchemaNode => ({
  "x-kubernetes-validations": [{ rule: expression, message: "must be so", ...rest }],
});

/** A schema with one field `spec.planted`. */
const planted = (node: SchemaNode): SchemaNode =>
  object({ spec: object({ planted: { description: "Planted.", ...node } }) });

const sound: [what: string, node: SchemaNode][] = [
  ["a bounded string", text],
  ["an enum, which is bounded by its values", { type: "string", enum: ["A"] }],
  ["a time", object({ expiresAt: { description: "When.", type: "string", format: "date-time" } })],
  ["a bounded list", { type: "array", maxItems: 3, items: text, "x-kubernetes-list-type": "atomic" }],
  ["a bounded map", { type: "object", maxProperties: 3, additionalProperties: text }],
  [
    "an int-or-string",
    { anyOf: [{ type: "integer" }, { type: "string" }], maxLength: 5, "x-kubernetes-int-or-string": true },
  ],
  [
    "a list by key",
    {
      type: "array",
      maxItems: 3,
      items: object({ name: text }, { required: ["name"] }),
      "x-kubernetes-list-type": "map",
      "x-kubernetes-list-map-keys": ["name"],
    },
  ],
  ["a nested default that is spelled out", { ...object({ a: { ...number, default: 1 } }), default: { a: 1 } }],
  [
    "a transition rule above an optional field",
    object(
      {
        inner: {
          ...object({ a: text }, rule("has(self.a) == has(oldSelf.a)", { fieldPath: ".a" })),
          description: "Required, so that its rule always runs.",
        },
      },
      { required: ["inner"] },
    ),
  ],
];

for (const [what, node] of sound) {
  test(`the linter lets pass: ${what}`, () => assert.deepEqual(lintSchema(planted(node)), []));
}

const defects: [what: string, node: SchemaNode, message: RegExp][] = [
  ["a reference", { type: "object", $ref: "#/x" }, /\$ref is not allowed/],
  ["a union of objects", { type: "object", oneOf: [object({})] }, /oneOf is not allowed/],
  ["a nullable field", { ...text, nullable: true }, /nullable is not allowed/],
  ["a node without a type", {}, /type must be one of/],
  ["a fraction", { type: "number" }, /type must be one of/],
  ["a boolean", { type: "boolean" }, /use an enum/],
  ["anyOf beside a type", { ...text, anyOf: [] }, /anyOf is allowed for an int-or-string only/],
  [
    "an int-or-string with bounds in its branches",
    { anyOf: [{ type: "integer", minimum: 1 }, { type: "string" }], maxLength: 5, "x-kubernetes-int-or-string": true },
    /must have exactly anyOf/,
  ],
  ["a string without an end", { type: "string" }, /must have maxLength/],
  [
    "an int-or-string without an end",
    { anyOf: [{ type: "integer" }, { type: "string" }], "x-kubernetes-int-or-string": true },
    /must have maxLength/,
  ],
  ["a list without an end", { type: "array", items: text, "x-kubernetes-list-type": "atomic" }, /must have maxItems/],
  [
    "a list of anything",
    { type: "array", maxItems: 2, "x-kubernetes-list-type": "atomic" },
    /must say what its items are/,
  ],
  ["a list of unknown type", { type: "array", maxItems: 2, items: text }, /must have x-kubernetes-list-type/],
  [
    "a keyed list without keys",
    { type: "array", maxItems: 2, items: object({}), "x-kubernetes-list-type": "map" },
    /must name its keys/,
  ],
  [
    "a keyed list with an optional key",
    {
      type: "array",
      maxItems: 2,
      items: object({ a: text }),
      "x-kubernetes-list-type": "map",
      "x-kubernetes-list-map-keys": ["a"],
    },
    /the key a .* must be required/,
  ],
  ["a map without an end", { type: "object", additionalProperties: text }, /must have maxProperties/],
  [
    "a closed object, as strictObject makes it",
    { ...object({ a: text }), additionalProperties: false },
    /exclude each other/,
  ],
  ["an unbounded integer", { type: "integer", format: "int64" }, /must have minimum and maximum/],
  ["an integer without a format", { type: "integer", minimum: 0, maximum: 1 }, /must have format/],
  ["a look-ahead in a pattern", { ...text, pattern: "^(?=a)a$" }, /look-around/],
  ["a look-behind in a rule", { ...text, ...rule("self.matches('(?<!a)b')") }, /look-around/],
  ["a back reference", { ...text, pattern: "^(a)\\1$" }, /back references/],
  ["a rule without a message", { ...text, "x-kubernetes-validations": [{ rule: "true" }] }, /must have a message/],
  ["a message of two lines", { ...text, ...rule("true", { message: "a\nb" }) }, /one line/],
  [
    "a fieldPath into nothing",
    { ...object({ a: text }), ...rule("true", { fieldPath: ".b" }) },
    /points at no property/,
  ],
  ["a rule of unbounded cost", { ...object({ a: text }), ...rule("self.?a == oldSelf.?a") }, /unbounded/],
  [
    "an immutable optional field that can be set later",
    object({ a: { ...text, ...rule("self == oldSelf") } }),
    /misses set and removed/,
  ],
  [
    "a nested default that nobody sees",
    object({ a: object({ b: { ...number, default: 1 } }) }),
    /a must have a default that spells out/,
  ],
  [
    "a nested default that forgets a member",
    object({ a: { ...object({ b: { ...number, default: 1 }, c: { ...number, default: 2 } }), default: { b: 1 } } }),
    /spell out c/,
  ],
  [
    "a nested default that says otherwise",
    object({ a: { ...object({ b: { ...number, default: 1 } }), default: { b: 2 } } }),
    /spell out b/,
  ],
  [
    "a required field with a default",
    object({ a: { ...number, default: 1 } }, { required: ["a"] }),
    /cannot be required/,
  ],
  ["a field without a description", object({ a: { type: "string", maxLength: 5 } }), /a must have a description/],
  [
    "a time named like a duration",
    object({ expires: { description: "When.", type: "string", format: "date-time" } }),
    /must end in At/,
  ],
  ["a text named like a time", object({ expiresAt: text }), /is no time/],
  ["a duration without its unit", object({ drainTimeout: number }), /in seconds and says so/],
];

for (const [what, node, message] of defects) {
  test(`the linter finds: ${what}`, () => {
    const findings = lintSchema(planted(node));
    assert.ok(
      findings.some((finding) => finding.path.startsWith("spec.planted") && message.test(finding.message)),
      JSON.stringify(findings),
    );
  });
}

test("a defect is found at any depth, below lists and maps too", () => {
  const deep = object({
    a: {
      description: "A.",
      type: "array",
      maxItems: 1,
      "x-kubernetes-list-type": "atomic",
      items: object({
        b: { description: "B.", type: "object", maxProperties: 1, additionalProperties: { type: "string" } },
      }),
    },
  });
  assert.deepEqual(
    lintSchema(planted(deep)).map(({ path }) => path),
    ["spec.planted.a[].b{}"],
  );
});

for (const definition of DEFINITIONS) {
  test(`the schema of ${definition.kind} has no defect`, () =>
    assert.deepEqual(lintSchema(objectSchema(definition)), []));
}
