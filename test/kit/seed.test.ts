import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { SEED_VARIABLE, sampleSeed, seedsOf } from "./seed.ts";

test("without a setting the samples are the same every time; a number is taken at its word; random is another one", () => {
  assert.equal(sampleSeed(""), sampleSeed(""));
  assert.equal(sampleSeed("7"), 7);
  assert.ok(new Set([1, 2, 3, 4].map(() => sampleSeed("random"))).size > 1);
  for (const wrong of ["-1", "1.5", "x", "2147483648"]) assert.throws(() => sampleSeed(wrong), RangeError);
});

test("seeds in a row differ, and come again", () => {
  const [one, again, other] = [seedsOf("blobs", 1), seedsOf("blobs", 1), seedsOf("blobs", 2)];
  const row = [one(), one()];
  assert.notEqual(row[0], row[1]);
  assert.deepEqual([again(), again()], row);
  assert.notEqual(other(), row[0]);
});

test("with the preload a property draws the samples of the seed", async () => {
  const preload = fileURLToPath(new URL("./fixed-samples.ts", import.meta.url));
  const script = 'import fc from "fast-check"; console.log(JSON.stringify(fc.sample(fc.nat(), 3)));';
  const sample = async (seed: string) => {
    const call = ["--import", preload, "--input-type=module", "--eval", script];
    const env = { ...process.env, [SEED_VARIABLE]: seed };
    return (await promisify(execFile)(process.execPath, call, { env, cwd: import.meta.dirname })).stdout;
  };
  assert.equal(await sample("7"), await sample("7"));
  assert.notEqual(await sample("7"), await sample("8"));
});
