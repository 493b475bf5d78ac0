/** The words of the stamp. That the API server's policies give the same bytes is shown on a real one (test/integration). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { causedByUser, creatorStamp } from "./creator-stamp.ts";
import { LIMITS } from "./object.ts";

const ACCOUNT = "system:serviceaccount:ci:runner";
const byAgent = (agent: unknown) => ({ spec: { agent } });

for (const [who, user, object, stamp] of [
  ["a person", "alice", { spec: {} }, '{"user":"alice"}'],
  ["a person through an agent", "alice", byAgent({ id: "claude" }), '{"user":"alice","agent":"claude"}'],
  [
    "an agent in a conversation",
    "alice",
    byAgent({ id: "claude", conversation: "c-1" }),
    '{"user":"alice","agent":"claude","conversation":"c-1"}',
  ],
  ["a conversation of nobody", "alice", byAgent({ conversation: "c" }), '{"user":"alice","conversation":"c"}'],
  ["a ServiceAccount, which is an agent", ACCOUNT, {}, `{"user":"${ACCOUNT}","agent":"serviceaccount:ci:runner"}`],
  [
    "a ServiceAccount that states its agent",
    ACCOUNT,
    byAgent({ id: "claude" }),
    `{"user":"${ACCOUNT}","agent":"claude"}`,
  ],
  ["a user who only sounds like one", "system:serviceaccounts", {}, '{"user":"system:serviceaccounts"}'],
  ["an agent that is no object", "alice", byAgent("claude"), '{"user":"alice"}'],
  ["an agent that is a list", "alice", byAgent([{ id: "claude" }]), '{"user":"alice"}'],
  ["an agent that is null", ACCOUNT, byAgent(null), `{"user":"${ACCOUNT}","agent":"serviceaccount:ci:runner"}`],
  ["an id that is a number", "alice", byAgent({ id: 7 }), '{"user":"alice"}'],
  ["an id of nothing", ACCOUNT, byAgent({ id: "" }), `{"user":"${ACCOUNT}"}`],
  ["no spec at all", "alice", {}, '{"user":"alice"}'],
  ["a spec that is text", "alice", { spec: "agent" }, '{"user":"alice"}'],
  ["no object at all", "alice", null, '{"user":"alice"}'],
  ["an id that every object inherits", "alice", { spec: { agent: Object.create({ id: "x" }) } }, '{"user":"alice"}'],
  ["a name that would break out", 'm"a\\","agent":"x', {}, '{"user":"m\\"a\\\\\\",\\"agent\\":\\"x"}'],
  ["control characters", "tab\tbed\n\u0000\u001f\u007f", {}, '{"user":"tab\ufffdbed\ufffd\ufffd\ufffd\u007f"}'],
  ["names beyond ASCII", "zoë 🐝 \u2028", {}, '{"user":"zoë 🐝 \u2028"}'],
] as const) {
  test(`${who} is stamped ${stamp}`, () => {
    assert.equal(creatorStamp(user, object), stamp);
    assert.doesNotThrow(() => JSON.parse(stamp));
  });
}

for (const [who, user, caused] of [
  ["a person", "alice", { user: "alice" }],
  ["a ServiceAccount", ACCOUNT, { user: ACCOUNT, agent: "serviceaccount:ci:runner" }],
  ["a user who only sounds like one", "system:serviceaccounts", { user: "system:serviceaccounts" }],
  ["a name in the middle", `x${ACCOUNT}`, { user: `x${ACCOUNT}` }],
] as const) {
  test(`of ${who} who asks for something is kept what the stamp would say`, () => {
    assert.deepEqual(causedByUser(user), caused);
    assert.deepEqual(causedByUser(user), JSON.parse(creatorStamp(user, {})));
  });
}

test("a name beyond the limit of status is cut, and shows it", () => {
  const { user, agent } = causedByUser(ACCOUNT + "x".repeat(600));
  assert.equal(user.length, LIMITS.user);
  assert.ok(user.endsWith("…"));
  assert.equal(agent?.length, LIMITS.agent);
});
