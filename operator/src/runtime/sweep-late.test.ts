/** Work that is published while a sweep looks: no record of it may stay, in which it is said to be in no version. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { captureOf, container, rescueOf, sweep } from "./sweep.test-kit.ts";
import { worldOf } from "./test-objects.test-kit.ts";

const DAY_BEFORE = -86_400;

test("a capture that is published while the sweep writes it down keeps no record", async () => {
  const { recorded, orphans } = await sweep({
    containers: [],
    captures: [captureOf("u1", DAY_BEFORE)],
    publishedMeanwhile: true,
  });
  assert.deepEqual([recorded, orphans], [[], []]);
});

test("a rescue that its World publishes while the sweep writes it down keeps no record", async () => {
  const { namespace: _, world: __, ...rescue } = rescueOf("u1", 0);
  const world = worldOf({ status: { rescues: [{ ...rescue, runtime: "local", attempts: 0 }] } });
  const { recorded } = await sweep({ containers: [container("u1", 1)], worlds: [world], publishedMeanwhile: true });
  assert.deepEqual(recorded, []);
});

test("a container that is gone while the sweep writes it down keeps no record", async () => {
  const { recorded, orphans } = await sweep({ containers: [container("u1", 1)], publishedMeanwhile: true });
  assert.deepEqual([recorded, orphans], [[], []]);
});
