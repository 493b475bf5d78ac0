/**
 * Runs the test files with node's own runner. `--unit`: only those beside the code, which need no parts.
 * The runner's closing lines on stdout are what CI reads; the slowest files and every skipped test go to stderr.
 */
import { join } from "node:path";
import { finished } from "node:stream/promises";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { parseArgs } from "node:util";
import { SEED_VARIABLE, sampleSeed } from "../test/kit/seed.ts";
import { EVERY_UNIT, filesWithParts } from "./tests/files.ts";
import { inOrder } from "./tests/order.ts";
import { Report } from "./tests/report.ts";

const ROOT = join(import.meta.dirname, "..");
const TEN_MINUTES_MS = 600_000;

const { values } = parseArgs({
  options: { unit: { type: "boolean", default: false }, concurrency: { type: "string", default: "2" } },
});
const files = values.unit ? [EVERY_UNIT] : inOrder([EVERY_UNIT, ...filesWithParts(ROOT)]);
process.env["NODE_NO_WARNINGS"] = "1";
// Types are stripped and modules compiled once, not by every process; `make clean` removes it.
process.env["NODE_COMPILE_CACHE"] = join(ROOT, "node_modules/.cache/compiled");
// One seed for all files, so that one number repeats the run.
const seed = sampleSeed();
process.env[SEED_VARIABLE] = String(seed);
process.stderr.write(`${SEED_VARIABLE}=${seed}\n`);
const report = new Report(ROOT);
const tests = run({
  files: files.map((file) => join(ROOT, file)),
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
