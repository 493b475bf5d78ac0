/**
 * How the runtime reads an error of the API without importing kube/: by shape, as list-watch.ts promises.
 */
export interface ApiFailure {
  readonly status: number;
  readonly reason: string;
  readonly retryAfterMs: number | undefined;
}

/** The HTTP answer an error stands for, or undefined when there was none (connection trouble, a bug, an abort). */
export function apiFailureOf(error: unknown): ApiFailure | undefined {
  if (!(error instanceof Error) || !("status" in error) || typeof error.status !== "number") return undefined;
  const reason = "reason" in error && typeof error.reason === "string" ? error.reason : "";
  const retryAfter = "retryAfterMs" in error && typeof error.retryAfterMs === "number" ? error.retryAfterMs : undefined;
  return { status: error.status, reason, retryAfterMs: retryAfter };
}

/** Somebody wrote in between; the next pass reads the newer object. An `AlreadyExists` is not that. */
export function isWriteConflict(error: unknown): boolean {
  const failure = apiFailureOf(error);
  return failure?.status === 409 && failure.reason !== "AlreadyExists";
}
