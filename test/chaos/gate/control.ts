/** What the runner and the operator processes tell each other: files in one folder, all of which survive a SIGKILL. */
import { appendFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemErrorCode } from "../../../hack/parts/errors.ts";
import { type KillPoint, keyOf } from "./points.ts";

/** From the runner to every operator process. */
export interface Control {
  /** Die at every point at which nobody has died yet. */
  readonly uncovered: boolean;
  /** Die at the n-th (from 1) passing of a point, once in all processes together: whoever comes first. */
  readonly armed?: KillPoint & { readonly id: string; readonly nth: number };
  /** How much the processes' clock differs from the machine's. */
  readonly clockOffsetMs: number;
}

/** A line of the trace: a point that was passed. */
export interface Passed extends KillPoint {
  readonly at: number;
  readonly pid: number;
}

/** A line of the deaths. */
export interface Death extends Passed {
  /** Of the arming that it came from; absent: the point was uncovered. */
  readonly armed?: string;
}

export const CALM: Control = { uncovered: false, clockOffsetMs: 0 };

/** The files of one folder. Synchronous throughout: a process that is about to die can wait for nothing. */
export class ControlFiles {
  readonly #control: string;
  readonly #trace: string;
  readonly #deaths: string;

  constructor(directory: string) {
    this.#control = join(directory, "control.json");
    this.#trace = join(directory, "trace.jsonl");
    this.#deaths = join(directory, "deaths.jsonl");
  }

  write(control: Control): void {
    writeFileSync(`${this.#control}.unfinished`, JSON.stringify(control));
    renameSync(`${this.#control}.unfinished`, this.#control);
  }

  read(): Control {
    return JSON.parse(readFileSync(this.#control, "utf8"));
  }

  passed(line: Passed): void {
    appendFileSync(this.#trace, `${JSON.stringify(line)}\n`);
  }

  died(line: Death): void {
    appendFileSync(this.#deaths, `${JSON.stringify(line)}\n`);
  }

  trace(): Passed[] {
    return linesOf(this.#trace);
  }

  deaths(): Death[] {
    return linesOf(this.#deaths);
  }
}

/** A line that its writer did not finish is no line. */
function linesOf<T>(path: string): T[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return [];
    throw error;
  }
  return text
    .split("\n")
    .slice(0, -1)
    .map((line): T => JSON.parse(line));
}

/** Which points exist, as far as any process has passed them, and at which one has died. */
export interface Coverage {
  readonly covered: readonly string[];
  readonly uncovered: readonly string[];
}

export function coverageOf(trace: readonly KillPoint[], deaths: readonly KillPoint[]): Coverage {
  const dead = new Set(deaths.map(keyOf));
  const all = [...new Set([...trace.map(keyOf), ...dead])].sort();
  return { covered: all.filter((key) => dead.has(key)), uncovered: all.filter((key) => !dead.has(key)) };
}
