import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxRequest, SandboxRequestResult } from "@agentworlds/crds";
import { at, sandboxOf } from "../runtime/test-objects.ts";
import { openRequests } from "./judge.ts";
import { answer } from "./requests.ts";

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
