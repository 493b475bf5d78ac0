import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Condition, Sandbox, SandboxStatus, World } from "@agentworlds/crds";
import { HEALED_BY_SOMEBODY, judgeSandbox, judgeWorld } from "./readiness.ts";

const metadata = { name: "a", namespace: "n", uid: "u", resourceVersion: "1", generation: 2 };

function sandbox(status: Partial<SandboxStatus>, more: Partial<Sandbox["metadata"]> = {}): Sandbox {
  return {
    apiVersion: "agentworlds.dev/v1alpha1",
    kind: "Sandbox",
    metadata: { ...metadata, ...more },
    spec: { mode: "Running", closePolicy: "Snapshot", rescuePolicy: "Wait", world: { name: "w" } },
    status: { observedGeneration: 2, ...status },
  };
}

const condition = (type: string, value: Condition["status"], reason: string, observedGeneration = 2): Condition => ({
  type,
  status: value,
  reason,
  message: `because of ${reason}`,
  lastTransitionTime: "2026-01-01T00:00:00Z",
  observedGeneration,
});

const compute = { runtime: "r", host: "h", id: "c", boot: 1 };
const running = { compute, expiresAt: "2026-01-01T01:00:00Z", conditions: [condition("Ready", "True", "Running")] };
const hibernated = [condition("Hibernated", "True", "DeadlinePassed")];
const hibernate = {
  id: "o",
  verb: "Hibernate",
  reason: "DeadlinePassed",
  stage: "Frozen",
  since: "",
  attempts: 0,
} as const;
const touch = { id: "wake-1", verb: "Touch", user: "u", at: "2026-01-01T00:00:00Z" } as const;
const result = { at: "2026-01-01T00:00:01Z" };

const cases: [promise: string, state: Sandbox, wake: string | undefined, kind: string, reason?: string][] = [
  ["Ready with compute and a deadline is Ready", sandbox(running), undefined, "Ready"],
  [
    "a snapshot under way does not disturb",
    sandbox({ ...running, operation: { ...hibernate, verb: "Snapshot" } }),
    undefined,
    "Ready",
  ],
  ["Ready that is about to hibernate is not", sandbox({ ...running, operation: hibernate }), undefined, "Waiting"],
  [
    "Ready said of an older spec is not",
    sandbox({ ...running, conditions: [condition("Ready", "True", "Running", 1)] }),
    undefined,
    "Waiting",
  ],
  [
    "Ready without a deadline is not yet: the gateway refuses work",
    sandbox({ conditions: running.conditions, compute }),
    undefined,
    "Waiting",
  ],
  ["nobody has looked at it yet", sandbox({}), undefined, "Waiting", "Pending"],
  [
    "the queue's reason is told",
    sandbox({ conditions: [condition("Ready", "False", "Waking"), condition("Admitted", "False", "WorldHeld")] }),
    undefined,
    "Waiting",
    "WorldHeld",
  ],
  [
    "Stalled ends the wait",
    sandbox({ conditions: [condition("Stalled", "True", "CapabilityMissing")] }),
    undefined,
    "Failed",
    "CapabilityMissing",
  ],
  [
    "Stalled over an older spec does not",
    sandbox({ conditions: [condition("Stalled", "True", "CapabilityMissing", 1)] }),
    undefined,
    "Waiting",
  ],
  ["a closed one is the end", sandbox({ closed: { at: "" } }), undefined, "Failed", "Closed"],
  [
    "a deleted one is the end",
    sandbox(running, { deletionTimestamp: "2026-01-01T00:00:00Z" }),
    undefined,
    "Failed",
    "Deleting",
  ],
  [
    "a lost container is told",
    sandbox({ conditions: [condition("ComputeLost", "True", "ContainerGone")] }),
    undefined,
    "Failed",
    "ContainerGone",
  ],
  [
    "a snapshot that fails while the container is kept is waited for",
    sandbox({ compute, operation: hibernate, conditions: [condition("SnapshotFailed", "True", "PublishFailed")] }),
    undefined,
    "Waiting",
  ],
  ["a hibernated one sleeps", sandbox({ conditions: hibernated }), undefined, "Hibernated"],
  [
    "one being woken is waited for",
    sandbox({ conditions: hibernated, requests: [touch] }),
    "wake-1",
    "Waiting",
    "Waking",
  ],
  [
    "a wake that was refused is told",
    sandbox({
      conditions: hibernated,
      requests: [{ ...touch, result: { ...result, outcome: "Refused", code: "WorldReplaced" } }],
    }),
    "wake-1",
    "Failed",
    "WorldReplaced",
  ],
  [
    "one that woke and fell asleep again sleeps",
    sandbox({ conditions: hibernated, requests: [{ ...touch, result: { ...result, outcome: "Succeeded" } }] }),
    "wake-1",
    "Hibernated",
  ],
];
for (const [promise, state, wake, kind, reason] of cases) {
  test(promise, () => {
    const verdict = judgeSandbox(state, wake);
    assert.equal(verdict.kind, kind);
    if (reason !== undefined) assert.equal("reason" in verdict ? verdict.reason : undefined, reason);
  });
}

const world = (conditions: Condition[]): World => ({
  apiVersion: "agentworlds.dev/v1alpha1",
  kind: "World",
  metadata,
  spec: {
    from: { image: "i" },
    session: { ttlSeconds: 1, maxLifetimeSeconds: 1 },
    retention: { keepVersions: 1 },
    deletionPolicy: "Retain",
  },
  status: { observedGeneration: 2, conditions },
});

test("a World is Ready, on its way, or stalled with the reason", () => {
  assert.equal(judgeWorld(world([condition("Ready", "True", "Available")])).kind, "Ready");
  assert.equal(judgeWorld(world([condition("Ready", "False", "CopyingGenesis")])).kind, "Waiting");
  const stalled = judgeWorld(
    world([condition("Ready", "False", "ImageNotFound"), condition("Stalled", "True", "ImageNotFound")]),
  );
  assert.equal(stalled.kind === "Failed" && stalled.reason, "ImageNotFound");
});

for (const [reason, heals] of [
  ["WorldNotFound", "BySomebody"],
  ["RuntimeNotFound", "BySomebody"],
  ["NoDefaultRuntime", "BySomebody"],
  ["WorldHeld", "ByItself"],
  ["RuntimeFull", "ByItself"],
  ["HostUnreachable", "ByItself"],
  ["WorldNotReady", "ByItself"],
] as const) {
  test(`${reason} heals ${heals === "ByItself" ? "by itself" : "only by somebody"}`, () => {
    const waiting = judgeSandbox(sandbox({ conditions: [condition("Admitted", "False", reason)] }));
    assert.equal(waiting.kind === "Waiting" && waiting.heals, heals);
  });
}

test("every reason that is given up early is one that the controllers give", () => {
  const page = (kind: string) => readFileSync(new URL(`../../docs/spec/${kind}.md`, import.meta.url), "utf8");
  const pages = page("sandbox") + page("world");
  for (const reason of HEALED_BY_SOMEBODY) assert.ok(pages.includes(`\`${reason}\``), reason);
});
