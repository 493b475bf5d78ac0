/** Why a registry call failed. */
export type RegistryErrorCode =
  /** The registry answered 404 for this manifest, blob or repository. */
  | "NotFound"
  /** 401 or 403 after authentication was tried. */
  | "Unauthorized"
  /** No connection, a reset, a silence longer than the deadline, 429 or 5xx: worth trying again. */
  | "Unavailable"
  /** The bytes are not what their digest or length says. */
  | "DigestMismatch"
  /** The answer does not follow the distribution specification. */
  | "Malformed"
  /** The registry refused the content (400, 413). */
  | "Refused"
  /** The address is not allowed as a source (allow list, link-local, metadata). */
  | "SourceNotAllowed"
  /** A chunk was answered with 202, but the registry did not keep it (seen on ECR): upload the blob in one piece. */
  | "UploadNotAdvancing"
  /** The image has no variant for the platform asked for; the message lists those it offers. */
  | "PlatformNotOffered"
  /** The image is not one we can copy faithfully (foreign layers, an artifact, layers without diff ids). */
  | "UnsupportedImage";

/** What is known about a failure beside its class. */
export interface RegistryErrorOptions {
  readonly status?: number | undefined;
  readonly cause?: unknown;
  readonly reasons?: readonly string[];
  readonly retryAfterMs?: number | undefined;
}

/** A registry call failed; `code` says what kind of failure. Messages hold no credential and no URL query. */
export class RegistryError extends Error {
  override readonly name = "RegistryError";
  readonly code: RegistryErrorCode;
  /** HTTP status, when there was one. */
  readonly status: number | undefined;
  /** The error codes of the registry's answer, as the distribution specification names them: `MANIFEST_BLOB_UNKNOWN`. */
  readonly reasons: readonly string[];
  /** How long the registry asked to be left alone, in milliseconds, when it said so. */
  readonly retryAfterMs: number | undefined;
  constructor(code: RegistryErrorCode, message: string, options: RegistryErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    this.status = options.status;
    this.reasons = options.reasons ?? [];
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Whether `error` is a `RegistryError` of this class. */
export const isRegistryError = (error: unknown, code: RegistryErrorCode): error is RegistryError =>
  error instanceof RegistryError && error.code === code;
