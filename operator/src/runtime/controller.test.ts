import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime, RuntimeRescue, Sandbox, World } from "@agentworlds/crds";
import { RUNTIMES, SANDBOXES, WORLDS } from "../kube/resource-types.ts";
import { silentLog } from "../reconciler/log.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import type { HostFacts, ListedCompute, RuntimeDriver } from "./contract.ts";
import { RUNTIME_FINALIZER, reconcileRuntimes } from "./controller.ts";
import { RuntimeError } from "./errors.ts";
import { memoryResource } from "./memory-resource.test-kit.ts";
import { createRuntimeRescues } from "./rescues.ts";
import { at, runtimeOf, sandboxOf, T0 } from "./test-objects.test-kit.ts";

const facts: HostFacts = {
  version: "27.5",
  platform: "linux/amd64",
  capabilities: ["exec"],
  ociRuntimes: ["runc"],
  cpus: 1,
  memoryBytes: 1,
};
const DAY_MS = 86_400_000;

const rescue: RuntimeRescue = {
  operation: "publish-1",
  namespace: "team",
  sandbox: { name: "one", uid: "sandbox-uid" },
  host: "a",
  computeId: "aw-sandbox-uid-1",
  reason: "SnapshotFailed",
  message: "",
  since: at(0),
};

function setup(parts: Parameters<typeof runtimeOf>[0] = {}, sandboxes: Sandbox[] = []) {
  const runtimes = memoryResource<Runtime>(RUNTIMES, [runtimeOf(parts)]);
  const clock = createTestClock(T0);
  const host = { isSilent: false, probes: 0, sweeps: 0, containers: [] as ListedCompute[] };
  /** Hosts in the order they were looked through, and those whose engine refuses that. */
  const swept: string[] = [];
  const broken = new Set<string>();
  /** Hosts at which something goes wrong that nobody foresaw. */
  const odd = new Set<string>();
  const events: string[] = [];
  const never = (): never => {
    throw new TypeError("the Runtime controller makes no such call");
  };
  const driver: RuntimeDriver = {
    identity: async () => "engine-a",
    pull: never,
    create: never,
    ownerOf: never,
    inspect: async () => ({ state: "Running", startedAt: undefined }),
    exec: never,
    readFile: never,
    exportTar: never,
    writeFile: never,
    sync: never,
    freeze: never,
    thaw: never,
    commit: never,
    push: never,
    forgetCommit: never,
    stop: async () => undefined,
    remove: async () => undefined,
    close: never,
    probe: async () => {
      host.probes += 1;
      if (host.isSilent) throw new RuntimeError("HostUnreachable", "connect ECONNREFUSED");
      return facts;
    },
    list: async () => {
      host.sweeps += 1;
      return host.containers;
    },
    listCaptures: async () => [],
    pruneImages: async () => [],
  };
  const kept = new Map<string, number | undefined>();
  const reconcile = reconcileRuntimes({
    installation: "install",
    runtimes: { get: (name) => runtimes.peek({ name }) },
    sandboxes: { list: () => sandboxes },
    runtimeClient: runtimes,
    sandboxClient: memoryResource<Sandbox>(SANDBOXES, sandboxes),
    drivers: {
      driverFor: async (_runtime, name) => ({
        ...driver,
        probe: async (...call) => {
          if (odd.has(name)) throw new TypeError(`${name}: nobody foresaw this`);
          return driver.probe(...call);
        },
        list: async (...call) => {
          swept.push(name);
          if (broken.has(name)) throw new RuntimeError("HostRefused", `${name} is out of order`);
          return driver.list(...call);
        },
      }),
      close: async () => undefined,
    },
    rescues: createRuntimeRescues(runtimes),
    rescuesKept: (name, count) => void kept.set(name, count),
    worldClient: memoryResource<World>(WORLDS),
    announce: (_, { type, reason, message }) => void events.push(`${type} ${reason}: ${message}`),
    imagePrefix: "registry/worlds/install",
    log: silentLog,
  });
  const pass = () => reconcile("local", { signal: new AbortController().signal, clock, reconcileId: "test" });
  return { runtimes, clock, host, swept, broken, odd, events, kept, pass, now: () => runtimes.peek({ name: "local" }) };
}

test("a first pass guards the Runtime, asks its hosts and says when to ask again", async () => {
  const { pass, now } = setup();
  assert.deepEqual(await pass(), { requeueAfterMs: 30_000 });
  assert.deepEqual(now()?.metadata.finalizers, [RUNTIME_FINALIZER]);
  assert.equal(now()?.status.platform, "linux/amd64");
  assert.equal(now()?.status.hostsReachable, "1/1");
});

