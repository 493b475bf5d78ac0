/**
 * What Worlds held whose versions go with them: looked at between the release and the deletion, since nobody can afterwards.
 * Without it such a World would hide every loss that came before.
 */
import type { LedgerEntry } from "../ledger.ts";
import { type Version, type VersionReader, versionsIn } from "./versions.ts";

/** The registry is down for seconds at a time: a fault of the run, which is undone. */
const PATIENCE_MS = 30_000;
const AGAIN_MS = 500;

export class Witness {
  /** By `repository@digest`. */
  readonly seen = new Map<string, Version>();
  readonly #reader: VersionReader;
  readonly #ledger: () => readonly LedgerEntry[];
  readonly #patienceMs: number;

  constructor(options: { reader: VersionReader; ledger: () => readonly LedgerEntry[]; patienceMs?: number }) {
    this.#reader = options.reader;
    this.#ledger = options.ledger;
    this.#patienceMs = options.patienceMs ?? PATIENCE_MS;
  }

  /** Every version that was acknowledged to the World so far. */
  async look(world: string): Promise<void> {
    const until = performance.now() + this.#patienceMs;
    for (const [name, { repository, digest }] of versionsIn(this.#ledger(), (of) => of === world)) {
      let found = await this.#reader.version(repository, digest);
      while (found.kind === "broken" && performance.now() < until) {
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        found = await this.#reader.version(repository, digest);
      }
      this.seen.set(name, found);
    }
  }
}
