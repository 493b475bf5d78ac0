import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { attempt } from "../parts/process.ts";

/** A run of its own process, since tests inside a test are run in another way. */
async function runOf(body: string): Promise<{ failed: boolean; lines: string[] }> {
  const folder = await mkdtemp(join(tmpdir(), "agent-worlds-test-"));
  try {
    await writeFile(join(folder, "some.test.mjs"), `import { test } from "node:test";\n${body}`);
    const module = new URL("./report.ts", import.meta.url).href;
    const script = `import { run } from "node:test"; import { Report } from "${module}";
      const report = new Report(process.cwd());
      for await (const event of run({ files: [process.cwd() + "/some.test.mjs"] })) report.note(event);
      console.log(JSON.stringify({ failed: report.failed, lines: report.lines() }));`;
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    // In a file: node hands its own options, a script for one, on to the files it runs.
    await writeFile(join(folder, "runner.mjs"), script);
    const command = [process.execPath, join(folder, "runner.mjs")];
    const { stdout } = await attempt(command, { cwd: folder, env, signal: AbortSignal.timeout(30_000) });
    return JSON.parse(stdout);
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("every skipped test is listed with its reason, and a file with its seconds", async () => {
  const { failed, lines } = await runOf(`
    test("long", () => new Promise((resolve) => setTimeout(resolve, 1000)));
    test("by option", { skip: "no engine" }, () => {});
    test("by itself", (t) => t.skip("not root"));`);
  assert.equal(failed, false);
  assert.match(lines[0] ?? "", /^\d s in some\.test\.mjs$/);
  assert.deepEqual(lines.slice(1), [
    "2 skipped",
    "skipped: some.test.mjs: by option: no engine",
    "skipped: some.test.mjs: by itself: not root",
  ]);
});

for (const [what, body] of [
  ["a test that fails", 'test("no", () => { throw new Error("no"); });'],
  ["a file that cannot be read", "this is no program"],
  ["a file that ends with an error after its tests", 'test("yes", () => {}); setTimeout(() => process.exit(3), 50);'],
] as const) {
  test(`${what} fails the run`, async () => assert.equal((await runOf(body)).failed, true));
}
