import assert from "node:assert/strict";
import { EventEmitter, on } from "node:events";
import { type TestContext, test } from "node:test";
import { Deadline } from "./deadline.ts";
import { NotReadyError } from "./errors.ts";
import type { StoredObject } from "./objects.ts";
import type { Readiness } from "./readiness.ts";
import { untilSettled } from "./wait-ready.ts";

interface Told extends StoredObject {
  readonly status: { readonly observedGeneration: number; readonly says: Readiness };
}

const waits = (reason: string, heals: "ByItself" | "BySomebody"): Readiness => ({
  kind: "Waiting",
  reason,
  message: `because of ${reason}`,
  heals,
});
const missing = waits("WorldNotFound", "BySomebody");
const held = waits("WorldHeld", "ByItself");
const ready: Readiness = { kind: "Ready" };

/** A wait with 10 s of grace and a clock that the test moves; `tell` resolves when the state has been judged. */
function waiting(t: TestContext, graceMs = 10_000) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const watch = new EventEmitter();
  const caller = new AbortController();
  const settled = untilSettled<Told>({
    objects: {
      async *follow(_ref, signal) {
        for await (const [object] of on(watch, "state", { signal })) yield object;
      },
    },
    kind: "Sandbox",
    ref: { namespace: "n", name: "a" },
    judge: ({ status }) => {
      setImmediate(() => watch.emit("judged"));
      return status.says;
    },
    deadline: new Deadline(60_000, caller.signal),
    onProgress: undefined,
    graceMs,
  });
  const tell = (says: Readiness): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>();
    watch.once("judged", resolve);
    const metadata = { name: "a", namespace: "n", uid: "u", resourceVersion: "1" };
    watch.emit("state", { kind: "Sandbox", metadata, spec: {}, status: { observedGeneration: 1, says } });
    return promise;
  };
  return { settled, tell, caller, pass: (milliseconds: number) => t.mock.timers.tick(milliseconds) };
}

test("what only somebody else heals is given up after the grace, with its reason, cause and what to do", async (t) => {
  const { settled, tell, pass } = waiting(t);
  await tell(missing);
  pass(10_000);
  await assert.rejects(settled, (error) => {
    assert.ok(error instanceof NotReadyError);
    assert.deepEqual(
      [error.code, error.reason, error.cause],
      ["WorldNotFound", "WorldNotFound", "because of WorldNotFound"],
    );
    assert.equal(error.message, "Sandbox n/a is not Ready: because of WorldNotFound");
    assert.match(error.remediation ?? "", /graceMs/);
    return true;
  });
});

test("said again and again it is given up all the same, from the first time on", async (t) => {
  const { settled, tell, pass } = waiting(t);
  await tell(missing);
  pass(6_000);
  await tell(waits("RuntimeNotFound", "BySomebody"));
  pass(4_000);
  await assert.rejects(settled, { code: "RuntimeNotFound" });
});

test("a World that appears within the grace is waited for", async (t) => {
  const { settled, tell, pass } = waiting(t);
  await tell(missing);
  pass(9_999);
  await tell(ready);
  assert.deepEqual((await settled).readiness, ready);
});

test("a held World is waited for, also after the World was missing for a while", async (t) => {
  const { settled, tell, pass } = waiting(t);
  await tell(missing);
  pass(9_000);
  await tell(held);
  pass(3_600_000);
  await tell(missing);
  pass(9_999);
  await tell(ready);
  assert.deepEqual((await settled).readiness, ready);
});

test("grace without an end waits as for anything else", async (t) => {
  const { settled, tell, pass } = waiting(t, Number.POSITIVE_INFINITY);
  await tell(missing);
  pass(3_600_000);
  await tell(ready);
  assert.deepEqual((await settled).readiness, ready);
});

test("the caller's abort is the caller's reason, whatever is waited for", async (t) => {
  const { settled, tell, caller } = waiting(t);
  await tell(missing);
  const reason = new Error("enough");
  caller.abort(reason);
  await assert.rejects(
    settled,
    (error: unknown) => error === reason || (error instanceof Error && error.cause === reason),
  );
});
