import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError, FakeListWatch } from "./fake-list-watch.test-kit.ts";
import type { KubeObject } from "./list-watch.ts";
import { silentLog } from "./log.ts";
import { noMetrics } from "./metrics.ts";
import { Reflector } from "./reflector.ts";
import { ObjectStore } from "./store.ts";
import { createTestClock } from "./test-clock.test-kit.ts";

/** A reflector of a scripted server on a test clock; random is 0, so a watch lasts exactly 100 s plus 10 s of grace. */
function setup(source = new FakeListWatch()) {
  const clock = createTestClock();
  const warnings: string[] = [];
  const closed: string[] = [];
  const store = new ObjectStore<KubeObject>({ resource: "things" });
  const changes: string[] = [];
  store.subscribe((change) => changes.push(`${change.kind} ${change.object.metadata.name}`));
  const reflector = new Reflector<KubeObject>({
    source,
    store,
    clock,
    random: () => 0,
    log: { ...silentLog, warn: (_, message) => void warnings.push(message) },
    metrics: { ...noMetrics, watchClosed: (_, cause) => void closed.push(cause) },
    pageSize: 2,
    watchTimeoutSeconds: 100,
    watchGraceMs: 10_000,
  });
  const stop = new AbortController();
  const start = () => {
    const running = reflector.run(stop.signal);
    return running;
  };
  return {
    source,
    clock,
    store,
    reflector,
    changes,
    warnings,
    closed,
    stop,
    start,
    names: () =>
      store
        .list()
        .map((object) => object.metadata.name)
        .toSorted(),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(0);
    },
  };
}

test("a list is paged to its end, and only then is the store synced", async () => {
  await using it = setup();
  for (const name of ["a", "b", "c", "d", "e"]) it.source.write(name);
  assert.equal(it.reflector.hasSynced(), false);
  void it.start();
  await it.reflector.whenSynced(it.stop.signal);
  assert.deepEqual(it.names(), ["a", "b", "c", "d", "e"]);
  assert.deepEqual(it.source.calls.slice(0, 3), ["list limit=2", "list limit=2 continued", "list limit=2 continued"]);
});

test("a watch that ends is resumed from the last event, without another list", async () => {
  await using it = setup();
  void it.start();
  await it.clock.advance(0);
  it.source.write("a");
  await it.clock.advance(50_000);
  it.source.endWatches();
  it.source.write("b");
  await it.clock.advance(0);
  assert.deepEqual(it.source.calls, ["list limit=2", "watch from=100", "watch from=101"]);
  assert.deepEqual(it.names(), ["a", "b"]);
});

// kubernetes-client/javascript#458: without bookmarks the position of a quiet resource goes stale and ends in 410.
test("a bookmark moves the position on, so that a compaction does not force a new list", async () => {
  await using it = setup();
  void it.start();
  await it.clock.advance(0);
  it.source.bookmark();
  await it.clock.advance(2_000);
  it.source.compact();
  it.source.endWatches();
  await it.clock.advance(0);
  assert.deepEqual(it.source.calls, ["list limit=2", "watch from=100", "watch from=101"]);
});

test("410 leads to a new list that tells only what changed", async () => {
  await using it = setup();
  it.source.write("a");
  it.source.write("b");
  void it.start();
  await it.clock.advance(2_000);
  it.source.breakWatches(new Error("reset"));
  it.source.remove("a");
  it.source.write("c");
  it.source.compact();
  it.changes.length = 0;
  await it.clock.advance(10_000);
  assert.deepEqual(it.changes, ["deleted a", "added c"]);
  assert.deepEqual(it.closed, ["failed", "expired"]);
});

test("410 sent inside a stream leads to a new list too", async () => {
  await using it = setup();
  void it.start();
  await it.clock.advance(2_000);
  it.source.breakWatches(apiError(410, { reason: "Expired" }));
  await it.clock.advance(1_000);
  assert.deepEqual(it.source.calls, ["list limit=2", "watch from=100", "list limit=2", "watch from=100"]);
});

