import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox, SandboxOperation, SandboxStatus } from "@agentworlds/crds";
import { sandboxStatusSchema } from "@agentworlds/crds";
import fc from "fast-check";
import { mergePatchBetween } from "../reconciler/patch.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import type { ObservedCompute } from "../runtime/contract.ts";
import { at, digest, sandboxOf, T0 } from "../runtime/test-objects.test-kit.ts";
import { deriveSandboxStatus } from "./status.ts";
import { ComputeUnknown } from "./unnamed-compute.ts";

const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
const booting: Partial<SandboxStatus> = { boot: 1, observedMode: "Running", compute };
const running: Partial<SandboxStatus> = {
  ...booting,
  compute: { ...compute, provisionedAt: at(0) },
  expiresAt: at(900),
};
const ended = (
  outcome: "Published" | "Discarded" | "Lost" | "Rescued",
  reason = "DeadlinePassed",
): Partial<SandboxStatus> => ({
  boot: 1,
  observedMode: "Running",
  lastEnding: { boot: 1, reason, outcome, message: "what came of it", at: at(950) },
});
const operation = (change: Partial<SandboxOperation> = {}): SandboxOperation => ({
  id: "operation-1",
  verb: "Hibernate",
  reason: "DeadlinePassed",
  stage: "Frozen",
  since: at(900),
  attempts: 0,
  ...change,
});
const touch = { id: "wake", verb: "Touch", user: "ada", at: at(960) } as const;

const held = new Waiting("WorldHeld", { message: "held by Sandbox two", remediation: "it boots later", afterMs: 1 });
const silent = new Waiting("HostUnreachable", { message: "local/a: ECONNREFUSED", afterMs: 1 });
const refused = new Terminal("CapabilityMissing", {
  message: "Runtime local lacks freeze",
  remediation: "name another",
});

