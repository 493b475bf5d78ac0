/**
 * `make chaos`: the operator is killed at every point once, then CHAOS_FAULTS random faults come, and an auditor counts what
 * was lost. CHAOS_SEED draws the same faults again. Narration on stderr, one line of JSON on stdout.
 */
import { randomInt } from "node:crypto";
import { join } from "node:path";
import { runCommandLine, UsageError } from "../../hack/parts/command-line.ts";
import { perform } from "./performance.ts";
import { failuresOf, resultOf, tableOf } from "./result.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const MOST_HOURS = 4;
/** DESIGN §12: over 50 Worlds. */
const LONG_RUN = 500;

await runCommandLine(async (_words, interrupted) => {
  const seed = numberIn("CHAOS_SEED", randomInt(2 ** 31));
  const faults = numberIn("CHAOS_FAULTS", 60);
  const began = performance.now();
  const say = (sentence: string): void => {
    const seconds = ((performance.now() - began) / 1000).toFixed(0).padStart(5);
    process.stderr.write(`${seconds} ${sentence}\n`);
  };
  say(`seed ${seed}: CHAOS_SEED=${seed} CHAOS_FAULTS=${faults} make chaos`);
  const everyPoint = process.env["CHAOS_POINTS"] !== "none";
  const performed = await perform({
    seed,
    faults,
    everyPoint,
    lanes: 6,
    restMs: 60_000,
    sessionsAtRest: faults >= LONG_RUN ? 50 : 12,
    evidence: join(ROOT, ".local", "chaos", String(seed)),
    say,
    signal: AbortSignal.any([interrupted, AbortSignal.timeout(MOST_HOURS * 3_600_000)]),
  });
  for (const line of tableOf(performed)) say(line);
  say(`looked at ${JSON.stringify(performed.report.looked)} in ${performed.lives} sessions`);
  const failures = failuresOf(performed, { everyPoint });
  for (const failure of failures) say(`FAILED ${failure}`);
  process.stdout.write(`${JSON.stringify(resultOf(seed, performed))}\n`);
  return failures.length === 0 ? 0 : 1;
});

function numberIn(name: string, otherwise: number): number {
  const given = process.env[name];
  if (given === undefined || given === "") return otherwise;
  if (!/^\d+$/.test(given)) throw new UsageError(`${name} must be a whole number, not ${given}`);
  return Number(given);
}
