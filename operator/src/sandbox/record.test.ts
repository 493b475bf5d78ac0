import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox } from "@agentworlds/crds";
import fc from "fast-check";
import { isConflict } from "../kube/errors.ts";
import { SANDBOXES } from "../kube/resource-types.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { memoryResource } from "../runtime/memory-resource.test-kit.ts";
import { SANDBOX_FINALIZER } from "../runtime/open-boot.ts";
import { at, sandboxOf, T0 } from "../runtime/test-objects.test-kit.ts";
import {
  isoNow,
  type RecordScope,
  readSame,
  recordFinalizer,
  recordIntent,
  recordProgress,
  SandboxGone,
} from "./record.ts";

const ref = { namespace: "team", name: "one" };

function setup(sandbox: Sandbox = sandboxOf({ status: { boot: 1, expiresAt: at(900) } })) {
  const sandboxes = memoryResource<Sandbox>(SANDBOXES, [sandbox]);
  const now = (): Sandbox => {
    const found = sandboxes.peek(ref);
    assert.ok(found);
    return found;
  };
  const scope: RecordScope = {
    sandbox: now(),
    dependencies: { sandboxClient: sandboxes },
    context: { signal: new AbortController().signal, clock: createTestClock(T0 + 1_500), reconcileId: "test" },
  };
  /** A gateway touches: the deadline moves on, and so does the resourceVersion. */
  const touch = (seconds: number) => () => {
    sandboxes.put({ ...now(), status: { ...now().status, expiresAt: at(seconds) } });
  };
  const replace = () => {
    sandboxes.drop(ref);
    sandboxes.put(sandboxOf({ metadata: { uid: "another" } }));
  };
  return { sandboxes, scope, now, touch, replace };
}

test("an intent is refused when a touch came first, and the touch stays", async () => {
  const { sandboxes, scope, now, touch } = setup();
  sandboxes.interfere(touch(2_000));
  await assert.rejects(recordIntent(scope, { expiresAt: null }), { status: 409 });
  assert.equal(now().status.expiresAt, at(2_000));
});

test("an intent that wins is what the pass goes on with", async () => {
  const { scope, now } = setup();
  await recordIntent(scope, { boot: 2 });
  assert.equal(scope.sandbox.status.boot, 2);
  assert.deepEqual(scope.sandbox, now());
});

test("progress is computed again from what a touch left, and the touch stays", async () => {
  const { sandboxes, scope, now, touch } = setup();
  sandboxes.interfere(touch(2_000), touch(3_000));
  const seen: (string | undefined)[] = [];
  await recordProgress(scope, ({ status }) => {
    seen.push(status.expiresAt);
    return { boot: (status.boot ?? 0) + 1 };
  });
  assert.deepEqual(seen, [at(900), at(2_000), at(3_000)]);
  assert.equal(now().status.expiresAt, at(3_000));
  assert.equal(now().status.boot, 2);
});

test("progress that finds nothing left to write writes nothing", async () => {
  const { sandboxes, scope } = setup();
  await recordProgress(scope, () => undefined);
  assert.deepEqual(sandboxes.writes, []);
});

test("progress on a Sandbox that was replaced or removed ends the pass, and the stranger stays as it is", async () => {
  const replaced = setup();
  replaced.sandboxes.interfere(replaced.replace);
  await assert.rejects(
    recordProgress(replaced.scope, () => ({ boot: 9 })),
    SandboxGone,
  );
  assert.equal(replaced.now().status.boot, undefined);

  const removed = setup();
  removed.sandboxes.drop(ref);
  await assert.rejects(readSame(removed.scope), SandboxGone);
});

test("the 300 touches of a busy session do not starve the progress of its snapshot", async () => {
  const { sandboxes, scope, now, touch } = setup();
  sandboxes.interfere(...Array.from({ length: 40 }, (_, index) => touch(1_000 + index)));
  await recordProgress(scope, () => ({ boot: 2 }));
  assert.equal(now().status.boot, 2);
  assert.equal(now().status.expiresAt, at(1_039));
});

test("conflicts without end are thrown, not swallowed", async () => {
  const { sandboxes, scope, touch } = setup();
  sandboxes.interfere(...Array.from({ length: 200 }, (_, index) => touch(index)));
  await assert.rejects(
    recordProgress(scope, () => ({ boot: 2 })),
    { status: 409 },
  );
});

