import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { inOrder, LONGEST } from "./order.ts";

const crash = "test/integration/operator/crash.test.ts";

test("long files come first, those without parts last, each file once", () => {
  const files = ["crds/src/object.test.ts", "test/integration/parts/registry.test.ts", crash, "sdk/src/retry.test.ts"];
  const ordered = inOrder(files);
  assert.deepEqual(ordered, [
    crash,
    "test/integration/parts/registry.test.ts",
    "crds/src/object.test.ts",
    "sdk/src/retry.test.ts",
  ]);
});

test("what is named as long exists", () => {
  for (const path of LONGEST) assert.ok(existsSync(new URL(`../../${path}`, import.meta.url)), path);
});
