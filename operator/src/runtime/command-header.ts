import type { ExecRequest } from "./contract.ts";
import { RuntimeError } from "./errors.ts";
import { encodeJsonFrame, FRAME, FrameTooLarge } from "./frames.ts";

/** Default of `ExecRequest.timeoutMs`. */
export const DEFAULT_EXEC_TIMEOUT_MS = 60_000;
/** Default of `ExecRequest.maxOutputBytes` (DESIGN §11). */
export const DEFAULT_MAX_OUTPUT_BYTES = 16 << 20;

/**
 * All that a helper learns of a command but its stdin, as one frame. To be made before anything is started: a command that does
 * not fit is `CommandTooLarge`.
 */
export function commandHeader(request: ExecRequest): Buffer {
  const header = {
    command: request.command,
    env: request.env ?? {},
    workingDir: request.workingDir ?? "",
    user: request.user ?? "",
    timeoutMs: request.timeoutMs ?? DEFAULT_EXEC_TIMEOUT_MS,
    maxOutputBytes: request.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES,
  };
  try {
    return encodeJsonFrame(FRAME.header, header);
  } catch (error) {
    if (!(error instanceof FrameTooLarge)) throw error;
    throw new RuntimeError(
      "CommandTooLarge",
      `command and environment, the session's own included, are ${error.bytes} bytes as JSON; at most ${error.limit} can be passed`,
    );
  }
}
