import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { reasonsIn, unexplained } from "./condition-reasons.ts";

test("a reason is found wherever a controller gives one", () => {
  const text = `
    throw new Waiting("WorldHeld", { message });
    throw new Terminal(
      "ImageNotFound",
    );
    return { type: "Ready", status: "False", reason: "Provisioning" };
    ...said("Hibernating", "ends")
    reason: explained.reason,
  `;
  assert.deepEqual(reasonsIn(text), ["WorldHeld", "ImageNotFound", "Provisioning", "Hibernating"]);
});

test("every reason of this operator is explained on a page", () => {
  assert.deepEqual([...unexplained(join(import.meta.dirname, "..", ".."))], []);
});