test("a continue token that expires under a slow list makes the next list whole", async () => {
  await using it = setup();
  for (const name of ["a", "b", "c"]) it.source.write(name);
  const gate = Promise.withResolvers<void>();
  const first = it.start();
  it.source.listGate = gate.promise;
  await it.clock.advance(0);
  it.source.compact();
  gate.resolve();
  it.source.listGate = undefined;
  await it.clock.advance(1_000);
  assert.deepEqual(it.source.calls.slice(0, 3), ["list limit=2", "list limit=2 continued", "list limit=0"]);
  assert.deepEqual(it.names(), ["a", "b", "c"]);
  it.stop.abort();
  await first;
});

// kubernetes-client/javascript#2385, #2222: the informer stopped for good on any error that was not 410.
test("whatever fails, and however often, it is tried again until it works", async () => {
  await using it = setup();
  it.source.write("a");
  const failures = [503, 500, 403, 401, 404].map((status) => apiError(status));
  it.source.listFailures.push(...failures, new Error("ECONNRESET"), new TypeError("bug"));
  it.source.watchFailures.push(apiError(500), new Error("ECONNRESET"), apiError(403));
  void it.start();
  await it.clock.advance(5_000);
  assert.equal(it.reflector.hasSynced(), false, "readiness waits for a complete list");
  await it.clock.advance(600_000);
  assert.deepEqual(it.names(), ["a"]);
  assert.equal(it.reflector.health().failures, 0);
});

// kube-apiserver 1.37: a watch from exactly the revision that etcd compacted is answered with 500 for ever.
test("a position at which the server fails again and again is given up for a new list", async () => {
  await using it = setup();
  it.source.write("a");
  it.source.watchFailures.push(apiError(500), apiError(500), apiError(500));
  void it.start();
  await it.clock.advance(30_000);
  it.source.write("b");
  await it.clock.advance(30_000);
  assert.deepEqual(it.names(), ["a", "b"]);
  const lists = it.source.calls.filter((call) => call.startsWith("list"));
  assert.equal(lists.length, 2, "one list at the start, one for the position");
});