test("an answer that was lost is thrown: whether it was written is for the next pass to see", async () => {
  const { sandboxes, scope } = setup();
  sandboxes.loseNextAnswer(true);
  await assert.rejects(
    recordProgress(scope, () => ({ boot: 2 })),
    { name: "ConnectionError" },
  );
});

test("our finalizer comes and goes beside others, once", async () => {
  const { sandboxes, scope, now } = setup(sandboxOf({ metadata: { finalizers: ["acme.dev/keep"] } }));
  await recordFinalizer(scope, true);
  await recordFinalizer(scope, true);
  assert.deepEqual(now().metadata.finalizers, ["acme.dev/keep", SANDBOX_FINALIZER]);
  await recordFinalizer(scope, false);
  await recordFinalizer(scope, false);
  assert.deepEqual(now().metadata.finalizers, ["acme.dev/keep"]);
  assert.equal(sandboxes.writes.length, 2);
});

test("a finalizer that somebody adds in between is kept", async () => {
  const { sandboxes, scope, now } = setup(sandboxOf({ metadata: { finalizers: [SANDBOX_FINALIZER] } }));
  const late = ["acme.dev/late", SANDBOX_FINALIZER];
  sandboxes.interfere(() => sandboxes.put({ ...now(), metadata: { ...now().metadata, finalizers: late } }));
  await recordFinalizer(scope, false);
  assert.deepEqual(now().metadata.finalizers, ["acme.dev/late"]);
});

test("a boot is judged again when somebody wrote before its finalizer, and a boot that is there keeps it", async () => {
  const adding = setup();
  adding.sandboxes.interfere(adding.touch(1_000));
  await assert.rejects(recordFinalizer(adding.scope, true), isConflict);
  assert.equal(adding.now().metadata.finalizers, undefined);

  const { sandboxes, scope, now } = setup(sandboxOf({ metadata: { finalizers: [SANDBOX_FINALIZER] } }));
  const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
  sandboxes.interfere(() => sandboxes.put({ ...now(), status: { ...now().status, boot: 1, compute } }));
  await recordFinalizer(scope, false);
  assert.deepEqual(now().metadata.finalizers, [SANDBOX_FINALIZER]);
});

test("removing the finalizer of a Sandbox that is gone, by any moment, is a success", async () => {
  const guarded = sandboxOf({ metadata: { finalizers: [SANDBOX_FINALIZER] } });
  const gone = setup(guarded);
  gone.sandboxes.drop(ref);
  await recordFinalizer(gone.scope, false);

  const replaced = setup(guarded);
  replaced.sandboxes.interfere(replaced.replace);
  await recordFinalizer(replaced.scope, false);
  assert.equal(replaced.now().metadata.uid, "another");
});

test("a Sandbox that is gone gets no finalizer and no compute", async () => {
  const { sandboxes, scope } = setup();
  sandboxes.drop(ref);
  await assert.rejects(recordFinalizer(scope, true), SandboxGone);
  await assert.rejects(recordIntent(scope, { boot: 1 }), SandboxGone);
});

test("times of a pass have milliseconds: a deadline needs them", () => {
  assert.equal(isoNow(setup().scope), "2026-01-01T00:00:01.500Z");
});

test("however touches cut in: none is undone, and every write carries the resourceVersion it was decided on", async () => {
  const step = fc.record({ call: fc.constantFrom("intent", "progress", "finalizer"), touches: fc.nat(3) });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 15 }), async (steps) => {
      const { sandboxes, scope, now, touch } = setup();
      let touched = 900;
      for (const [index, { call, touches }] of steps.entries()) {
        sandboxes.interfere(
          ...Array.from({ length: touches }, () => () => {
            touched += 1;
            touch(touched)();
          }),
        );
        try {
          if (call === "intent") await recordIntent(scope, { boot: index });
          else if (call === "progress") await recordProgress(scope, () => ({ boot: index }));
          else await recordFinalizer(scope, index % 2 === 0);
        } catch (error) {
          assert.ok(call !== "progress" && touches > 0 && isConflict(error), String(error));
          scope.sandbox = now();
        }
        assert.equal(now().status.expiresAt, at(touched), "a touch was undone");
      }
      for (const { body } of sandboxes.writes) {
        const { metadata } = body as { metadata?: { resourceVersion?: string } };
        assert.match(metadata?.resourceVersion ?? "missing", /^\d+$/);
      }
    }),
  );
});
