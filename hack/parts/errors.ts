/** A program or package that a local part needs is not on this machine; the message says what to install or set. */
export class MissingProgram extends Error {
  override readonly name = "MissingProgram";
  /** The program or Debian package that is missing. */
  readonly program: string;
  constructor(program: string, message: string) {
    super(message);
    this.program = program;
  }
}

/** Something of the machine is missing, seen before anything was begun; the message lists all of it. */
export class NotPrepared extends Error {
  override readonly name = "NotPrepared";
}

/** A local part did not start, died, or could not be ended; the message carries the last lines of its log. */
export class PartFailed extends Error {
  override readonly name = "PartFailed";
  /** The part, as named in messages: `kube-apiserver`, `dockerd` … */
  readonly part: string;
  constructor(part: string, message: string, options?: ErrorOptions) {
    super(`${part}: ${message}`, options);
    this.part = part;
  }
}

/** A condition waited for did not hold in time; `cause` is what the last look at it threw, if it threw. */
export class NeverHappened extends Error {
  override readonly name = "NeverHappened";
}

/** The `code` of a system error (`ENOENT`, `EEXIST` …), undefined for anything else. */
export function systemErrorCode(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}
