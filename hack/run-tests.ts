/**
 * Runs the test files with node's own runner. `--unit`: only those beside the code, which need no parts.
 * The runner's closing lines on stdout are what CI reads; the slowest files and every skipped test go to stderr.
 */
import { globSync } from "node:fs";
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { parseArgs } from "node:util";
import { SEED_VARIABLE, sampleSeed } from "../test/kit/seed.ts";
import { inOrder } from "./tests/order.ts";
import { Report } from "./tests/report.ts";

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
const TEN_MINUTES_MS = 600_000;

const { values } = parseArgs({
  options: { unit: { type: "boolean", default: false }, concurrency: { type: "string", default: "2" } },
});
const files = globSync(values.unit ? UNIT : [...UNIT, ...WITH_PARTS], {
  cwd: ROOT,
  exclude: (name) => name.includes("node_modules"),
});
process.env["NODE_NO_WARNINGS"] = "1";
// One seed for all files, so that one number repeats the run.
const seed = sampleSeed();
process.env[SEED_VARIABLE] = String(seed);
process.stderr.write(`${SEED_VARIABLE}=${seed}\n`);
const report = new Report(ROOT);
const tests = run({
  files: inOrder(files).map((file) => join(ROOT, file)),
  cwd: ROOT,
  concurrency: Number(values.concurrency),
  timeout: TEN_MINUTES_MS,
  execArgv: ["--import", join(ROOT, "test/kit/fixed-samples.ts")],
});
tests.on("data", (event) => report.note(event));
const shown = tests.compose(new spec());
shown.pipe(process.stdout);
await finished(shown);
process.stderr.write(`${report.lines().join("\n")}\n`);
process.exitCode = report.failed ? 1 : 0;
