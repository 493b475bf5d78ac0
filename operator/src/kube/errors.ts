/** The `Status` object of an API-server error answer, as far as it is used. */
export interface StatusBody {
  readonly reason?: string;
  readonly message?: string;
  readonly code?: number;
  readonly details?: {
    readonly retryAfterSeconds?: number;
    readonly causes?: readonly { readonly message?: string }[];
  };
}

/** Any answer of the API server that is not a success. The message never contains headers or a request body. */
export class ApiError extends Error {
  override readonly name: string = "ApiError";
  /** HTTP status code. */
  readonly status: number;
  /** `metav1.Status.reason`, for example `NotFound`, `Conflict`, `AlreadyExists`, `Expired`. Empty when unknown. */
  readonly reason: string;
  /** From `Retry-After` or `details.retryAfterSeconds`, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  constructor(options: { status: number; reason: string; message: string; retryAfterMs?: number | undefined }) {
    super(options.message);
    this.status = options.status;
    this.reason = options.reason;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** The request never got an answer: refused, reset, timed out at the deadline, or cut in mid-answer. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
  /** True when the server may have carried the request out (it had been sent when the connection broke). */
  readonly outcomeUnknown: boolean;
  constructor(message: string, options: { outcomeUnknown: boolean; cause?: unknown }) {
    super(message, { cause: options.cause });
    this.outcomeUnknown = options.outcomeUnknown;
  }
}

export const isNotFound = (error: unknown): boolean => error instanceof ApiError && error.status === 404;
/** 409 with reason `Conflict`: somebody wrote in between. */
export const isConflict = (error: unknown): boolean =>
  error instanceof ApiError && error.status === 409 && error.reason !== "AlreadyExists";
export const isAlreadyExists = (error: unknown): boolean =>
  error instanceof ApiError && error.status === 409 && error.reason === "AlreadyExists";
