import { ProtocolError } from "./errors.ts";
import { isRecord, numberIn, timeIn } from "./json.ts";

/** What became of a command. */
export class ExecResult {
  /** As the supervisor recorded it; 128 + `signal` when a signal ended the command, 124 when it was timed out. */
  readonly exitCode: number;
  /** Number of the signal that ended the command; 0: none did. */
  readonly signal: number;
  /** Exactly what the command wrote. */
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** True when `timeoutSeconds` passed; the command's whole process group was killed. */
  readonly timedOut: boolean;
  /** Milliseconds the command ran. */
  readonly durationMs: number;
  /** When the session expires now; absent when it ended while the command ran. */
  readonly expiresAt: Date | undefined;

  constructor(facts: Pick<ExecResult, (typeof FIELDS)[number]>) {
    this.exitCode = facts.exitCode;
    this.signal = facts.signal;
    this.stdoutBytes = facts.stdoutBytes;
    this.stderrBytes = facts.stderrBytes;
    this.timedOut = facts.timedOut;
    this.durationMs = facts.durationMs;
    this.expiresAt = facts.expiresAt;
  }

  /** `stdoutBytes` as UTF-8; what is none becomes U+FFFD. */
  get stdout(): string {
    return decode(this.stdoutBytes);
  }

  /** `stderrBytes` as UTF-8; what is none becomes U+FFFD. */
  get stderr(): string {
    return decode(this.stderrBytes);
  }
}

const FIELDS = ["exitCode", "signal", "stdoutBytes", "stderrBytes", "timedOut", "durationMs", "expiresAt"] as const;

/** The gateway's answer, checked: an exit code that is not there must not be read as success. */
export function execResultIn(answer: unknown): ExecResult {
  const exitCode = numberIn(answer, "exitCode");
  const stdoutBytes = base64In(answer, "stdout");
  const stderrBytes = base64In(answer, "stderr");
  if (!isRecord(answer) || exitCode === undefined || stdoutBytes === undefined || stderrBytes === undefined) {
    throw new ProtocolError({
      code: "BadExecAnswer",
      message: "the gateway's answer to exec lacks an exit code or a stream",
      remediation: "compare the versions of SDK and gateway",
      outcomeUnknown: true,
    });
  }
  return new ExecResult({
    exitCode,
    signal: numberIn(answer, "signal") ?? 0,
    stdoutBytes,
    stderrBytes,
    timedOut: answer["timedOut"] === true,
    durationMs: numberIn(answer, "durationMs") ?? 0,
    expiresAt: timeIn(answer, "expiresAt"),
  });
}

function base64In(answer: unknown, member: string): Uint8Array | undefined {
  const text = isRecord(answer) ? answer[member] : undefined;
  return typeof text === "string" ? new Uint8Array(Buffer.from(text, "base64")) : undefined;
}

/** A byte order mark is part of what was written. */
const decode = (bytes: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
