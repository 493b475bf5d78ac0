import assert from "node:assert/strict";
import { test } from "node:test";
import type { LostWork, WorldRescue } from "@agentworlds/crds";
import { printed } from "./print.ts";

const sandbox = { name: "one", uid: "uid" };
const where = { sandbox, runtime: "local", host: "a", computeId: "aw-uid-1", since: "2026-01-01T00:00:00Z" };
const rescue: WorldRescue = {
  ...where,
  operation: "op-1",
  reason: "SnapshotFailed",
  message: "no registry",
  expiresAt: "2026-01-02T00:00:00Z",
  attempts: 3,
  lastError: "refused\u001b[31m\nby the registry",
};
const lost: LostWork = {
  ...where,
  operation: "op-0",
  cause: "Expired",
  message: "its time was over",
  at: "2026-01-03T00:00:00Z",
};

test("nothing kept and nothing lost is said in a sentence", () => {
  assert.equal(printed({ rescues: [], lostWork: [] }), "No rescues: everything is published.\n");
  assert.equal(
    printed({ rescues: [], lostWork: [{ ...lost, discardedBy: "ada" }] }),
    "No rescues: everything is published.\n",
  );
});

test("a rescue is one line, and what a server said is no terminal control", () => {
  const [head, line, ...rest] = printed({ rescues: [rescue], lostWork: [] }).split("\n");
  assert.match(head ?? "", /^OPERATION {3}SANDBOX {3}WHERE +SINCE +UNTIL +TRIES {3}WHY$/);
  assert.match(
    line ?? "",
    /^op-1 +one +local\/a +2026-01-01T00:00:00Z +2026-01-02T00:00:00Z +3 +refused \[31m by the registry$/,
  );
  assert.deepEqual(rest, [""]);
});

test("lost work stays in sight until somebody takes note of it", () => {
  assert.match(printed({ rescues: [], lostWork: [lost] }), /^LOST op-0 of Sandbox one at .+: its time was over/);
});
