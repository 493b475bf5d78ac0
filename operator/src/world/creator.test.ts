import assert from "node:assert/strict";
import { test } from "node:test";
import { CREATED_BY as STAMPED_BY_ADMISSION } from "@agentworlds/crds";
import { CREATED_BY, creatorOf, UNKNOWN_CREATOR } from "./creator.ts";

const stamped = (value: string) => ({ metadata: { annotations: { [CREATED_BY]: value } } });

test("the annotation read here is the one that admission stamps", () => {
  assert.equal(CREATED_BY, STAMPED_BY_ADMISSION);
});

const readable: [name: string, stamp: object, want: object][] = [
  ["a person has no agent", { user: "ada" }, { user: "ada" }],
  [
    "an agent and its conversation are kept",
    { user: "ada", agent: "coder", conversation: "c-1" },
    { user: "ada", agent: "coder", conversation: "c-1" },
  ],
  ["an empty agent is none", { user: "ada", agent: "", conversation: "" }, { user: "ada" }],
  ["what is not part of a creator is dropped", { user: "ada", token: "secret", groups: ["x"] }, { user: "ada" }],
];
for (const [name, stamp, want] of readable) {
  test(name, () => assert.deepEqual(creatorOf(stamped(JSON.stringify(stamp))), want));
}

const unreadable = ["", "ada", "{", "null", "[]", "42", '"ada"', "{}", '{"user":42}', '{"user":"ada","agent":7}'];
for (const stamp of unreadable) {
  test(`the unreadable stamp ${JSON.stringify(stamp)} names nobody, and throws nothing`, () => {
    assert.deepEqual(creatorOf(stamped(stamp)), UNKNOWN_CREATOR);
  });
}

test("an object from before the admission policies names nobody", () => {
  assert.deepEqual(creatorOf({ metadata: {} }), UNKNOWN_CREATOR);
  assert.deepEqual(creatorOf({ metadata: { annotations: { other: "x" } } }), UNKNOWN_CREATOR);
});