type Given = Parameters<typeof sandboxOf>[0];
const cases: [name: string, given: Given, failure: unknown, phase: string, want: string[]][] = [
  ["new", {}, undefined, "Pending", ["Ready=False Waking", "Admitted=False Waking", "Reconciling=True Waking"]],
  [
    "waits for its World",
    {},
    held,
    "Waiting",
    ["Ready=False WorldHeld", "Admitted=False WorldHeld", "Reconciling=True WorldHeld"],
  ],
  [
    "refused by name",
    {},
    refused,
    "Failed",
    ["Ready=False CapabilityMissing", "Admitted=False CapabilityMissing", "Stalled=True CapabilityMissing"],
  ],
  [
    "created in mode Hibernated",
    { spec: { mode: "Hibernated" } },
    undefined,
    "Hibernated",
    ["Hibernated=True ModeHibernated"],
  ],
  [
    "status names no container, and the hosts cannot be asked whether there is one",
    { status: { ...ended("Published"), closed: { at: at(950) } } },
    new ComputeUnknown("HostsNotAsked", { message: "local/b: no answer", afterMs: 1 }),
    "Waiting",
    ["Ready=Unknown HostsNotAsked", "ComputeUnknown=True HostsNotAsked", "Reconciling=True HostsNotAsked"],
  ],
  [
    "a boot that is not accounted for is not called asleep, whatever keeps it from being looked for",
    { status: { boot: 1 } },
    new Error("etcd is slow"),
    "Waiting",
    ["Ready=Unknown Retrying", "ComputeUnknown=True Retrying", "Reconciling=True Retrying"],
  ],
  [
    "boots",
    { status: booting },
    undefined,
    "Provisioning",
    ["Ready=False Provisioning", "Admitted=True Admitted", "Reconciling=True Provisioning"],
  ],
  [
    "boots on a host that is silent",
    { status: booting },
    silent,
    "Provisioning",
    ["Ready=False HostUnreachable", "Admitted=True Admitted", "Reconciling=True HostUnreachable"],
  ],
  ["runs", { status: running }, undefined, "Running", ["Ready=True Running", "Admitted=True Admitted"]],
  [
    "runs on a host that is silent: nobody knows",
    { status: running },
    silent,
    "Running",
    ["Ready=Unknown HostUnreachable", "Admitted=True Admitted", "Reconciling=True HostUnreachable"],
  ],
  [
    "runs, and something keeps its pass from looking at it: nobody knows",
    { status: running },
    new Error("etcd is slow"),
    "Running",
    ["Ready=Unknown Retrying", "Admitted=True Admitted", "Reconciling=True Retrying"],
  ],
  [
    "hibernated, and something keeps its pass from its end",
    { status: ended("Published") },
    new Error("etcd is slow"),
    "Hibernated",
    ["Hibernated=True DeadlinePassed", "Reconciling=True Retrying"],
  ],
  [
    "closed, and something keeps it from going",
    { status: { closed: { at: at(1) } } },
    new Error("forbidden"),
    "Closed",
    ["Closed=True CloseRequested", "Reconciling=True Retrying"],
  ],
  [
    "runs while a snapshot is taken",
    { status: { ...running, operation: operation({ verb: "Snapshot" }) } },
    undefined,
    "Running",
    ["Ready=True Running", "Admitted=True Admitted"],
  ],
  [
    "runs while a snapshot fails",
    {
      status: {
        ...running,
        operation: operation({ verb: "Snapshot", attempts: 1, lastError: "503", retryAt: at(905) }),
      },
    },
    undefined,
    "Running",
    ["Ready=True Running", "Admitted=True Admitted", "SnapshotFailed=True PublishFailed"],
  ],
  [
    "hibernates",
    { status: { ...running, operation: operation() } },
    undefined,
    "Hibernating",
    ["Ready=False Hibernating", "Admitted=True Admitted", "Reconciling=True Hibernating"],
  ],
  [
    "hibernates and fails",
    { status: { ...running, operation: operation({ attempts: 2, lastError: "503", retryAt: at(905) }) } },
    undefined,
    "Hibernating",
    [
      "Ready=False Hibernating",
      "Admitted=True Admitted",
      "SnapshotFailed=True PublishFailed",
      "Reconciling=True Hibernating",
    ],
  ],
  [
    "hibernates, and its host is silent: what keeps it is told by name",
    { status: { ...running, operation: operation() } },
    silent,
    "Hibernating",
    ["Ready=False HostUnreachable", "Admitted=True Admitted", "Reconciling=True HostUnreachable"],
  ],
  [
    "hibernates and has failed, and its host is silent by now",
    { status: { ...running, operation: operation({ attempts: 2, lastError: "503", retryAt: at(905) }) } },
    silent,
    "Hibernating",
    [
      "Ready=False HostUnreachable",
      "Admitted=True Admitted",
      "SnapshotFailed=True PublishFailed",
      "Reconciling=True HostUnreachable",
    ],
  ],
  [
    "closes",
    { status: { ...running, operation: operation({ verb: "Close" }) } },
    undefined,
    "Closing",
    ["Ready=False Hibernating", "Admitted=True Admitted", "Reconciling=True Hibernating"],
  ],
  [
    "hibernated by its deadline: Ready is absent, not False",
    { status: ended("Published") },
    undefined,
    "Hibernated",
    ["Hibernated=True DeadlinePassed"],
  ],
  [
    "hibernated with nothing to save",
    { status: ended("Discarded", "ModeHibernated") },
    undefined,
    "Hibernated",
    ["Hibernated=True ModeHibernated"],
  ],
  [
    "lost: it is not called hibernated",
    { status: ended("Lost", "ContainerGone") },
    undefined,
    "Failed",
    ["ComputeLost=True ContainerGone"],
  ],
  [
    "rescued: it is not called hibernated",
    { status: ended("Rescued", "SnapshotFailed") },
    undefined,
    "Failed",
    ["SnapshotFailed=True SnapshotFailed"],
  ],
  [
    "touched awake",
    { status: { ...ended("Published"), requests: [touch] } },
    undefined,
    "Pending",
    ["Ready=False Waking", "Admitted=False Waking", "Reconciling=True Waking"],
  ],
  [
    "touched awake and waits",
    { status: { ...ended("Published"), requests: [touch] } },
    held,
    "Waiting",
    ["Ready=False WorldHeld", "Admitted=False WorldHeld", "Reconciling=True WorldHeld"],
  ],
  [
    "touched under mode Hibernated",
    { spec: { mode: "Hibernated" }, status: { ...ended("Published"), requests: [touch] } },
    undefined,
    "Hibernated",
    ["Hibernated=True DeadlinePassed"],
  ],
  [
    "turned back to Running",
    { status: { ...ended("Published"), observedMode: "Hibernated" } },
    undefined,
    "Pending",
    ["Ready=False Waking", "Admitted=False Waking", "Reconciling=True Waking"],
  ],
  [
    "closed with a version",
    { status: { ...ended("Published", "CloseRequested"), closed: { version: 3, digest: digest("3"), at: at(1) } } },
    undefined,
    "Closed",
    ["Closed=True CloseRequested"],
  ],
  [
    "closed without ever booting",
    { status: { closed: { at: at(1) } } },
    undefined,
    "Closed",
    ["Closed=True CloseRequested"],
  ],
];
const derive = (sandbox: Sandbox, failure?: unknown, now = T0) => deriveSandboxStatus(sandbox, { failure, now });
for (const [name, given, failure, phase, want] of cases) {
  test(`a Sandbox: ${name}`, () => {
    const status = derive(sandboxOf(given), failure);
    assert.deepEqual(
      status.conditions?.map((c) => `${c.type}=${c.status} ${c.reason}`),
      want,
    );
    assert.equal(status.phase, phase);
  });
}

