import { MissingProgram, NeverHappened, NotPrepared, PartFailed, systemErrorCode } from "./errors.ts";

/**
 * Runs a command-line program: its number becomes the exit code, and an error that a person can act on is printed as
 * one sentence. Anything else is a defect and shows its stack.
 */
export async function runCommandLine(
  main: (words: readonly string[], stop: AbortSignal) => Promise<number>,
): Promise<void> {
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => stop.abort(new Interrupted(name)));
  }
  try {
    process.exitCode = await main(process.argv.slice(2), stop.signal);
  } catch (thrown) {
    // Once asked to stop, whatever broke off is a consequence of that.
    const error: unknown = stop.signal.aborted ? stop.signal.reason : thrown;
    process.exitCode = error instanceof Interrupted ? exitCodeOf(error.signal) : 1;
    process.stderr.write(`${sentence(error)}\n`);
  }
}

/** Why a program stops before its end. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
  /** The signal that was received. */
  readonly signal: "SIGINT" | "SIGTERM" | "SIGHUP";
  constructor(signal: "SIGINT" | "SIGTERM" | "SIGHUP") {
    super(`stopped by ${signal}`);
    this.signal = signal;
  }
}

/** What a shell reports for a program ended by a signal. */
export function exitCodeOf(signal: NodeJS.Signals): number {
  const numbers: Partial<Record<NodeJS.Signals, number>> = { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 };
  return 128 + (numbers[signal] ?? 0);
}

/** An expected error as its message, any other with its stack. */
export function sentence(error: unknown): string {
  const expected = [MissingProgram, NotPrepared, PartFailed, NeverHappened, Interrupted, UsageError];
  if (error instanceof Error && expected.some((known) => error instanceof known)) return error.message;
  // What node:util's parseArgs says of a word it does not know is meant for people.
  if (systemErrorCode(error)?.startsWith("ERR_PARSE_ARGS_")) return error instanceof Error ? error.message : "";
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** Words on the command line that the program does not know. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
