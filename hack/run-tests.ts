/**
 * Runs the test files with node's own runner. `--unit`: only those beside the code, which need no parts.
 * The runner's closing lines on stdout are what CI reads; the slowest files and every skipped test go to stderr.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

const ROOT = join(import.meta.dirname, "..");
const UNIT = [
  "crds/**/*.test.ts",
  "operator/src/**/*.test.ts",
  "sdk/src/**/*.test.ts",
  "hack/**/*.test.ts",
  "test/kit/**/*.test.ts",
  // Its decisions; the runs themselves stand above these folders.
  "test/chaos/*/**/*.test.ts",
];
const WITH_PARTS = ["test/conformance/**/*.test.ts", "test/integration/**/*.test.ts", "test/chaos/*.test.ts"];

const { values } = parseArgs({
  options: { unit: { type: "boolean", default: false }, concurrency: { type: "string", default: "2" } },
});
const files = globSync(values.unit ? UNIT : [...UNIT, ...WITH_PARTS], {
  cwd: ROOT,
  exclude: (name) => name.includes("node_modules"),
}).sort();
const reporters = [
  ...["--test-reporter=spec", "--test-reporter-destination=stdout"],
  ...["--test-reporter=./hack/test-report.ts", "--test-reporter-destination=stderr"],
];
const runner = spawn(
  process.execPath,
  ["--test", ...reporters, `--test-concurrency=${values.concurrency}`, "--test-timeout=600000", ...files],
  { cwd: ROOT, stdio: "inherit", env: { ...process.env, NODE_NO_WARNINGS: "1" } },
);
const [code, signal] = await once(runner, "exit");
process.exitCode = signal === null ? Number(code) : 1;