test("tries are spaced out, doubling up to half a minute", async () => {
  await using it = setup();
  it.source.listFailures.push(...Array.from({ length: 12 }, () => apiError(500)));
  void it.start();
  const pauses: number[] = [];
  for (let next = 0; pauses.length < 9; ) {
    await it.clock.advance(next);
    next = it.clock.pending()[0] ?? 0;
    pauses.push(next);
  }
  assert.deepEqual(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
});

// podman-desktop/extension-kubernetes-dashboard#1322: 429 ended the informer.
test("Retry-After of a 429 is waited out", async () => {
  await using it = setup();
  it.source.listFailures.push(apiError(429, { retryAfterMs: 45_000 }));
  void it.start();
  await it.clock.advance(44_999);
  assert.equal(it.source.calls.length, 1);
  await it.clock.advance(1);
  assert.equal(it.reflector.hasSynced(), true);
});

// kubernetes-client/javascript#596, #364, #958: nothing came any more, and no error either.
test("a half-open watch is cut after its timeout and grace, and what it withheld arrives", async () => {
  await using it = setup();
  void it.start();
  await it.clock.advance(0);
  it.source.silent = true;
  it.source.write("a");
  await it.clock.advance(109_999);
  assert.deepEqual(it.names(), []);
  it.source.silent = false;
  await it.clock.advance(1);
  assert.deepEqual(it.names(), ["a"]);
  assert.deepEqual(it.closed, ["silent"]);
  assert.deepEqual(it.source.calls, ["list limit=2", "watch from=100", "watch from=100"]);
});

test("a list that never answers is given up at its deadline", async () => {
  await using it = setup();
  it.source.listGate = new Promise(() => undefined);
  void it.start();
  await it.clock.advance(60_000);
  it.source.listGate = undefined;
  await it.clock.advance(500);
  assert.equal(it.reflector.hasSynced(), true);
});

test("a server that closes each watch at once is not hammered", async () => {
  await using it = setup();
  void it.start();
  for (let i = 0; i < 40; i++) {
    await it.clock.advance(250);
    it.source.endWatches();
  }
  const watches = it.source.calls.filter((call) => call.startsWith("watch")).length;
  assert.ok(watches <= 6, `${watches} watches in 10 s`);
});

// Measured on client-node 2.0.1 (reference/clients.md A1): stop() during the LIST still opened a watch.
test("a stop during the list opens no watch, changes nothing, and is no error", async () => {
  await using it = setup();
  it.source.write("a");
  const gate = Promise.withResolvers<void>();
  it.source.listGate = gate.promise;
  const running = it.start();
  await it.clock.advance(0);
  it.stop.abort();
  await running;
  gate.resolve();
  await it.clock.advance(0);
  assert.deepEqual(it.source.calls, ["list limit=2"]);
  assert.deepEqual(it.names(), []);
  assert.deepEqual(it.warnings, []);
});

test("a stop ends the watch and the run, and is no error", async () => {
  await using it = setup();
  const running = it.start();
  await it.clock.advance(0);
  it.stop.abort();
  await running;
  await it.clock.advance(0);
  assert.equal(it.source.open.size, 0);
  assert.deepEqual(it.warnings, []);
  assert.deepEqual(it.clock.pending(), []);
});

// kubernetes-client/javascript#3034, #3052: a stale retry after stop and start made a second watch.
test("a second run beside the first is refused; one after it resumes with one watch", async () => {
  await using it = setup();
  const running = it.start();
  await it.clock.advance(0);
  await assert.rejects(it.reflector.run(it.stop.signal), /running already/);
  it.stop.abort();
  await running;
  const again = new AbortController();
  const second = it.reflector.run(again.signal);
  await it.clock.advance(0);
  assert.equal(it.source.open.size, 1);
  again.abort();
  await second;
});

// kubernetes-client/javascript#2387: `done` was called twice on an abrupt close.
test("one break leads to exactly one new watch", async () => {
  await using it = setup();
  void it.start();
  await it.clock.advance(5_000);
  it.source.breakWatches(new Error("ECONNRESET"));
  await it.clock.advance(5_000);
  assert.equal(it.source.open.size, 1);
  assert.equal(it.source.calls.filter((call) => call.startsWith("watch")).length, 2);
});

test("a repeated or stale event brings nothing deleted back", async () => {
  await using it = setup();
  void it.start();
  await it.clock.advance(0);
  it.source.write("a");
  it.source.remove("a");
  it.source.repeatLast(2);
  it.source.repeatLast(2);
  await it.clock.advance(0);
  assert.deepEqual(it.changes, ["added a", "deleted a"]);
});

test("a listener that throws during a list or a watch does not end the mirror", async () => {
  await using it = setup();
  it.store.subscribe(() => {
    throw new Error("listener");
  });
  it.source.write("a");
  void it.start();
  await it.clock.advance(0);
  it.source.write("b");
  it.source.remove("a");
  await it.clock.advance(0);
  assert.deepEqual(it.names(), ["b"]);
});

test("a server restored from a backup, whose numbers are lower, is caught up with by the routine list", async () => {
  await using it = setup();
  for (const name of ["a", "b", "c"]) it.source.write(name);
  void it.start();
  await it.clock.advance(1_000);
  it.source.restore(10);
  it.source.write("after");
  for (let i = 0; i < 37; i++) {
    await it.clock.advance(100_000);
    it.source.endWatches();
  }
  await it.clock.advance(1_000);
  assert.deepEqual(it.names(), ["a", "after", "b", "c"]);
});

test("a routine list that fails leaves the watch running", async () => {
  await using it = setup();
  void it.start();
  await it.clock.advance(3_600_000);
  it.source.listFailures.push(...Array.from({ length: 50 }, () => apiError(503)));
  it.source.endWatches();
  await it.clock.advance(2_000);
  it.source.write("a");
  await it.clock.advance(0);
  assert.deepEqual(it.names(), ["a"]);
});
