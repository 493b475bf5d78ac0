import assert from "node:assert/strict";
import { test } from "node:test";
import { InFlightLimit } from "./in-flight.ts";

test("one identity has its places, gets them back, and takes none from another", () => {
  const limit = new InFlightLimit(2, "requests of this identity");
  const first = limit.enter("ada");
  using _second = limit.enter("ada");
  const message = "2 requests of this identity are already under way in this gateway";
  assert.throws(() => limit.enter("ada"), { status: 429, retryAfterSeconds: 1, message });
  using _other = limit.enter("bob");
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  using _third = limit.enter("ada");
  assert.throws(() => limit.enter("ada"), { status: 429 });
});
