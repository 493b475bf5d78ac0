/** Why a runtime call failed. `code` is what a client of the product sees in `details.code`. */
export type RuntimeErrorCode =
  | "HostUnreachable"
  | "ImageUnavailable"
  | "ComputeConflict"
  | "ComputeNotFound"
  | "ComputeNotRunning"
  | "ExecConnectionLost"
  | "OutputTooLarge"
  | "CommandNotStarted"
  | "CommandTooLarge"
  | "FileNotFound"
  | "NotAFile"
  | "FileRefused"
  | "CommitFailed"
  | "PushFailed"
  | "HostRefused";

export class RuntimeError extends Error {
  override readonly name = "RuntimeError";
  readonly code: RuntimeErrorCode;
  constructor(code: RuntimeErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

export const isRuntimeError = (error: unknown, code: RuntimeErrorCode): boolean =>
  error instanceof RuntimeError && error.code === code;
