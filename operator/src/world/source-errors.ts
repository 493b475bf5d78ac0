/** What a failed registry call means to a World or a throwaway session, and whose registry it was. */
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { RegistryError, type RegistryErrorCode } from "../registry/errors.ts";
import { TargetRegistryError } from "../registry/sources.ts";

/** The registry has to answer first; nothing about the object or the settings is wrong. */
const HEALS: readonly RegistryErrorCode[] = ["Unavailable", "DigestMismatch", "UploadNotAdvancing"];

/**
 * A source that does not exist stalls the object. What is mended outside of it is tried again: a registry that does not answer
 * or does not let us in, and everything that the installation's own registry has against the copy.
 */
export async function explainSourceErrors<R>(image: string, call: () => Promise<R>): Promise<R> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof TargetRegistryError) throw ownRegistryWaits(`copying ${image}`, error.failure);
    if (!(error instanceof RegistryError)) throw error;
    if (HEALS.includes(error.code)) {
      throw new Waiting("RegistryUnavailable", {
        message: `copying ${image}: ${error.message}`,
        remediation: "nothing is lost; the copy is tried again until the registry answers",
        afterMs: error.retryAfterMs ?? 10_000,
        cause: error,
      });
    }
    if (error.code === "Unauthorized") {
      throw new Waiting("ImageUnauthorized", {
        message: `${image}: ${error.message}`,
        remediation: "grant access to its registry, it is tried again; or create the object anew with another image",
        afterMs: 60_000,
        cause: error,
      });
    }
    throw new Terminal(REASONS[error.code] ?? "ImageUnsupported", {
      message: `${image}: ${error.message}`,
      remediation: "create the object anew with another image",
      cause: error,
    });
  }
}

/** The same for calls that only the installation's own registry answers. */
export async function explainOwnRegistryErrors<R>(doing: string, call: () => Promise<R>): Promise<R> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    throw ownRegistryWaits(doing, error);
  }
}

/** The reason of a condition about the installation's own registry. */
export const registryReason = (error: RegistryError): string =>
  error.code === "Unavailable" ? "RegistryUnavailable" : "RegistryRefused";

function ownRegistryWaits(doing: string, error: RegistryError): Waiting {
  const heals = HEALS.includes(error.code);
  return new Waiting(heals ? "RegistryUnavailable" : "RegistryRefused", {
    message: `${doing}: the installation's registry: ${error.message}`,
    remediation: heals
      ? "nothing is lost; it is tried again until the registry answers"
      : "nothing is lost; correct the credentials, rights or limits of the installation's registry, it is tried again",
    afterMs: error.retryAfterMs ?? (heals ? 10_000 : 30_000),
    cause: error,
  });
}

const REASONS: Readonly<Partial<Record<RegistryErrorCode, string>>> = {
  NotFound: "ImageNotFound",
  SourceNotAllowed: "ImageNotAllowed",
  PlatformNotOffered: "PlatformNotOffered",
};
