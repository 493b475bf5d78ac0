import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "./fake-list-watch.test-kit.ts";
import {
  LeaderElector,
  LeadershipLost,
  type Lease,
  type LeaseCall,
  type LeaseClient,
  type LeaseSpec,
} from "./lease.ts";
import { noMetrics } from "./metrics.ts";
import { microTime } from "./micro-time.ts";
import { createTestClock, type TestClock } from "./test-clock.test-kit.ts";

const MICRO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/** A Lease with optimistic locking and strict MicroTime, and one line to it per process that can be cut. */
function leaseServer() {
  let lease: Lease | undefined;
  let version = 0;
  const writes: LeaseSpec[] = [];
  const cut = new Set<string>();

  const store = (spec: LeaseSpec): Lease => {
    for (const time of [spec.renewTime, spec.acquireTime]) if (time !== undefined) assert.match(time, MICRO_TIME);
    writes.push(spec);
    version += 1;
    lease = { metadata: { name: "leader", namespace: "n", uid: "u", resourceVersion: String(version) }, spec };
    return lease;
  };
  const reach = async (line: string, call: LeaseCall): Promise<void> => {
    if (!cut.has(line)) return;
    await new Promise((_, reject) => {
      const fail = () => reject(call.signal.reason);
      if (call.signal.aborted) fail();
      call.signal.addEventListener("abort", fail, { once: true });
    });
  };
  const client = (line: string): LeaseClient => ({
    async get(_, call) {
      await reach(line, call);
      if (lease === undefined) throw apiError(404, { reason: "NotFound" });
      return lease;
    },
    async create(object, call) {
      await reach(line, call);
      if (lease !== undefined) throw apiError(409, { reason: "AlreadyExists" });
      return store((object as { spec: LeaseSpec }).spec);
    },
    async patch(_, patch, call) {
      await reach(line, call);
      if (lease === undefined) throw apiError(404, { reason: "NotFound" });
      const { resourceVersion } = patch["metadata"] as { resourceVersion: string };
      if (resourceVersion !== lease.metadata.resourceVersion) throw apiError(409, { reason: "Conflict" });
      return store({ ...lease.spec, ...(patch["spec"] as LeaseSpec) });
    },
  });
  return {
    client,
    writes,
    cut,
    spec: () => lease?.spec,
    takeAway: (spec: LeaseSpec) => store({ ...lease?.spec, ...spec }),
    remove: () => {
      lease = undefined;
    },
  };
}

interface Replica {
  readonly elector: LeaderElector;
  readonly stop: AbortController;
  readonly running: Promise<void>;
  /** Reason leadership was lost with, when it was. */
  lost(): unknown;
}

/** A process that leads until it is told to stop. */
function replica(clock: TestClock, client: LeaseClient, leading: Set<string>, name: string): Replica {
  const elector = new LeaderElector({
    client,
    lease: { namespace: "n", name: "leader" },
    identity: name,
    leaseDurationMs: 15_000,
    renewDeadlineMs: 10_000,
    retryMs: 2_000,
    clock,
    random: () => 0,
  });
  const stop = new AbortController();
  let lostReason: unknown;
  const lead = (lost: AbortSignal): Promise<void> => {
    leading.add(name);
    return new Promise((resolve) => {
      const end = () => {
        leading.delete(name);
        resolve();
      };
      stop.signal.addEventListener("abort", end, { once: true });
      lost.addEventListener(
        "abort",
        () => {
          lostReason = lost.reason;
          end();
        },
        { once: true },
      );
    });
  };
  return { elector, stop, running: elector.run({ stop: stop.signal, lead }), lost: () => lostReason };
}

function pair() {
  const clock = createTestClock();
  const server = leaseServer();
  const leading = new Set<string>();
  const a = replica(clock, server.client("a"), leading, "a");
  const b = replica(clock, server.client("b"), leading, "b");
  return {
    clock,
    server,
    leading,
    a,
    b,
    async [Symbol.asyncDispose]() {
      server.cut.clear();
      a.stop.abort();
      b.stop.abort();
      await clock.advance(20_000);
      await Promise.all([a.running, b.running]);
    },
  };
}

// agentconnect-md/agentconnect#873: three digits were refused, and no leader was ever elected.
test("a MicroTime has exactly six fractional digits", () => {
  assert.equal(microTime(Date.UTC(2026, 0, 2, 3, 4, 5, 67)), "2026-01-02T03:04:05.067000Z");
  assert.match(microTime(Date.UTC(2026, 0, 1)), MICRO_TIME);
});

test("one of two leads, and keeps leading while it renews", async () => {
  await using it = pair();
  await it.clock.advance(120_000);
  assert.deepEqual([...it.leading], ["a"]);
  assert.equal(it.a.elector.isLeading(), true);
  assert.equal(it.b.elector.isLeading(), false);
  assert.equal(it.b.elector.holder(), it.a.elector.identity);
  assert.equal(it.server.spec()?.leaseTransitions, 0);
});

test("an orderly stop gives the lease up, and the other leads at its next try", async () => {
  await using it = pair();
  await it.clock.advance(5_000);
  it.a.stop.abort();
  await it.clock.advance(2_500);
  assert.deepEqual([...it.leading], ["b"]);
  assert.equal(it.a.lost(), undefined, "an orderly stop loses nothing");
});

