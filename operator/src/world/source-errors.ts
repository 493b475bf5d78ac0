/** What a failed read of a source image means to a World or a throwaway session. */
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { RegistryError, type RegistryErrorCode } from "../registry/errors.ts";

/** A source that does not exist stalls the object; a registry that does not answer is tried again. */
export async function explainSourceErrors<R>(image: string, call: () => Promise<R>): Promise<R> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    if (error.code === "Unavailable" || error.code === "DigestMismatch" || error.code === "UploadNotAdvancing") {
      throw new Waiting("RegistryUnavailable", {
        message: `copying ${image}: ${error.message}`,
        remediation: "nothing is lost; the copy is tried again until the registry answers",
        afterMs: error.retryAfterMs ?? 10_000,
        cause: error,
      });
    }
    throw new Terminal(REASONS[error.code] ?? "ImageUnsupported", {
      message: `${image}: ${error.message}`,
      remediation: "create the object anew with another image, or grant access to its registry",
      cause: error,
    });
  }
}

const REASONS: Readonly<Partial<Record<RegistryErrorCode, string>>> = {
  NotFound: "ImageNotFound",
  Unauthorized: "ImageUnauthorized",
  SourceNotAllowed: "ImageNotAllowed",
  PlatformNotOffered: "PlatformNotOffered",
};
