import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxRequest, SandboxRequestResult } from "@agentworlds/crds";
import { at, digest, sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { openRequests } from "./judge.ts";
import { answer, answerEnd, type SessionEnd } from "./requests.ts";

const request = (id: string, verb: SandboxRequest["verb"] = "Touch"): SandboxRequest => ({
  id,
  verb,
  user: "ada",
  at: at(0),
});
const done: SandboxRequestResult = { outcome: "Succeeded", at: at(5) };
const earlier: SandboxRequestResult = { outcome: "Failed", code: "SnapshotFailed", at: at(1) };

test("an answer goes to the requests named and to no other, and the order stays", () => {
  const sandbox = sandboxOf({ status: { requests: [request("a"), request("b"), request("c")] } });
  assert.deepEqual(answer(sandbox, [{ id: "c" }, { id: "a" }], done), [
    { ...request("a"), result: done },
    request("b"),
    { ...request("c"), result: done },
  ]);
});

test("what was answered once keeps its first answer", () => {
  const sandbox = sandboxOf({ status: { requests: [{ ...request("a"), result: earlier }] } });
  assert.deepEqual(answer(sandbox, [{ id: "a" }], done), [{ ...request("a"), result: earlier }]);
});

test("a request that has left the list is answered nowhere", () => {
  assert.deepEqual(answer(sandboxOf({ status: { requests: [request("a")] } }), [{ id: "gone" }], done), [request("a")]);
});

test("a Sandbox without requests has none afterwards", () => {
  assert.deepEqual(answer(sandboxOf(), [{ id: "a" }], done), []);
});

test("open requests are those of one verb that nobody answered, oldest first", () => {
  const requests = [request("a"), request("b", "Close"), { ...request("c"), result: done }, request("d")];
  assert.deepEqual(
    openRequests(sandboxOf({ status: { requests } }), "Touch").map(({ id }) => id),
    ["a", "d"],
  );
  assert.deepEqual(openRequests(sandboxOf(), "Touch"), []);
});

const made = { version: 3, digest: digest("3") };
const nothing = { outcome: "Failed", code: "NothingSaved", message: "the session ended without a version", at: at(9) };
const ends: [
  name: string,
  end: Omit<SessionEnd, "at">,
  touch: object | undefined,
  snapshot: object,
  close: object | undefined,
][] = [
  [
    "hibernated with a version: a wake and a close stay open",
    { isClosed: false, published: made, last: made },
    undefined,
    { outcome: "Succeeded", ...made, at: at(9) },
    undefined,
  ],
  [
    "hibernated without a version: a snapshot was not made",
    { isClosed: false, published: undefined, last: made },
    undefined,
    nothing,
    undefined,
  ],
  [
    "closed with a version: a wake is refused",
    { isClosed: true, published: made, last: made },
    { outcome: "Refused", code: "Closed", message: "the session was closed", at: at(9) },
    { outcome: "Succeeded", ...made, at: at(9) },
    { outcome: "Succeeded", ...made, at: at(9) },
  ],
  [
    "closed without one of its own: the close names the last version",
    { isClosed: true, published: undefined, last: made },
    { outcome: "Refused", code: "Closed", message: "the session was closed", at: at(9) },
    nothing,
    { outcome: "Succeeded", ...made, at: at(9) },
  ],
  [
    "closed and never saved: the close says so",
    { isClosed: true, published: undefined, last: undefined },
    { outcome: "Refused", code: "Closed", message: "the session was closed", at: at(9) },
    nothing,
    { outcome: "Succeeded", message: "nothing of this session was saved", at: at(9) },
  ],
];
for (const [name, end, ...results] of ends) {
  test(`a session ${name}`, () => {
    const requests = [
      request("t"),
      request("s", "Snapshot"),
      request("c", "Close"),
      { ...request("old"), result: earlier },
    ];
    const answered = answerEnd(sandboxOf({ status: { requests } }), { ...end, at: at(9) });
    assert.deepEqual(
      answered.map(({ result }) => result),
      [...results, earlier],
    );
  });
}