test("a settled Runtime causes no write", async () => {
  const { runtimes, clock, pass } = setup();
  await pass();
  const before = runtimes.writes.length;
  clock.jump(30_000);
  await pass();
  clock.jump(30_000);
  await pass();
  assert.equal(runtimes.writes.length, before);
});

test("hosts are asked in every pass and looked through every ten minutes", async () => {
  const { clock, host, pass } = setup();
  await pass();
  clock.jump(599_000);
  await pass();
  assert.deepEqual([host.probes, host.sweeps], [2, 1]);
  clock.jump(1_000);
  await pass();
  assert.deepEqual([host.probes, host.sweeps], [3, 2]);
});

const hosts = (...names: string[]) => ({
  docker: { hosts: names.map((name) => ({ name, endpoint: `unix:///run/${name}.sock` })) },
});

test("a host that cannot be looked through keeps no other from it: it alone is tried again, after those that can", async () => {
  const { clock, swept, broken, pass, now } = setup({ spec: hosts("a", "b") });
  broken.add("a");
  await assert.rejects(pass(), { name: "RuntimeError", message: "a is out of order" });
  assert.deepEqual(swept.splice(0), ["a", "b"]);
  assert.equal(now()?.status.hostsReachable, "2/2", "what was found is written all the same");
  await assert.rejects(pass());
  assert.deepEqual(swept.splice(0), ["a"], "b had its turn");
  clock.jump(600_000);
  await assert.rejects(pass());
  assert.deepEqual(swept.splice(0), ["b", "a"]);
  broken.clear();
  await pass();
  assert.deepEqual(swept.splice(0), ["a"]);
  await pass();
  assert.deepEqual(swept, [], "nobody is due");
});

test("several hosts that cannot be looked through are told together", async () => {
  const { swept, broken, pass } = setup({ spec: hosts("a", "b", "c") });
  broken.add("a").add("c");
  await assert.rejects(pass(), (error) => {
    assert.ok(error instanceof AggregateError);
    assert.equal(error.message, "2 hosts could not be looked through: a is out of order; c is out of order");
    return true;
  });
  assert.deepEqual(swept, ["a", "b", "c"]);
});

test("a silent host is not looked through, and is named", async () => {
  const { host, pass, now } = setup();
  host.isSilent = true;
  await pass();
  assert.equal(host.sweeps, 0);
  assert.equal(now()?.status.hosts?.[0]?.message, "connect ECONNREFUSED");
});

test("a failure at one host that nobody foresaw is that host's problem, and keeps no other from being asked", async () => {
  const { swept, odd, pass, now } = setup({ spec: hosts("a", "b") });
  odd.add("a");
  assert.deepEqual(await pass(), { requeueAfterMs: 30_000 });
  assert.deepEqual(
    now()?.status.hosts?.map(({ name, state, message }) => [name, state, message]),
    [
      ["a", "Unreachable", "a: nobody foresaw this"],
      ["b", "Reachable", undefined],
    ],
  );
  assert.deepEqual(swept, ["b"]);
});

test("a pass that fails before it has asked the hosts says nothing about them", async () => {
  const { runtimes, host, pass, now } = setup({
    status: { hosts: [{ name: "a", state: "Reachable", used: 0 }], hostsReachable: "1/1" },
  });
  runtimes.loseNextAnswer(false);
  await assert.rejects(pass(), { name: "ConnectionError" });
  assert.equal(host.probes, 0);
  assert.deepEqual(now()?.status.hosts, [{ name: "a", state: "Reachable", used: 0 }]);
});

const deleted = { deletionTimestamp: at(0), finalizers: [RUNTIME_FINALIZER] };
const session = sandboxOf({
  status: { boot: 1, compute: { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 } },
});

test("a deleted Runtime without compute goes at once", async () => {
  const { pass, now } = setup({ metadata: deleted });
  await pass();
  assert.deepEqual(now()?.metadata.finalizers, []);
});

test("a deleted Runtime stays while a session that may run there has lost its container from its status", async () => {
  const elsewhere = sandboxOf({ spec: { runtime: { name: "another" } }, status: { boot: 1 } });
  for (const [sandbox, stays] of [
    [sandboxOf({ status: { boot: 1 } }), true],
    [sandboxOf({ spec: { runtime: { name: "local" } }, status: { boot: 1 } }), true],
    [elsewhere, false],
  ] as const) {
    const { pass, now } = setup({ metadata: deleted }, [sandbox]);
    await pass();
    assert.deepEqual(now()?.metadata.finalizers, stays ? [RUNTIME_FINALIZER] : []);
  }
});

test("a deleted Runtime stays while compute exists there, and not for ever", async () => {
  const { clock, pass, now } = setup({ metadata: deleted }, [session]);
  await pass();
  assert.deepEqual(now()?.metadata.finalizers, [RUNTIME_FINALIZER]);
  clock.jump(DAY_MS);
  await pass();
  assert.deepEqual(now()?.metadata.finalizers, []);
});

