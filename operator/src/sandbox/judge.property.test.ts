/** What no history of a session can make of the judgement. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxStatus } from "@agentworlds/crds";
import fc from "fast-check";
import { sandboxOf, T0 } from "../runtime/test-objects.test-kit.ts";
import {
  ABSENT,
  asleep,
  booting,
  deleted,
  EXITED,
  FROZEN,
  judge,
  OOM,
  operation,
  RUNNING,
  request,
  running,
} from "./judge-cases.test-kit.ts";

const statusArbitrary: fc.Arbitrary<Partial<SandboxStatus>> = fc
  .record({
    base: fc.constantFrom(running, booting, asleep, {}),
    operation: fc.option(
      fc.record({
        verb: fc.constantFrom("Hibernate" as const, "Snapshot" as const, "Close" as const),
        stage: fc.constantFrom("Intended" as const, "Frozen" as const, "Captured" as const, "Verified" as const),
        outcome: fc.constantFrom("Snapshot" as const, "Discard" as const),
        attempts: fc.nat(6),
      }),
      { nil: undefined },
    ),
    verbs: fc.array(fc.constantFrom("Touch" as const, "Snapshot" as const, "Close" as const), { maxLength: 3 }),
  })
  .map(({ base, operation: change, verbs }) => ({
    ...base,
    ...(change && base.compute ? { operation: operation(change) } : {}),
    requests: verbs.map((verb, index) => request(verb, { id: `ask-${index}` })),
  }));

const inputArbitrary = fc.record({
  status: statusArbitrary,
  mode: fc.constantFrom("Running" as const, "Hibernated" as const),
  isDeleted: fc.boolean(),
  observed: fc.constantFrom(RUNNING, FROZEN, ABSENT, EXITED, OOM, undefined),
  worldEnding: fc.boolean(),
  drain: fc.option(fc.constant({ reason: "RuntimeCordoned" as const, at: T0 + 1_000_000 }), { nil: undefined }),
  savesNothing: fc.boolean(),
  now: fc.integer({ min: 0, max: 20_000 }),
});

const judged = (given: typeof inputArbitrary extends fc.Arbitrary<infer G> ? G : never) => {
  const sandbox = sandboxOf({
    metadata: given.isDeleted ? deleted : {},
    spec: { mode: given.mode },
    status: given.status,
  });
  return { sandbox, goal: judge(sandbox, { seen: given, now: given.now }) };
};

test("whatever is written and seen: nothing boots over compute, and nothing deleted or hibernated by mode boots", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      const { sandbox, goal } = judged(given);
      if (goal.kind !== "boot") return;
      assert.equal(sandbox.status.compute, undefined);
      assert.equal(sandbox.metadata.deletionTimestamp, undefined);
      assert.equal(sandbox.spec.mode, "Running");
    }),
  );
});

test("whatever is written and seen: compute is called lost only when the host says that it is absent", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      if (judged(given).goal.kind === "lost") assert.equal(given.observed?.state, "Absent");
    }),
  );
});

test("whatever is written and seen: an ending once begun keeps its verb and its reason", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      const begun = given.status.operation;
      const { goal } = judged(given);
      if (!begun || begun.verb === "Snapshot" || goal.kind !== "end") return;
      assert.equal(goal.verb, begun.verb);
      assert.equal(goal.reason, begun.reason);
    }),
  );
});

test("whatever is written and seen: work of a session that saves is discarded only where somebody asked for it", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      const { sandbox, goal } = judged({ ...given, savesNothing: false });
      if (goal.kind !== "end" || !goal.discard) return;
      const neverReady = sandbox.status.compute?.provisionedAt === undefined;
      assert.ok(neverReady || sandbox.status.operation?.outcome === "Discard");
    }),
  );
});