const since = { startedAt: at(0) };
const exited: ObservedCompute = { state: "Exited", exitCode: 1, outOfMemory: false, finishedAt: at(50) };
const retrying: Given = {
  status: { ...running, operation: operation({ verb: "Snapshot", attempts: 1, lastError: "503", retryAt: at(905) }) },
};
const refusedByRegistry = new Error("405 UNSUPPORTED");
const retriedLater = new Waiting("PublishFailed", { message: "attempt 1: 503", afterMs: 1 });
const seen: [name: string, given: Given, failure: unknown, observed: ObservedCompute, want: string[]][] = [
  [
    "runs, and something else fails",
    { status: running },
    refusedByRegistry,
    { state: "Running", ...since },
    ["True", "Retrying"],
  ],
  [
    "is frozen and cannot be thawed",
    { status: running },
    refusedByRegistry,
    { state: "Frozen", ...since },
    ["False", "Retrying"],
  ],
  ["is frozen and about to be thawed", { status: running }, undefined, { state: "Frozen", ...since }, ["True"]],
  ["has ended, which cannot be written down", { status: running }, refusedByRegistry, exited, ["False", "Retrying"]],
  ["runs, and its snapshot is tried again", retrying, retriedLater, { state: "Running", ...since }, ["True"]],
  ["is gone, and the snapshot of it is tried again", retrying, retriedLater, { state: "Absent" }, ["False"]],
  [
    "runs, its snapshot is tried again, and something else fails",
    retrying,
    refusedByRegistry,
    { state: "Running", ...since },
    ["True", "Retrying"],
  ],
];
for (const [name, given, failure, observed, want] of seen) {
  test(`the container of a session ${name}: Ready says what was seen, and Reconciling what fails`, () => {
    const { conditions = [] } = deriveSandboxStatus(sandboxOf(given), { failure, observed, now: T0 });
    const ready = conditions.find(({ type }) => type === "Ready")?.status;
    const reason = conditions.find(({ type }) => type === "Reconciling")?.reason;
    assert.deepEqual([ready, ...(reason === undefined ? [] : [reason])], want);
  });
}

const message = (sandbox: Sandbox, type: string, failure?: unknown) =>
  derive(sandbox, failure).conditions?.find((condition) => condition.type === type)?.message;