test("a leader that cannot renew has ceased before the other begins", async () => {
  await using it = pair();
  await it.clock.advance(5_000);
  it.server.cut.add("a");
  let ceasedAt: number | undefined;
  let followedAt: number | undefined;
  for (let ms = 0; ms < 30_000; ms += 100) {
    await it.clock.advance(100);
    assert.ok(it.leading.size <= 1, "two lead at once");
    assert.ok(!(it.a.elector.isLeading() && it.b.elector.isLeading()), "two believe to lead");
    if (!it.leading.has("a")) ceasedAt ??= ms;
    if (it.leading.has("b")) followedAt ??= ms;
  }
  assert.ok(ceasedAt !== undefined && ceasedAt <= 10_000);
  assert.ok(followedAt !== undefined && followedAt > ceasedAt && followedAt <= 15_000 + 2 * 2_000);
  assert.ok(it.a.lost() instanceof LeadershipLost);
});

test("the machine's clock may jump either way without two leaders or a lost one", async () => {
  await using it = pair();
  await it.clock.advance(5_000);
  for (const jump of [-3_600_000, 86_400_000]) {
    it.clock.jump(jump);
    for (let ms = 0; ms < 30_000; ms += 500) {
      await it.clock.advance(500);
      assert.deepEqual([...it.leading], ["a"]);
    }
  }
});

test("a lease taken by somebody else ends leading at once, and competing begins again", async () => {
  await using it = pair();
  await it.clock.advance(5_000);
  it.server.takeAway({ holderIdentity: "stranger", leaseDurationSeconds: 15 });
  await it.clock.advance(2_500);
  assert.deepEqual([...it.leading], []);
  assert.match(String(it.a.lost()), /held by stranger/);
  await it.clock.advance(20_000);
  assert.equal(it.leading.size, 1);
  assert.equal(it.server.spec()?.leaseTransitions, 1);
});

test("a write of somebody else that leaves the holder alone costs nothing", async () => {
  await using it = pair();
  await it.clock.advance(5_000);
  it.server.takeAway({});
  await it.clock.advance(30_000);
  assert.deepEqual([...it.leading], ["a"]);
});

test("a deleted lease ends leading, and is made again", async () => {
  await using it = pair();
  await it.clock.advance(5_000);
  it.server.remove();
  await it.clock.advance(20_000);
  assert.equal(it.leading.size, 1);
  assert.ok(it.a.lost() instanceof LeadershipLost);
});

test("a lease whose holder states a longer duration is waited for that long", async () => {
  const clock = createTestClock();
  const server = leaseServer();
  const leading = new Set<string>();
  server.takeAway({ holderIdentity: "old", leaseDurationSeconds: 60, renewTime: microTime(clock.now()) });
  const it = replica(clock, server.client("a"), leading, "a");
  await clock.advance(60_000);
  assert.equal(leading.size, 0);
  await clock.advance(4_000);
  assert.equal(leading.size, 1);
  it.stop.abort();
  await clock.advance(0);
  await it.running;
});

test("the lease is kept while the work drains, and given up only then", async () => {
  const clock = createTestClock();
  const server = leaseServer();
  const stop = new AbortController();
  const drained = Promise.withResolvers<void>();
  const elector = new LeaderElector({
    client: server.client("a"),
    lease: { namespace: "n", name: "leader" },
    identity: "a",
    clock,
    random: () => 0,
  });
  const running = elector.run({ stop: stop.signal, lead: () => drained.promise });
  await clock.advance(5_000);
  stop.abort();
  await clock.advance(60_000);
  assert.equal(server.spec()?.holderIdentity, elector.identity);
  assert.equal(elector.isLeading(), true);
  drained.resolve();
  await clock.advance(0);
  await running;
  assert.equal(server.spec()?.holderIdentity, "");
});

// agentworlds_leader: `sum != 1` is an alert only where everybody who may lead says whether it does.
test("who does not lead yet says so, and who lost the lease says so before its work has drained", async () => {
  const clock = createTestClock();
  const server = leaseServer();
  const told: boolean[] = [];
  const drained = Promise.withResolvers<void>();
  const stop = new AbortController();
  const elector = new LeaderElector({
    client: server.client("a"),
    lease: { namespace: "n", name: "leader" },
    identity: "a",
    clock,
    metrics: { ...noMetrics, leading: (_, leads) => void told.push(leads) },
  });
  assert.deepEqual(told, [false]);
  const running = elector.run({ stop: stop.signal, lead: () => drained.promise });
  await clock.advance(0);
  assert.deepEqual(told, [false, true]);
  server.takeAway({ holderIdentity: "b" });
  await clock.advance(5_000);
  assert.equal(elector.isLeading(), false);
  assert.deepEqual(told, [false, true, false]);
  stop.abort();
  drained.resolve();
  await clock.advance(0);
  await running;
  assert.equal(told.at(-1), false);
});

test("what is led and throws gives the lease up and is reported", async () => {
  const clock = createTestClock();
  const server = leaseServer();
  const elector = new LeaderElector({
    client: server.client("a"),
    lease: { namespace: "n", name: "leader" },
    identity: "a",
    clock,
  });
  const running = elector.run({
    stop: new AbortController().signal,
    lead: () => {
      throw new Error("bug");
    },
  });
  await assert.rejects(running, /bug/);
  assert.equal(server.spec()?.holderIdentity, "");
});

test("a renew deadline that is not shorter than the lease is refused", () => {
  const client = leaseServer().client("a");
  const lease = { namespace: "n", name: "leader" };
  const make = (leaseDurationMs: number, renewDeadlineMs: number) => () =>
    new LeaderElector({ client, lease, identity: "a", leaseDurationMs, renewDeadlineMs });
  assert.throws(make(2_000, 2_000), /two may lead at once/);
  assert.throws(make(2_500, 1_000), /whole seconds/);
});
