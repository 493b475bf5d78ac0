import { relative } from "node:path";
import type { TestEvent } from "node:test/reporters";

const SLOWEST = 12;
const SECOND = 1_000;

/** What a run was like: which files took longest, and every test that was skipped, so that none is missed in silence. */
export class Report {
  readonly #root: string;
  readonly #files: { readonly name: string; readonly seconds: number }[] = [];
  readonly #skipped: string[] = [];
  #failed = 0;

  constructor(root: string) {
    this.#root = root;
  }

  /** Whether a test, or a file as a whole, failed. */
  get failed(): boolean {
    return this.#failed > 0;
  }

  note({ type, data }: TestEvent): void {
    if (type === "test:fail") this.#failed++;
    if (type !== "test:complete") return;
    const { name, file = "", skip, details } = data;
    const path = relative(this.#root, file);
    if (skip !== undefined && skip !== false) {
      this.#skipped.push(`${path}: ${name}${typeof skip === "string" && skip !== "" ? `: ${skip}` : ""}`);
    }
    // A file is reported as a test of its own, by its path.
    if (name === path || name === file) this.#files.push({ name: path, seconds: details.duration_ms / SECOND });
  }

  lines(): string[] {
    const slowest = this.#files.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
    return [
      ...slowest
        .filter(({ seconds }) => seconds >= 1)
        .map(({ name, seconds }) => `${Math.round(seconds)} s in ${name}`),
      `${this.#skipped.length} skipped`,
      ...this.#skipped.map((line) => `skipped: ${line}`),
    ];
  }
}
