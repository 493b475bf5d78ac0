import assert from "node:assert/strict";
import { test } from "node:test";
import { NeverHappened } from "../../hack/parts/errors.ts";
import { eventually, eventuallyHolds } from "./wait.ts";

test("returns the first thing that is neither undefined nor false", async () => {
  const answers = [undefined, false, 0] as const;
  let turn = 0;
  assert.equal(await eventually(() => answers[turn++], { intervalMs: 1 }), 0);
});

test("a throwing check is looked at again, and the last error is the cause of giving up", async () => {
  const error = await eventually(() => Promise.reject(new Error("not yet")), { timeoutMs: 20, intervalMs: 1 }).catch(
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof NeverHappened);
  assert.match(error.message, /did not hold within 20 ms: not yet/);
  assert.ok(error.cause instanceof Error);
});

test("an aborted wait rejects with the signal's reason", async () => {
  const stop = new AbortController();
  const waiting = eventually(() => false, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
});

test("an assertion is waited for until it holds, and its last complaint is kept", async () => {
  let turn = 0;
  const third = (): void => {
    turn += 1;
    assert.equal(turn, 3);
  };
  await eventuallyHolds(third, { intervalMs: 1 });
  assert.equal(turn, 3);
  await assert.rejects(
    eventuallyHolds(() => assert.fail("never"), { timeoutMs: 20, intervalMs: 1 }),
    (error: Error) => error.cause instanceof assert.AssertionError,
  );
});
