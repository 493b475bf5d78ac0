/** What every error of the SDK says. */
export interface ErrorFacts {
  readonly code: string;
  readonly message: string;
  readonly remediation?: string | undefined;
  readonly status?: number | undefined;
  readonly outcomeUnknown?: boolean | undefined;
  readonly cause?: unknown;
}

/**
 * Every rejection of the SDK, the caller's own abort aside: that rejects with the signal's reason. No error holds a
 * credential.
 */
export class AgentWorldsError extends Error {
  override readonly name: string = "AgentWorldsError";
  /** PascalCase constant to switch on: the gateway's `details.code`, a condition's reason, or the SDK's own. */
  readonly code: string;
  /** What the reader can do about it; absent where nothing general can be said. */
  readonly remediation: string | undefined;
  /** HTTP status where a server answered. */
  readonly status: number | undefined;
  /** True when what was asked for may have happened all the same: look before you ask again. */
  readonly outcomeUnknown: boolean;

  constructor(facts: ErrorFacts) {
    super(facts.message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.code = facts.code;
    this.remediation = facts.remediation;
    this.status = facts.status;
    this.outcomeUnknown = facts.outcomeUnknown ?? false;
  }
}

/** No usable address or credential, or an argument that cannot be right. Nothing was sent. */
export class ConfigurationError extends AgentWorldsError {
  override readonly name: string = "ConfigurationError";
}

/** No answer came. `code` is `Unreachable` when nothing can have been sent, else `ConnectionLost`; `cause` is the socket's error. */
export class ConnectionError extends AgentWorldsError {
  override readonly name: string = "ConnectionError";
}

/** The call's own deadline passed. */
export class DeadlineError extends AgentWorldsError {
  override readonly name: string = "DeadlineError";
}

/** A server's answer is not what the API promises. */
export class ProtocolError extends AgentWorldsError {
  override readonly name: string = "ProtocolError";
}

/** What an answered refusal adds. */
export interface RequestErrorFacts extends ErrorFacts {
  readonly status: number;
  readonly retryAfterMs?: number | undefined;
}

/** A server answered, and not with success. `cause` says what happened, where a gateway answered; `message` goes on to what can be done. */
export class RequestError extends AgentWorldsError {
  override readonly name: string = "RequestError";
  override readonly status: number;
  /** When the server would like to be asked again, in milliseconds from its answer. */
  readonly retryAfterMs: number | undefined;

  constructor(facts: RequestErrorFacts) {
    super(facts);
    this.status = facts.status;
    this.retryAfterMs = facts.retryAfterMs;
  }
}

/** 401 or 403: who you are is not known, or may not do this. */
export class PermissionError extends RequestError {
  override readonly name: string = "PermissionError";
}

/** 404: there is no such Sandbox, World or file, or the API itself is not installed. */
export class NotFoundError extends RequestError {
  override readonly name: string = "NotFoundError";
}

/** 409: the state of things forbids it now, for example `Hibernated`, `NotReady`, `NameTaken`. */
export class ConflictError extends RequestError {
  override readonly name: string = "ConflictError";
}

/** 410: the session is closed; `cause` names the version it ended in. */
export class ClosedError extends RequestError {
  override readonly name: string = "ClosedError";
}

/** 429 or 5xx: the server, or something behind it, cannot do it now. */
export class UnavailableError extends RequestError {
  override readonly name: string = "UnavailableError";
}

/** What is known of an object that did not become Ready. */
export interface NotReadyFacts extends ErrorFacts {
  readonly reason: string | undefined;
  readonly object: { readonly kind: string; readonly namespace: string; readonly name: string };
}

/**
 * A Sandbox or World did not become Ready: `code` is the reason that ended the wait (`CapabilityMissing`,
 * `RuntimeNotFound`, …) and `cause` the condition's sentence, or `code` is `DeadlineExceeded` when it was still waiting;
 * `reason` then says what for (`WorldHeld`, …).
 */
export class NotReadyError extends AgentWorldsError {
  override readonly name: string = "NotReadyError";
  /** Reason of the last condition seen; absent when none was. */
  readonly reason: string | undefined;
  /** What was waited for. */
  readonly object: NotReadyFacts["object"];

  constructor(facts: NotReadyFacts) {
    super(facts);
    this.reason = facts.reason;
    this.object = facts.object;
  }
}
