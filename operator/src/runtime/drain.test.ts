import assert from "node:assert/strict";
import { test } from "node:test";
import { drainOf } from "./drain.ts";
import { hostLostAt } from "./host-loss.ts";
import { at, runtimeOf, T0 } from "./test-objects.test-kit.ts";

type Given = Parameters<typeof runtimeOf>[0];
const seconds = (after: number) => T0 + after * 1000;
const cordoned = { spec: { scheduling: "Cordoned" }, status: { cordonedAt: at(10) } } as const;

const cases: [name: string, given: Given, want: ReturnType<typeof drainOf>][] = [
  ["a Runtime that takes sessions keeps them", {}, undefined],
  ["a cordon is due five minutes after it was recorded", cordoned, { reason: "RuntimeCordoned", at: seconds(310) }],
  [
    "or when its spec says",
    { ...cordoned, spec: { ...cordoned.spec, drainSeconds: 0 } },
    { reason: "RuntimeCordoned", at: seconds(10) },
  ],
  ["a cordon that is not recorded yet is not due", { spec: cordoned.spec }, undefined],
  ["a cordon that was lifted is void, even where its record is left", { status: cordoned.status }, undefined],
  [
    "a deletion outranks a cordon and is due at once",
    { ...cordoned, metadata: { deletionTimestamp: at(20), finalizers: ["agentworlds.dev/runtime"] } },
    { reason: "RuntimeDeleted", at: seconds(20) },
  ],
];
for (const [name, given, want] of cases) test(name, () => assert.deepEqual(drainOf(runtimeOf(given)), want));

test("a Runtime that does not exist any more drains nothing: its hosts cannot be asked", () => {
  assert.equal(drainOf(undefined), undefined);
});

test("a silent host is lost after the Runtime's hostLossSeconds, and after two hours where nobody says", () => {
  assert.equal(hostLostAt(undefined, runtimeOf()), undefined);
  assert.equal(hostLostAt(at(0), runtimeOf()), seconds(7_200));
  assert.equal(hostLostAt(at(0), runtimeOf({ spec: { hostLossSeconds: 60 } })), seconds(60));
  assert.equal(hostLostAt(at(0), undefined), seconds(7_200));
});
