import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError, FakeListWatch } from "../reconciler/fake-list-watch.test-kit.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { followObject } from "./follow-object.ts";

/** Follows one object of a scripted server on a test clock; what it yields is collected as resourceVersions. */
function setup() {
  const source = new FakeListWatch();
  const clock = createTestClock();
  const stop = new AbortController();
  const seen: (string | undefined)[] = [];
  const errors: unknown[] = [];
  const follow = async () => {
    const states = followObject({
      client: source,
      ref: { name: "a" },
      clock,
      signal: stop.signal,
      onError: (error) => errors.push(error),
    });
    for await (const state of states) seen.push(state?.metadata.resourceVersion);
  };
  const running = follow();
  return {
    source,
    clock,
    seen,
    errors,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(0);
      await running;
    },
  };
}

test("the object is told as it is, as it changes, and when it goes", async () => {
  await using it = setup();
  await it.clock.advance(0);
  it.source.write("a");
  await it.clock.advance(0);
  it.source.write("a");
  await it.clock.advance(0);
  it.source.remove("a");
  await it.clock.advance(0);
  assert.deepEqual(it.seen, [undefined, "101", "102", undefined]);
  assert.deepEqual(it.errors, []);
});

test("a watch that fails is told and tried again from a fresh list", async () => {
  await using it = setup();
  it.source.watchFailures.push(apiError(500));
  await it.clock.advance(0);
  it.source.write("a");
  await it.clock.advance(100);
  assert.deepEqual(it.seen, [undefined, "101"]);
  assert.equal(it.errors.length, 1);
});

// The server was asked to end the watch after 240 s. A connection that is cut without a word never ends by itself, and the
// certificate or the trusted CA it should have told of would stay the old one for the life of the process.
test("a half-open watch is cut after its timeout and grace, and what it withheld arrives", async () => {
  await using it = setup();
  await it.clock.advance(0);
  it.source.silent = true;
  it.source.write("a");
  await it.clock.advance(269_999);
  assert.deepEqual(it.seen, [undefined]);
  it.source.silent = false;
  await it.clock.advance(101);
  assert.deepEqual(it.seen, [undefined, "101"]);
  assert.equal(it.errors.length, 1);
  it.source.write("a");
  await it.clock.advance(0);
  assert.deepEqual(it.seen, [undefined, "101", "102"]);
  assert.equal(it.source.open.size, 1);
});

test("a watch that the server ends in time is no failure, and leaves no timer behind", async () => {
  await using it = setup();
  await it.clock.advance(0);
  for (let ended = 0; ended < 5; ended++) {
    await it.clock.advance(240_000);
    it.source.endWatches();
    await it.clock.advance(100);
  }
  assert.deepEqual(it.errors, []);
  assert.deepEqual(it.clock.pending(), [270_000]);
});
