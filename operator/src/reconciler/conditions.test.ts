import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type ConditionValue,
  type DerivedCondition,
  findCondition,
  isoSeconds,
  isTrue,
  LONGEST_MESSAGE,
  mergeConditions,
} from "./conditions.ts";

const T0 = Date.UTC(2026, 0, 1);
const LATER = T0 + 90_500;
const ready: DerivedCondition = { type: "Ready", status: "True", reason: "Running", message: "boot 1" };
const before: ConditionValue[] = [{ ...ready, lastTransitionTime: isoSeconds(T0) }];

test("times have whole seconds, as the API server's own", () => {
  assert.equal(isoSeconds(T0 + 999), "2026-01-01T00:00:00Z");
});

const merged: [name: string, derived: DerivedCondition, at: number][] = [
  ["the same condition keeps its time", ready, T0],
  ["another reason and message of the same status keep the time", { ...ready, reason: "Other", message: "boot 2" }, T0],
  ["another generation keeps the time", { ...ready, observedGeneration: 9 }, T0],
  ["another status moves the time", { ...ready, status: "False" }, LATER],
  ["a status that becomes unknown moves the time", { ...ready, status: "Unknown" }, LATER],
  ["another type has a time of its own", { ...ready, type: "Admitted" }, LATER],
];
for (const [name, derived, time] of merged) {
  test(name, () => {
    assert.deepEqual(mergeConditions(before, [derived], LATER), [{ ...derived, lastTransitionTime: isoSeconds(time) }]);
  });
}

test("a condition that is not derived any more disappears", () => {
  assert.deepEqual(mergeConditions(before, [], LATER), []);
});

test("an object without conditions gets them all", () => {
  assert.equal(mergeConditions(undefined, [ready], LATER)[0]?.lastTransitionTime, isoSeconds(LATER));
});

test("a message is cut to what the schemas allow, and shows it", () => {
  const [long] = mergeConditions(before, [{ ...ready, message: "x".repeat(LONGEST_MESSAGE + 1) }], LATER);
  assert.equal(long?.message.length, LONGEST_MESSAGE);
  assert.match(long?.message ?? "", /x…$/);
  const [whole] = mergeConditions(before, [{ ...ready, message: "x".repeat(LONGEST_MESSAGE) }], LATER);
  assert.equal(whole?.message, "x".repeat(LONGEST_MESSAGE));
});

test("a cut never leaves half a character, which the API server would store as another one and be sent again for ever", () => {
  fc.assert(
    fc.property(fc.nat(3), fc.string({ unit: "binary", maxLength: 8 }), (offset, tail) => {
      const message = `${"x".repeat(LONGEST_MESSAGE - 2 + offset)}🌍🌍${tail}`;
      const [cut] = mergeConditions(undefined, [{ ...ready, message }], LATER);
      assert.ok(cut?.message.isWellFormed());
      assert.ok((cut?.message.length ?? 0) <= LONGEST_MESSAGE);
    }),
  );
});

test("deriving the same again changes nothing, whatever the clock says", () => {
  const type = fc.constantFrom("Ready", "Stalled", "Reconciling", "Admitted");
  const derivedArbitrary = fc.uniqueArray(
    fc.record({
      type,
      status: fc.constantFrom("True" as const, "False" as const, "Unknown" as const),
      reason: fc.constantFrom("A", "B"),
      message: fc.string({ maxLength: 2_000, size: "max" }),
    }),
    { selector: (condition) => condition.type },
  );
  fc.assert(
    fc.property(derivedArbitrary, fc.nat(1_000_000), (derived, elapsed) => {
      const first = mergeConditions(undefined, derived, T0);
      assert.deepEqual(mergeConditions(first, derived, T0 + elapsed), first);
    }),
  );
});

test("a condition is found by type, and is true only when it says True", () => {
  assert.equal(findCondition(before, "Ready")?.reason, "Running");
  assert.equal(findCondition(before, "Stalled"), undefined);
  assert.equal(findCondition(undefined, "Ready"), undefined);
  assert.equal(isTrue(before, "Ready"), true);
  assert.equal(isTrue([{ type: "Ready", status: "False" }], "Ready"), false);
  assert.equal(isTrue(undefined, "Ready"), false);
});
