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

/** Deepest that is told, and most of errors that come together. */
const DEEPEST = 4;
const MOST_TOLD = 8;

/** Type, message, causes and parts of an error; not its other fields, which may carry a request. */
function describeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return String(error);
  return {
    type: error.name,
    message: error.message,
    stack: error.stack?.split("\n").slice(1, 8).join("\n"),
    ...(depth < DEEPEST ? describeInner(error, depth + 1) : {}),
  };
}

function describeInner(error: Error, depth: number): object {
  const parts = partsOf(error).slice(0, MOST_TOLD);
  return {
    ...(error.cause === undefined ? {} : { cause: describeError(error.cause, depth) }),
    ...(parts.length === 0 ? {} : { errors: parts.map((part) => describeError(part, depth)) }),
  };
}

function partsOf(error: Error): unknown[] {
  if (error instanceof AggregateError) return error.errors;
  return error instanceof SuppressedError ? [error.error, error.suppressed] : [];
}