test("a Runtime that is gone is no work", async () => {
  const { runtimes, pass } = setup();
  runtimes.drop({ name: "local" });
  assert.deepEqual(await pass(), {});
});

test("a host that falls silent and answers again is announced once each", async () => {
  const { host, events, pass } = setup();
  await pass();
  assert.deepEqual(events, [], "what is as it should be is no news");
  host.isSilent = true;
  await pass();
  await pass();
  host.isSilent = false;
  await pass();
  await pass();
  assert.deepEqual(events, [
    "Warning NoHostReachable: no answer from a; 0/1 hosts answer",
    "Normal AllHostsReachable: a answers again; 1/1 hosts answer",
  ]);
});

test("an orphan is announced when it is quarantined, and its end when it is removed", async () => {
  const { clock, host, events, pass } = setup();
  const owner = { installation: "install", namespace: "team", sandbox: "one", sandboxUid: "sandbox-uid", boot: 1 };
  host.containers = [{ id: "aw-sandbox-uid-1", owner, state: "Running" }];
  // The quarantine moves the resourceVersion: that pass ends in a conflict, and the next one writes.
  await assert.rejects(pass(), { status: 409 });
  await pass();
  clock.jump(600_000);
  await pass();
  assert.deepEqual(events, [
    "Warning Orphaned: container aw-sandbox-uid-1 on a, of Sandbox team/one: no Sandbox accounts for this container; it is stopped and kept",
  ]);
  host.containers = [];
  clock.jump(DAY_MS);
  await pass();
  await pass();
  assert.deepEqual(events.slice(1), [
    "Warning RescueOver: what was kept of Sandbox team/one on a as aw-sandbox-uid-1 is removed: its time is over",
  ]);
});

test("a list of rescues that is full is a condition, announced once, and gone when there is room", async () => {
  const rescues = Array.from({ length: 64 }, (_, index) => ({ ...rescue, operation: `publish-${index}` }));
  const { runtimes, events, pass, now } = setup({ status: { rescues } });
  await pass();
  await pass();
  assert.equal(events.filter((event) => event.startsWith("Warning RescuesFull")).length, 1);
  const isFull = () => now()?.status.conditions?.some(({ type }) => type === "RescuesFull");
  assert.equal(isFull(), true);
  const found = now();
  assert.ok(found);
  runtimes.put({ ...found, status: { ...found.status, rescues: rescues.slice(1) } });
  await pass();
  assert.equal(isFull(), false);
});

test("a host that comes back after two days keeps what was rescued there for the whole of its time", async () => {
  const expiresAt = new Date(T0 + 2 * 60_000 + DAY_MS).toISOString();
  const { clock, host, runtimes, pass, now } = setup();
  await pass();
  host.isSilent = true;
  clock.jump(60_000);
  await pass();
  clock.jump(60_000);
  const known = now();
  assert.ok(known);
  const kept = { ...rescue, since: new Date(clock.now()).toISOString(), expiresAt };
  runtimes.put({ ...known, status: { ...known.status, rescues: [kept] } });
  clock.jump(2 * DAY_MS);
  await pass();
  host.isSilent = false;
  await pass();
  await pass();
  assert.equal(now()?.status.rescues?.[0]?.expiresAt, new Date(clock.now() + DAY_MS).toISOString());
  assert.equal(host.sweeps, 2, "it was swept at once");
  clock.jump(DAY_MS - 1_000);
  await pass();
  assert.equal(now()?.status.rescues?.length, 1);
  clock.jump(601_000);
  await pass();
  assert.equal(now()?.status.rescues?.length, 0);
});

test("what a Runtime keeps is measured while there is a Runtime", async () => {
  const { pass, kept, runtimes } = setup({ status: { rescues: [rescue] } });
  await pass();
  assert.deepEqual([...kept], [["local", 1]]);
  runtimes.drop({ name: "local" });
  await pass();
  assert.deepEqual([...kept], [["local", undefined]]);
});

test("while work is kept that is in no version, a condition names it; what is kept without work does not count", async () => {
  const empty = { ...rescue, operation: "left", reason: "NothingToSave" };
  const { pass, now, runtimes } = setup({ status: { rescues: [rescue, empty] } });
  await pass();
  const condition = () => now()?.status.conditions?.find(({ type }) => type === "RescuesKept");
  assert.equal(condition()?.status, "True");
  assert.match(condition()?.message ?? "", /^1 rescue .* publish-1 of Sandbox team\/one on a;/);
  const known = now();
  assert.ok(known);
  runtimes.put({ ...known, status: { ...known.status, rescues: [empty] } });
  await pass();
  assert.equal(condition(), undefined);
});
