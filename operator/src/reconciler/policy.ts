/**
 * Errors that carry their own policy. A phase throws one of these; the controller loop decides what to do with it.
 * Anything else that is thrown means: retry this key with exponential backoff.
 */

export interface PolicyDetails {
  /** What happened, for a person. Holds no secret. */
  message: string;
  /** What the reader can do about it. */
  remediation?: string;
  cause?: unknown;
}

/** A human must change something: no retry until the object's generation changes. Becomes the condition `Stalled`. */
export class Terminal extends Error {
  override readonly name = "Terminal";
  /** PascalCase constant; becomes the condition's and the Event's reason. */
  readonly reason: string;
  readonly remediation: string | undefined;
  constructor(reason: string, details: PolicyDetails) {
    super(details.message, { cause: details.cause });
    this.reason = reason;
    this.remediation = details.remediation;
  }
}

/**
 * Another writer won: what this pass judged is not what is recorded now, or the object is gone. As a write conflict: the next
 * pass judges again, and nobody is told.
 */
export class Overtaken extends Error {
  override readonly name: string = "Overtaken";
}

/** Something else must happen first: come back after `afterMs`. Not an error, not counted as one. */
export class Waiting extends Error {
  override readonly name = "Waiting";
  readonly reason: string;
  readonly remediation: string | undefined;
  readonly afterMs: number;
  /** Type of the Event: `Normal` where everything that starts in order waits like this. Default `Warning`. */
  readonly tells: "Normal" | "Warning";
  constructor(reason: string, details: PolicyDetails & { afterMs: number; tells?: "Normal" | "Warning" }) {
    super(details.message, { cause: details.cause });
    this.reason = reason;
    this.remediation = details.remediation;
    this.afterMs = details.afterMs;
    this.tells = details.tells ?? "Warning";
  }
}
