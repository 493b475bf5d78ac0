import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { inOrder } from "./order.ts";

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

test("a file that is named as long exists", () => {
  assert.ok(existsSync(new URL(`../../${crash}`, import.meta.url)));
});
