/**
 * The seed of everything that tests draw at random. `make test` draws the same samples every time, so that a red run says
 * something about a change; `TEST_SEED=random` looks elsewhere, `TEST_SEED=<number>` there again.
 */
import { createHash, randomInt } from "node:crypto";

export const SEED_VARIABLE = "TEST_SEED";
const FIXED_SEED = 20_260_501;
/** fast-check takes a signed 32-bit number. */
const SEEDS = 2 ** 31;

/** Throws `RangeError` for a setting that is no seed. */
export function sampleSeed(setting = process.env[SEED_VARIABLE]): number {
  if (setting === undefined || setting === "") return FIXED_SEED;
  if (setting === "random") return randomInt(SEEDS);
  if (/^\d{1,10}$/.test(setting) && Number(setting) < SEEDS) return Number(setting);
  throw new RangeError(`${SEED_VARIABLE} is ${setting}, not "random" or a number from 0 to ${SEEDS - 1}`);
}

/** Seeds one after another, each another one; with the same name and setting the same ones. */
export function seedsOf(name: string, seed = sampleSeed()): () => string {
  let count = 0;
  return () => createHash("sha256").update(`${seed} ${name} ${count++}`).digest("hex").slice(0, 16);
}
