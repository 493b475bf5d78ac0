import assert from "node:assert/strict";
import { test } from "node:test";
import { LIMITS, type Runtime, type RuntimeStatus, runtimeStatusSchema, type Sandbox } from "@agentworlds/crds";
import type { HostFacts } from "./contract.ts";
import { deriveRuntimeStatus, type HostProbe } from "./status.ts";
import { at, runtimeOf, sandboxOf, T0 } from "./test-objects.test-kit.ts";

const facts: HostFacts = {
  version: "27.5.1",
  platform: "linux/amd64",
  capabilities: ["exec", "freeze", "commit"],
  ociRuntimes: ["runc"],
  cpus: 4,
  memoryBytes: 1,
};
const answers = (name: string, change: Partial<HostFacts> = {}): HostProbe => ({
  name,
  facts: { ...facts, ...change },
});
const silent = (name: string): HostProbe => ({ name, problem: "connect ECONNREFUSED" });
const onHost = (name: string, host: string, runtime = "local"): Sandbox =>
  sandboxOf({
    metadata: { name, uid: name },
    status: { boot: 1, compute: { runtime, host, id: `aw-${name}-1`, boot: 1 } },
  });

const derive = (probes: HostProbe[], runtime: Runtime = runtimeOf(), sandboxes: Sandbox[] = []): RuntimeStatus => {
  const status = deriveRuntimeStatus(runtime, { probes, sandboxes, now: T0 });
  // Whatever is derived, the API server takes it.
  runtimeStatusSchema.parse(status);
  return status;
};
const told = (status: RuntimeStatus) => status.conditions?.map((c) => `${c.type}=${c.status} ${c.reason}`);

const cases: [name: string, probes: HostProbe[], runtime: Runtime, want: string[]][] = [
  ["every host answers", [answers("a")], runtimeOf(), ["Ready=True Available", "Available=True AllHostsReachable"]],
  [
    "one of two is silent: Ready, not Available",
    [answers("a"), silent("b")],
    runtimeOf(),
    ["Ready=True Available", "Available=False SomeHostsUnreachable"],
  ],
  [
    "all are silent",
    [silent("a"), silent("b")],
    runtimeOf(),
    ["Ready=False NoHostReachable", "Available=False NoHostReachable"],
  ],
  [
    "hosts of two platforms are no one Runtime",
    [answers("a"), answers("b", { platform: "linux/arm64" })],
    runtimeOf(),
    ["Ready=False PlatformsDiffer", "Available=True AllHostsReachable"],
  ],
  [
    "a cordon is no failure",
    [answers("a")],
    runtimeOf({ spec: { scheduling: "Cordoned" } }),
    ["Ready=True Cordoned", "Available=True AllHostsReachable"],
  ],
];
for (const [name, probes, runtime, want] of cases) {
  test(name, () => assert.deepEqual(told(derive(probes, runtime)), want));
}

test("a silent host is named with its reason", () => {
  const status = derive([answers("a"), silent("b")]);
  assert.match(status.conditions?.find((c) => c.type === "Available")?.message ?? "", /b \(connect ECONNREFUSED\)/);
  assert.deepEqual(status.hosts?.[1], {
    name: "b",
    state: "Unreachable",
    message: "connect ECONNREFUSED",
    unreachableAt: at(0),
    used: 0,
  });
  assert.equal(status.hostsReachable, "1/2");
});

test("a session may land on any host, so only what all reachable ones can do counts, and the oldest version", () => {
  const status = derive([
    answers("a", { version: "27.10.0" }),
    answers("b", { version: "27.9.1", capabilities: ["freeze", "exec", "ociRuntime"] }),
    silent("c"),
  ]);
  assert.deepEqual(status.capabilities, ["exec", "freeze"]);
  assert.equal(status.version, "27.9.1");
  assert.equal(status.platform, "linux/amd64");
});

test("an OCI runtime counts only where every reachable host knows it by that name", () => {
  const status = derive([
    answers("a", { ociRuntimes: ["runsc", "runc", "kata"] }),
    answers("b", { ociRuntimes: ["runc", "runsc"] }),
    silent("c"),
  ]);
  assert.deepEqual(status.ociRuntimes, ["runc", "runsc"]);
  assert.deepEqual(status.hosts?.[0]?.ociRuntimes, ["runsc", "runc", "kata"]);
});

const inSpec = runtimeOf({
  spec: {
    docker: {
      hosts: [
        { name: "a", endpoint: "unix:///var/run/docker.sock" },
        { name: "b", endpoint: "tcp://10.1.2.3:2376" },
      ],
    },
  },
});
const explained: [name: string, probes: HostProbe[], type: string, message: string][] = [
  [
    "no host answers",
    [{ name: "a", problem: "GET /_ping: connect ENOENT" }],
    "Ready",
    "no host answers: a at unix:///var/run/docker.sock (GET /_ping: connect ENOENT); check spec.docker.hosts[].endpoint, and that the operator reaches it from where it runs",
  ],
  ["one is silent", [answers("a"), silent("b")], "Available", "b at tcp://10.1.2.3:2376 (connect ECONNREFUSED)"],
  ["one of one answers", [answers("a")], "Available", "all answer: 1 host"],
  [
    "two platforms",
    [answers("a"), answers("b", { platform: "linux/arm64" })],
    "Ready",
    "the hosts of one Runtime must have one platform: a is linux/amd64, b is linux/arm64; make a Runtime of each",
  ],
];
for (const [name, probes, type, message] of explained) {
  test(`${name}: ${type} says what a person needs`, () => {
    assert.equal(derive(probes, inSpec).conditions?.find((condition) => condition.type === type)?.message, message);
  });
}

