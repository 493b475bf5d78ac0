/**
 * The workload's own book, kept outside the product: what was acknowledged, when, and to whom. One line of JSON per entry,
 * on disk before anything goes on. The auditor reads nothing else of the run.
 */
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";

/** A boot of a session, named by the Sandbox's UID and its ordinal. */
export interface BootOf {
  readonly sandbox: string;
  readonly boot: number;
}

/** A file by its path below the working folder, and the SHA-256 of its content. */
export type Files = Readonly<Record<string, string>>;

export type LedgerFact =
  /** A World was made. `keepVersions` 0: no version of it may ever go. */
  | { readonly kind: "world"; readonly world: string; readonly uid: string; readonly keepVersions: number }
  /** It is about to be deleted with all its versions, as its policy says: what they held is looked at now, or never. */
  | { readonly kind: "released"; readonly world: string }
  /** Where its versions live, `repository` without the registry's host. */
  | { readonly kind: "repository"; readonly world: string; readonly repository: string }
  /** This boot was asked for at `since`: whatever was acknowledged before may not be missing from what it boots. */
  | ({ readonly kind: "wanted"; readonly world: string; readonly since: number } & BootOf)
  /** The container of this boot is made of this image, and its first look found these files. */
  | ({ readonly kind: "booted"; readonly world: string; readonly digest: string; readonly files?: Files } & BootOf)
  /** A file was written, and whoever wrote it was told so. */
  | ({ readonly kind: "written"; readonly world: string; readonly path: string; readonly sha256: string } & BootOf)
  /** A snapshot was asked for. */
  | ({ readonly kind: "snapshotAsked"; readonly request: string } & BootOf)
  /** A version was acknowledged: in World.status.head, in the Sandbox's status, or as the answer to a request. */
  | {
      readonly kind: "version";
      readonly world: string;
      readonly version: number;
      readonly digest: string;
      readonly request?: string;
    }
  /** It was asked for that the work of this boot is dropped. */
  | ({ readonly kind: "discarded" } & BootOf)
  /** It was said of this boot's work that it is lost or kept elsewhere, and why. */
  | ({
      readonly kind: "confessed";
      readonly condition: string;
      readonly reason: string;
      readonly kept?: string;
    } & BootOf)
  /** The boot is over, as far as the Sandbox says, or its object is gone. */
  | ({ readonly kind: "ended"; readonly outcome: string } & BootOf);

export type LedgerEntry = LedgerFact & { readonly at: number };

export class Ledger implements Disposable {
  readonly #file: number;
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
    this.#file = openSync(path, "a", 0o600);
  }

  /** Returns when the fact is on disk. */
  note(fact: LedgerFact): void {
    writeSync(this.#file, `${JSON.stringify({ ...fact, at: Date.now() })}\n`);
    fsyncSync(this.#file);
  }

  entries(): LedgerEntry[] {
    return readLedger(this.#path);
  }

  [Symbol.dispose](): void {
    closeSync(this.#file);
  }
}

export function readLedger(path: string): LedgerEntry[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line): LedgerEntry => JSON.parse(line));
}