test("conditions tell where it runs, what it ended in, why it waits and what to do", () => {
  assert.equal(message(sandboxOf({ status: running }), "Ready"), "boot 1 on local/a");
  assert.equal(message(sandboxOf(), "Admitted", held), "held by Sandbox two; it boots later");
  const closed = { version: 3, digest: digest("3"), at: at(1) };
  assert.equal(message(sandboxOf({ status: { closed } }), "Closed"), `ended in version 3 (${digest("3")})`);
  assert.equal(message(sandboxOf({ status: { closed: { at: at(1) } } }), "Closed"), "nothing was saved");
  assert.equal(message(sandboxOf({ status: ended("Lost") }), "ComputeLost"), "what came of it");
  const failing = operation({ attempts: 2, lastError: "503", retryAt: at(905) });
  assert.match(
    message(sandboxOf({ status: { ...running, operation: failing } }), "SnapshotFailed") ?? "",
    /attempt 2: 503; the container is kept, the next attempt is at 2026-01-01T00:15:05/,
  );
});

test("a mode Hibernated that was seen asleep is remembered, so that turning it back to Running wakes", () => {
  const status = derive(sandboxOf({ spec: { mode: "Hibernated" }, status: ended("Published") }));
  assert.equal(status.observedMode, "Hibernated");
});

test("a mode Running of one that sleeps by its deadline is no wish to wake", () => {
  const status = derive(sandboxOf({ status: ended("Published") }));
  assert.equal(status.observedMode, undefined);
  assert.equal(status.phase, "Hibernated");
});

test("every condition names the generation it was derived from, and so does the status", () => {
  const status = derive(sandboxOf({ metadata: { generation: 7 }, status: running }));
  assert.equal(status.observedGeneration, 7);
  for (const condition of status.conditions ?? []) assert.equal(condition.observedGeneration, 7);
});

const anything = fc.record({
  status: fc.constantFrom<Partial<SandboxStatus>>(
    {},
    booting,
    running,
    ended("Published"),
    ended("Lost"),
    ended("Rescued"),
    { ...running, operation: operation({ attempts: 1, lastError: "503", retryAt: at(905) }) },
    { ...running, operation: operation({ verb: "Close" }) },
    { ...ended("Discarded"), closed: { at: at(1) } },
  ),
  mode: fc.constantFrom("Running" as const, "Hibernated" as const),
  failure: fc.constantFrom(undefined, held, silent, refused, new Error("x".repeat(10_000))),
});

test("in any state: the API server takes what is derived, each condition once, and deriving it again writes nothing", () => {
  fc.assert(
    fc.property(anything, fc.nat(1_000_000), ({ status, mode, failure }, later) => {
      const sandbox = sandboxOf({ metadata: { generation: 2 }, spec: { mode }, status });
      const written = { ...sandbox.status, ...derive(sandbox, failure) };
      sandboxStatusSchema.parse(written);
      const types = written.conditions?.map(({ type }) => type) ?? [];
      assert.equal(new Set(types).size, types.length);
      const again = { ...sandbox, status: written };
      assert.equal(mergePatchBetween(written, { ...written, ...derive(again, failure, T0 + later) }), undefined);
    }),
  );
});

test("in any state: it is called Ready only while its container runs, and Hibernated or Closed only when there is none", () => {
  fc.assert(
    fc.property(anything, ({ status, mode, failure }) => {
      const sandbox = sandboxOf({ spec: { mode }, status });
      const isTrue = new Set(
        derive(sandbox, failure)
          .conditions?.filter((c) => c.status === "True")
          .map((c) => c.type),
      );
      if (isTrue.has("Ready")) assert.ok(sandbox.status.compute?.provisionedAt);
      if (isTrue.has("Hibernated") || isTrue.has("Closed")) assert.equal(sandbox.status.compute, undefined);
      assert.ok(!(isTrue.has("Reconciling") && isTrue.has("Stalled")));
    }),
  );
});
