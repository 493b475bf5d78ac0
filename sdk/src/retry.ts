import { ConflictError, ConnectionError, RequestError } from "./errors.ts";

/**
 * `Repeatable`: a second time does no harm (a read, a touch, a request with an id). `Once`: a second time may do it twice,
 * so that it is sent again only when it is certain that nothing was done.
 */
export type Repetition = "Repeatable" | "Once";

/** What the call has been through. */
export interface RetryFacts {
  readonly repetition: Repetition;
  /** Tries so far, at least 1. */
  readonly tries: number;
  /** Credentials were read anew in this call already. */
  readonly refreshed: boolean;
  /** Milliseconds since the first try. */
  readonly elapsedMs: number;
}

export type RetryVerdict =
  | { readonly kind: "GiveUp" }
  | { readonly kind: "Again"; readonly afterMs: number }
  /** Read tokens, certificates and trust anchors anew, then try again. */
  | { readonly kind: "Refresh" };

const MAX_TRIES = 5;
/** The gateway reads the Sandbox a moment before the condition that the SDK saw; this long, it is that moment. */
const NOT_READY_MS = 5_000;
const GIVE_UP: RetryVerdict = { kind: "GiveUp" };

/** Whether the call that failed is sent again. */
export function judgeRetry(error: unknown, facts: RetryFacts): RetryVerdict {
  if (wantsFreshCredentials(error)) return facts.refreshed ? GIVE_UP : { kind: "Refresh" };
  if (error instanceof ConflictError && error.code === "NotReady") {
    return facts.elapsedMs < NOT_READY_MS ? { kind: "Again", afterMs: growing(facts.tries, 400) } : GIVE_UP;
  }
  if (facts.tries >= MAX_TRIES || !mayTryAgain(error, facts.repetition)) return GIVE_UP;
  const wished = error instanceof RequestError ? error.retryAfterMs : undefined;
  return { kind: "Again", afterMs: wished ?? growing(facts.tries, 2_000) };
}

function mayTryAgain(error: unknown, repetition: Repetition): boolean {
  if (error instanceof ConnectionError) return repetition === "Repeatable" || !error.outcomeUnknown;
  if (!(error instanceof RequestError)) return false;
  // Too many requests is said before anything is done.
  if (error.status === 429) return true;
  return repetition === "Repeatable" && [502, 503, 504].includes(error.status);
}

const growing = (tries: number, longest: number): number => Math.min(50 * 2 ** tries, longest);

function wantsFreshCredentials(error: unknown): boolean {
  if (error instanceof RequestError) return error.status === 401;
  return error instanceof ConnectionError && isUntrusted(error.cause);
}

const UNTRUSTED = new Set([
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "CERT_SIGNATURE_FAILURE",
  "CERT_HAS_EXPIRED",
]);

/** Failures before a byte of the request was sent. A reset during the handshake is not told apart, so it is not here. */
const NEVER_SENT = new Set([
  ...UNTRUSTED,
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

const isUntrusted = (error: unknown): boolean => UNTRUSTED.has(socketCodeOf(error) ?? "");

/** A socket's or undici's failure as an error of ours; `undefined` for anything else, a mistake in the code for one. */
export function toConnectionError(cause: unknown, what: string): ConnectionError | undefined {
  const code = socketCodeOf(cause);
  if (code === undefined || code === "UND_ERR_INVALID_ARG") return undefined;
  const why = cause instanceof Error && cause.message !== "" ? cause.message : code;
  const neverSent = NEVER_SENT.has(code);
  return new ConnectionError({
    code: neverSent ? "Unreachable" : "ConnectionLost",
    message: `${what}: ${why}`,
    remediation: neverSent
      ? "check the server's address, and that it runs and is trusted"
      : "the outcome is unknown: look at what was done before you ask again",
    outcomeUnknown: !neverSent,
    cause,
  });
}

/** Several addresses that failed are told as one error without a code of its own. */
function socketCodeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if ("code" in error && typeof error.code === "string") return error.code;
  return error instanceof AggregateError ? socketCodeOf(error.errors[0]) : undefined;
}
