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
  | "SourceNotAllowed";

export class RegistryError extends Error {
  override readonly name = "RegistryError";
  readonly code: RegistryErrorCode;
  /** HTTP status, when there was one. */
  readonly status: number | undefined;
  constructor(code: RegistryErrorCode, message: string, options?: { status?: number | undefined; cause?: unknown }) {
    super(message, { cause: options?.cause });
    this.code = code;
    this.status = options?.status;
  }
}

export const isRegistryError = (error: unknown, code: RegistryErrorCode): boolean =>
  error instanceof RegistryError && error.code === code;
