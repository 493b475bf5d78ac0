import assert from "node:assert/strict";
import { test } from "node:test";
import { rescueEndsAt } from "./rescue-time.ts";
import { at, runtimeOf, T0 } from "./test-objects.test-kit.ts";

const kept = { operation: "end", host: "a", since: at(100), expiresAt: at(700) };
const known = (unreachableAt?: number) =>
  runtimeOf({
    status: {
      hosts: [
        unreachableAt === undefined
          ? { name: "a", state: "Reachable", used: 0 }
          : { name: "a", state: "Unreachable", used: 0, unreachableAt: at(unreachableAt) },
      ],
    },
  });
const cases: [name: string, unreachableAt: number | undefined, ends: number][] = [
  ["a host that answers: as promised", undefined, 700],
  ["a host silent since before: the time has not begun", 50, 1_600],
  ["a host silent since later: the time stands still", 400, 1_300],
];
for (const [name, unreachableAt, ends] of cases) {
  test(name, () => {
    assert.equal(rescueEndsAt(kept, known(unreachableAt), T0 + 1_000_000), T0 + ends * 1000);
  });
}

test("without its Runtime what was promised counts", () => {
  assert.equal(rescueEndsAt(kept, undefined, T0), T0 + 700_000);
});
