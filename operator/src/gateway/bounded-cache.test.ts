import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../reconciler/clock.ts";
import { BoundedCache } from "./bounded-cache.ts";

test("the cache forgets by age, by number, and when the clock is set back", () => {
  let now = 1_000;
  const cache = new BoundedCache<number>({ ...systemClock, now: () => now }, { ttlMs: 10, maxEntries: 2 });
  cache.set("a", 1);
  now += 9;
  assert.equal(cache.get("a"), 1);
  now += 1;
  assert.equal(cache.get("a"), undefined);
  for (const key of ["b", "c", "d"]) cache.set(key, 2);
  assert.equal(cache.get("b"), undefined);
  assert.equal(cache.get("d"), 2);
  now -= 100;
  assert.equal(cache.get("d"), undefined);
});
