import assert from "node:assert/strict";
import { test } from "node:test";
import { Remembered } from "./remembered.ts";

const never = new AbortController().signal;

test("callers share one piece of work, and its result stays until it is forgotten", async () => {
  let made = 0;
  const remembered = new Remembered(async () => ++made, 60_000);
  assert.deepEqual(await Promise.all([remembered.get(never), remembered.get(never)]), [1, 1]);
  assert.equal(await remembered.get(never), 1);
  remembered.forget();
  assert.equal(await remembered.get(never), 2);
});

test("a failure reaches every caller and is not remembered", async () => {
  let made = 0;
  const remembered = new Remembered(async () => {
    made++;
    if (made === 1) throw new Error("first");
    return made;
  }, 60_000);
  const outcomes = await Promise.allSettled([remembered.get(never), remembered.get(never)]);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ["rejected", "rejected"],
  );
  assert.equal(await remembered.get(never), 2);
});

test("the abort of one caller ends its wait with its reason and nobody else's", async () => {
  const work = Promise.withResolvers<string>();
  const remembered = new Remembered(() => work.promise, 60_000);
  const abort = new AbortController();
  const reason = new Error("mine");
  const aborted = remembered.get(abort.signal);
  const waiting = remembered.get(never);
  abort.abort(reason);
  await assert.rejects(aborted, (error) => error === reason);
  work.resolve("done");
  assert.equal(await waiting, "done");
});