test("the order in which hosts answer changes nothing that is compared", () => {
  const one = derive([
    answers("a", { capabilities: ["exec", "freeze"] }),
    answers("b", { capabilities: ["freeze", "exec"] }),
  ]);
  const two = derive([
    answers("a", { capabilities: ["freeze", "exec"] }),
    answers("b", { capabilities: ["exec", "freeze"] }),
  ]);
  assert.deepEqual(one.capabilities, two.capabilities);
});

test("what was known stays while every host is silent: its sessions go on when one answers again", () => {
  const before = derive([answers("a")]);
  const status = derive([silent("a")], runtimeOf({ status: before }));
  assert.deepEqual(
    { capabilities: status.capabilities, version: status.version, platform: status.platform },
    { capabilities: ["commit", "exec", "freeze"], version: "27.5.1", platform: "linux/amd64" },
  );
});

test("platforms that differ leave none that admission could trust", () => {
  const before = derive([answers("a")]);
  const status = derive([answers("a"), answers("b", { platform: "linux/arm64" })], runtimeOf({ status: before }));
  assert.equal(status.platform, undefined);
});

test("sessions are counted where their compute is recorded", () => {
  const sandboxes = [
    onHost("one", "a"),
    onHost("two", "a"),
    onHost("three", "b"),
    onHost("other", "a", "elsewhere"),
    sandboxOf(),
  ];
  const status = derive(
    [answers("a"), answers("b")],
    runtimeOf({ spec: { capacity: { maxSandboxes: 5 } } }),
    sandboxes,
  );
  assert.deepEqual(status.capacity, { total: 5, used: 3 });
  assert.deepEqual(
    status.hosts?.map(({ used }) => used),
    [2, 1],
  );
});

test("sessions on a host that left the spec are named: it is in use", () => {
  const status = derive([answers("a")], runtimeOf(), [onHost("one", "gone")]);
  const available = status.conditions?.find((c) => c.type === "Available");
  assert.equal(available?.reason, "HostInUse");
  assert.match(available?.message ?? "", /team\/one on gone/);
  assert.equal(status.capacity?.used, 1);
});

test("rescues are carried along, whatever the hosts say", () => {
  const rescue = {
    operation: "publish-1",
    namespace: "team",
    sandbox: { name: "one", uid: "uid" },
    host: "a",
    computeId: "aw-uid-1",
    reason: "SnapshotFailed",
    message: "",
    since: at(0),
  };
  assert.deepEqual(derive([silent("a")], runtimeOf({ status: { rescues: [rescue] } })).rescues, [rescue]);
});

test("a host is silent since the first probe that it did not answer, until it answers", () => {
  const at0 = derive([silent("a")]);
  assert.equal(at0.hosts?.[0]?.unreachableAt, at(0));
  const later = (probe: HostProbe, before: RuntimeStatus, seconds: number) =>
    deriveRuntimeStatus(runtimeOf({ status: before }), { probes: [probe], sandboxes: [], now: T0 + seconds * 1000 });
  const still = later(silent("a"), at0, 60);
  assert.equal(still.hosts?.[0]?.unreachableAt, at(0));
  const lost = (status: RuntimeStatus) => status.conditions?.find(({ type }) => type === "HostLost");
  assert.equal(lost(later(silent("a"), still, 7_199)), undefined);
  assert.match(lost(later(silent("a"), still, 7_200))?.message ?? "", /a since 2026-01-01T00:00:00.000Z/);
  const back = later(answers("a"), later(silent("a"), still, 7_200), 7_230);
  assert.equal(back.hosts?.[0]?.unreachableAt, undefined);
  assert.equal(lost(back), undefined);
});

test("a cordon is recorded once and says by when sessions hibernate; lifting it takes the record away", () => {
  const spec = { scheduling: "Cordoned" } as const;
  const pass = (parts: Parameters<typeof runtimeOf>[0], seconds: number) =>
    deriveRuntimeStatus(runtimeOf(parts), {
      probes: [answers("a")],
      sandboxes: [onHost("one", "a")],
      now: T0 + seconds * 1000,
    });
  const first = pass({ spec }, 0);
  assert.equal(first.cordonedAt, at(0));
  const second = pass({ spec, status: first }, 100);
  assert.equal(second.cordonedAt, at(0));
  const ready = second.conditions?.find(({ type }) => type === "Ready");
  assert.deepEqual([ready?.status, ready?.reason], ["True", "Cordoned"]);
  assert.match(ready?.message ?? "", /the 1 that have compute hibernate from 2026-01-01T00:05:00.000Z on/);
  assert.equal(pass({ status: second }, 200).cordonedAt, undefined);
});

test("a Runtime that is being deleted takes no sessions and says what it waits for", () => {
  const status = derive(
    [answers("a")],
    runtimeOf({ metadata: { deletionTimestamp: at(0), finalizers: ["agentworlds.dev/runtime"] } }),
    [onHost("one", "a")],
  );
  const ready = status.conditions?.find(({ type }) => type === "Ready");
  assert.deepEqual([ready?.status, ready?.reason], ["False", "RuntimeDeleting"]);
  assert.match(ready?.message ?? "", /1 that have compute hibernate, 0 rescues are kept/);
});

test("an endless complaint of a host does not make the write be refused", () => {
  const status = derive([{ name: "a", problem: "x".repeat(LIMITS.message * 2) }]);
  assert.equal(status.hosts?.[0]?.message?.length, LIMITS.message);
});

test("a second round that finds the same derives the same status", () => {
  const first = derive([answers("a"), silent("b")]);
  const again = deriveRuntimeStatus(runtimeOf({ status: first }), {
    probes: [answers("a"), silent("b")],
    sandboxes: [],
    now: T0 + 60_000,
  });
  assert.deepEqual(again, first);
});
