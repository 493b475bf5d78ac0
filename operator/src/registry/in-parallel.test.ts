import assert from "node:assert/strict";
import { test } from "node:test";
import { inParallel } from "./in-parallel.ts";

const { signal } = new AbortController();

test("results come in the order of the items, and never more than the limit run at once", async () => {
  const gates = Array.from({ length: 5 }, () => Promise.withResolvers<void>());
  let running = 0;
  let most = 0;
  const results = inParallel([0, 1, 2, 3, 4], { limit: 2, signal }, async (item) => {
    running += 1;
    most = Math.max(most, running);
    await gates[item]?.promise;
    running -= 1;
    return item * 10;
  });
  for (const gate of gates.toReversed()) gate.resolve();
  assert.deepEqual(await results, [0, 10, 20, 30, 40]);
  assert.equal(most, 2);
});

test("the first failure is thrown after all others have ended, and none begins after it", async () => {
  const begun: number[] = [];
  let ended = 0;
  const failing = inParallel([0, 1, 2, 3], { limit: 2, signal }, async (item, stop) => {
    begun.push(item);
    try {
      if (item === 0) throw new RangeError("broken");
      await new Promise((_, reject) => stop.addEventListener("abort", () => reject(stop.reason), { once: true }));
    } finally {
      ended += 1;
    }
  });
  await assert.rejects(failing, new RangeError("broken"));
  assert.deepEqual(begun, [0, 1]);
  assert.equal(ended, 2);
});

test("an abort from outside ends it, and nothing begins after one", async () => {
  const outer = new AbortController();
  const running = inParallel([0], { limit: 1, signal: outer.signal }, (_, stop) => {
    outer.abort(new RangeError("enough"));
    return stop.aborted ? Promise.reject(stop.reason) : Promise.resolve();
  });
  await assert.rejects(running, new RangeError("enough"));
  await assert.rejects(
    inParallel([0], { limit: 1, signal: outer.signal }, () => assert.fail("it must not begin")),
    new RangeError("enough"),
  );
});
