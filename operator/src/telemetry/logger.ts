/** One root logger for the process: JSON lines on stdout, a child per part. Secrets are redacted by key as a last line of defence. */
import { type Logger, pino } from "pino";

const SECRET_KEYS = ["password", "token", "authorization", "secret", "stdin", "env"];

export function createLogger(level: "debug" | "info" | "warn" | "error"): Logger {
  return pino({
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: SECRET_KEYS.flatMap((key) => [key, `*.${key}`]), censor: "[redacted]" },
    serializers: { err: describeError },
  });
}

/** Type, message and causes of an error; not its other fields, which may carry a request. */
function describeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return String(error);
  return {
    type: error.name,
    message: error.message,
    stack: error.stack?.split("\n").slice(1, 8).join("\n"),
    ...(error.cause !== undefined && depth < 4 ? { cause: describeError(error.cause, depth + 1) } : {}),
  };
}
