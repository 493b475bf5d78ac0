/** Structured logging as the runtime needs it; a pino logger fits. Fields hold no secret. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Drops everything: the default where no logger is given. */
export const silentLog: Log = { debug: drop, info: drop, warn: drop, error: drop };

function drop(): undefined {
  return undefined;
}
