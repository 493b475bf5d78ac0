/** A fixed sample of `make chaos`, about two minutes: operators, API server, registry, host and containers fail, and nothing is lost. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { drawVaried } from "./draw/faults.ts";
import { seeded } from "./draw/random.ts";
import { perform } from "./performance.ts";
import { failuresOf, resultOf } from "./result.ts";

const SEED = 4;
const KILLS = 5;
const OTHERS = 11;

test(`sixteen faults of seed ${SEED}: nothing acknowledged is lost, nothing is left behind, nothing is written at rest`, async (t) => {
  const began = performance.now();
  const performed = await perform({
    seed: SEED,
    faults: KILLS + OTHERS,
    chosen: drawVaried(seeded(SEED), { kills: KILLS, others: OTHERS }),
    everyPoint: false,
    lanes: 4,
    restMs: 10_000,
    sessionsAtRest: 4,
    evidence: join(import.meta.dirname, "..", "..", ".local", "chaos", "sample"),
    say: (sentence) => t.diagnostic(`${((performance.now() - began) / 1000).toFixed(0).padStart(4)} ${sentence}`),
    signal: t.signal,
  });
  t.diagnostic(JSON.stringify(resultOf(SEED, performed)));
  assert.deepEqual(failuresOf(performed, { everyPoint: false }), []);
});
