import assert from "node:assert/strict";
import { test } from "node:test";
import { drawFaults, drawVaried, FAULT_WEIGHTS } from "./faults.ts";
import { seeded } from "./random.ts";

test("the same seed draws the same faults, another seed others", () => {
  const once = drawFaults(seeded(7), 200);
  assert.deepEqual(drawFaults(seeded(7), 200), once);
  assert.notDeepEqual(drawFaults(seeded(8), 200), once);
});

test("a longer draw begins with the shorter one: a run that failed early can be cut", () => {
  assert.deepEqual(drawFaults(seeded(7), 1_000).slice(0, 60), drawFaults(seeded(7), 60));
});

test("every kind comes, about as often as its weight says", () => {
  const drawn = drawFaults(seeded(11), 20_000);
  const total = Object.values(FAULT_WEIGHTS).reduce((sum, weight) => sum + weight, 0);
  for (const [kind, weight] of Object.entries(FAULT_WEIGHTS)) {
    const share = drawn.filter((fault) => fault.kind === kind).length / drawn.length;
    const expected = weight / total;
    assert.ok(Math.abs(share - expected) < 0.2 * expected + 0.002, `${kind}: ${share}, expected ${expected}`);
  }
});

test("a varied draw has its kills, and no other kind twice", () => {
  const drawn = drawVaried(seeded(7), { kills: 4, others: 16 });
  const others = drawn.map(({ kind }) => kind).filter((kind) => kind !== "operatorKilledAtPoint");
  assert.deepEqual([drawn.length, new Set(others).size, others.length], [20, 16, 16]);
});

test("forks of one seed are independent of each other and of the order in which they are made", () => {
  const numbers = (name: string) => {
    const random = seeded(3).fork(name);
    return Array.from({ length: 5 }, () => random.next());
  };
  assert.deepEqual(numbers("lane 1"), numbers("lane 1"));
  assert.notDeepEqual(numbers("lane 1"), numbers("lane 2"));
});
