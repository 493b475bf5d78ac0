import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { attempt } from "./parts/process.ts";

test("every skipped test is listed with its reason, and files with their seconds", async () => {
  const folder = await mkdtemp(join(tmpdir(), "agent-worlds-test-"));
  try {
    const body = `import { test } from "node:test";
      test("runs", () => {});
      test("long", () => new Promise((resolve) => setTimeout(resolve, 900)));
      test("by option", { skip: "no engine" }, () => {});
      test("by itself", (t) => t.skip("not root"));`;
    await writeFile(join(folder, "some.test.mjs"), body);
    const reporter = new URL("./test-report.ts", import.meta.url).pathname;
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const { stdout } = await attempt([process.execPath, "--test", `--test-reporter=${reporter}`, "some.test.mjs"], {
      cwd: folder,
      env,
      signal: AbortSignal.timeout(30_000),
    });
    assert.match(stdout, /^\d s in some\.test\.mjs\n2 skipped\n/);
    assert.match(stdout, /^skipped: some\.test\.mjs: by option: no engine\n/m);
    assert.match(stdout, /^skipped: some\.test\.mjs: by itself: not root\n/m);
  } finally {
    await rm(folder, { recursive: true });
  }
});
