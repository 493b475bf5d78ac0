/** Several causes at the same moment: one ending, and its reason is the first of docs/architecture.md's order. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ObservedCompute } from "../runtime/contract.ts";
import { at, sandboxOf, T0 } from "../runtime/test-objects.test-kit.ts";
import { type EndReason, judgeSession } from "./judge.ts";

const RUNNING: ObservedCompute = { state: "Running", startedAt: at(0) };
const EXITED: ObservedCompute = { state: "Exited", exitCode: 0, outOfMemory: false, finishedAt: at(50) };

/** What can cause an ending, the strongest first. */
const ORDER: readonly EndReason[] = [
  "SandboxDeleted",
  "CloseRequested",
  "WorldDeleted",
  "ModeHibernated",
  "OutOfMemory",
  "ContainerExited",
  "RuntimeDeleted",
  "RuntimeCordoned",
  "LifetimePassed",
  "DeadlinePassed",
];
const NOW = 1_000;

function judge(causes: ReadonlySet<EndReason>, now = NOW) {
  const has = (reason: EndReason) => causes.has(reason);
  const dead = { ...EXITED, outOfMemory: has("OutOfMemory") };
  const drain = has("RuntimeDeleted") ? ("RuntimeDeleted" as const) : ("RuntimeCordoned" as const);
  return judgeSession({
    sandbox: sandboxOf({
      metadata: has("SandboxDeleted") ? { deletionTimestamp: at(NOW), finalizers: ["agentworlds.dev/sandbox"] } : {},
      spec: { mode: has("ModeHibernated") ? "Hibernated" : "Running" },
      status: {
        boot: 1,
        observedMode: "Running",
        compute: { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1, provisionedAt: at(0) },
        expiresAt: at(has("DeadlinePassed") ? NOW : NOW + 1),
        lifetimeEndsAt: at(has("LifetimePassed") ? NOW : NOW + 1),
        requests: has("CloseRequested") ? [{ id: "end", verb: "Close", user: "ada", at: at(NOW) }] : [],
      },
    }),
    observed: has("OutOfMemory") || has("ContainerExited") ? dead : RUNNING,
    worldEnding: has("WorldDeleted"),
    drain: has("RuntimeDeleted") || has("RuntimeCordoned") ? { reason: drain, at: T0 + NOW * 1000 } : undefined,
    savesNothing: false,
    now: T0 + now * 1000,
  });
}

test("every set of causes ends the session once, by the strongest of them, and never drops its work", () => {
  for (let chosen = 0; chosen < 2 ** ORDER.length; chosen++) {
    const causes = new Set(ORDER.filter((_, index) => chosen & (1 << index)));
    const [reason] = ORDER.filter((cause) => causes.has(cause));
    const goal = judge(causes);
    if (reason === undefined) {
      assert.deepEqual(goal, { kind: "run" });
      continue;
    }
    const verb = reason === "SandboxDeleted" || reason === "CloseRequested" ? "Close" : "Hibernate";
    assert.deepEqual(goal, { kind: "end", verb, reason, discard: false }, [...causes].join(", "));
  }
});

test("a cordon ends nothing before its time, and a deletion of the Runtime does at once", () => {
  assert.deepEqual(judge(new Set(["RuntimeCordoned"]), NOW - 1), { kind: "run" });
  assert.equal(judge(new Set(["RuntimeCordoned"])).kind, "end");
  assert.equal(judge(new Set(["RuntimeDeleted"])).kind, "end");
});
