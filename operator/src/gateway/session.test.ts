import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox } from "@agentworlds/crds";
import { type SessionState, sessionState } from "../runtime/session-state.ts";
import { notRunning } from "./session.ts";

const at = "2031-01-01T00:00:00.000Z";
const compute = { runtime: "r", host: "h", id: "aw-u-1", boot: 1, provisionedAt: at };
const ready = { boot: 1, compute, expiresAt: at, lifetimeEndsAt: at };
const operation = (verb: "Hibernate" | "Snapshot" | "Close") =>
  ({ id: "o", verb, reason: "r", stage: "Frozen", since: at, attempts: 1 }) as const;

function sandbox(status: Partial<Sandbox["status"]>, change: { mode?: "Hibernated"; deleted?: true } = {}): Sandbox {
  return {
    apiVersion: "agentworlds.dev/v1alpha1",
    kind: "Sandbox",
    metadata: { name: "box", uid: "u", resourceVersion: "1", ...(change.deleted ? { deletionTimestamp: at } : {}) },
    spec: { image: "i", mode: change.mode ?? "Running", closePolicy: "Snapshot", rescuePolicy: "Wait" },
    status: { observedGeneration: 1, ...status },
  };
}

const states: [name: string, given: Sandbox, want: SessionState["kind"]][] = [
  ["a new one is starting", sandbox({}), "Starting"],
  ["one with compute and no deadline yet is starting", sandbox({ boot: 1, compute }), "Starting"],
  ["one with compute and a deadline runs", sandbox(ready), "Running"],
  ["one whose deadline has passed runs until the intent to hibernate is written", sandbox(ready), "Running"],
  ["a snapshot does not end a session", sandbox({ ...ready, operation: operation("Snapshot") }), "Running"],
  [
    "one that ends in hibernation is hibernating",
    sandbox({ ...ready, operation: operation("Hibernate") }),
    "Hibernating",
  ],
  ["one that is closed down is closing", sandbox({ ...ready, operation: operation("Close") }), "Closing"],
  ["a deleted one is closing", sandbox(ready, { deleted: true }), "Closing"],
  [
    "one with a stranger's container is let nobody into",
    sandbox({ ...ready, compute: { ...compute, id: "aw-v-1" } }),
    "ForeignCompute",
  ],
  [
    "one with a container of another boot, too",
    sandbox({ ...ready, compute: { ...compute, boot: 2 } }),
    "ForeignCompute",
  ],
  [
    "one with a stranger's container that is about to hibernate, too",
    sandbox({ ...ready, compute: { ...compute, id: "aw-v-1" }, operation: operation("Hibernate") }),
    "ForeignCompute",
  ],
  ["one that booted before and has no compute is hibernated", sandbox({ boot: 2 }), "Hibernated"],
  ["one that was made to sleep from the start is hibernated", sandbox({}, { mode: "Hibernated" }), "Hibernated"],
  ["a closed one is closed, whatever else is left", sandbox({ ...ready, closed: { at } }, { deleted: true }), "Closed"],
];
for (const [name, given, want] of states) test(name, () => assert.equal(sessionState(given).kind, want));

// After ComputeLost a command was told "hibernated: touch it to wake it", as if the work were there.
test("a session whose container is gone says so, and since which version its work is lost", () => {
  const message = "the container is gone; work since v2 is lost; touch the Sandbox to boot from the World's head";
  const condition = { type: "ComputeLost", status: "True", reason: "ContainerGone", message } as const;
  const given = sandbox({ boot: 2, conditions: [{ ...condition, lastTransitionTime: at, observedGeneration: 1 }] });
  const failure = notRunning(given, { kind: "Hibernated" });
  assert.equal(failure.code, "ComputeLost");
  assert.match(failure.message, /work since v2 is lost/);
  assert.equal(notRunning(sandbox({ boot: 2 }), { kind: "Hibernated" }).code, "Hibernated");
});

test("every refusal says what to do", () => {
  for (const [, given] of states) {
    const state = sessionState(given);
    if (state.kind === "Running") continue;
    const failure = notRunning(given, state);
    assert.equal(failure.status, state.kind === "Closed" ? 410 : 409);
    assert.ok(failure.remediation !== undefined && failure.remediation.length > 10);
  }
});
