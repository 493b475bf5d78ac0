import { ApiError, ConnectionError } from "../kube/errors.ts";
import { RuntimeError, type RuntimeErrorCode } from "../runtime/errors.ts";
import { EnvironmentIncomplete } from "../runtime/session-environment.ts";

/** What a refusal tells its reader, an agent first of all. Holds no secret. */
export interface FailureDetails {
  /** HTTP status. */
  readonly status: number;
  /** PascalCase constant that a program switches on; travels as `details.code`. */
  readonly code: string;
  /** What happened, as a sentence. */
  readonly message: string;
  /** What the reader can do; travels as `details.remediation`. */
  readonly remediation?: string | undefined;
  /** Sent as `Retry-After` and `details.retryAfterSeconds`. */
  readonly retryAfterSeconds?: number | undefined;
  /** The error behind it, for the log. */
  readonly cause?: unknown;
}

/** An answer that is not a success. Thrown anywhere below the router, written once as a `Status` object. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly status: number;
  readonly code: string;
  readonly remediation: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  constructor(details: FailureDetails) {
    super(details.message, { cause: details.cause });
    this.status = details.status;
    this.code = details.code;
    this.remediation = details.remediation;
    this.retryAfterSeconds = details.retryAfterSeconds;
  }
}

/** A 400 that names what is wrong with the request. */
export const badRequest = (code: string, message: string, remediation?: string): Failure =>
  new Failure({ status: 400, code, message, remediation });

/** `metav1.Status` as this gateway writes it. */
export interface StatusAnswer {
  readonly kind: "Status";
  readonly apiVersion: "v1";
  readonly metadata: Record<string, never>;
  readonly status: "Failure";
  readonly message: string;
  readonly reason: string;
  readonly code: number;
  readonly details: {
    readonly name?: string;
    readonly group: string;
    readonly kind: string;
    readonly causes: readonly { readonly reason: string; readonly message: string }[];
    readonly retryAfterSeconds?: number;
    readonly code: string;
    readonly cause: string;
    readonly remediation?: string;
  };
}

/** The `Status` object of a failure. Typed clients drop unknown fields of `details`, so `causes` repeats them. */
export function statusAnswer(failure: Failure, subject: { group: string; kind: string; name?: string }): StatusAnswer {
  const causes = [{ reason: failure.code, message: failure.message }];
  if (failure.remediation !== undefined) causes.push({ reason: "Remediation", message: failure.remediation });
  return {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message: failure.remediation === undefined ? failure.message : `${failure.message}: ${failure.remediation}`,
    reason: REASONS[failure.status] ?? (failure.status >= 500 ? "InternalError" : "BadRequest"),
    code: failure.status,
    details: {
      ...subject,
      causes,
      ...(failure.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: failure.retryAfterSeconds }),
      code: failure.code,
      cause: failure.message,
      ...(failure.remediation === undefined ? {} : { remediation: failure.remediation }),
    },
  };
}

/** Reasons of metav1, by HTTP status. */
const REASONS: Readonly<Record<number, string>> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  405: "MethodNotAllowed",
  408: "Timeout",
  409: "Conflict",
  410: "Gone",
  413: "RequestEntityTooLarge",
  422: "Invalid",
  429: "TooManyRequests",
  431: "RequestHeaderFieldsTooLarge",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
};

/** Any thrown value as the failure its caller sees. What nobody foresaw is a 500 that says nothing of the inside. */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof RuntimeError) return ofRuntime(error);
  if (error instanceof EnvironmentIncomplete) {
    const { code, message, remediation } = error;
    return new Failure({ status: 409, code, message, remediation, cause: error });
  }
  if (error instanceof ApiError) return ofApiServer(error);
  if (error instanceof ConnectionError) {
    return new Failure({
      status: 503,
      code: "ApiServerUnreachable",
      message: "the gateway cannot reach the API server",
      remediation: "try again; the verbs that take an id may be repeated with the same id",
      retryAfterSeconds: 2,
      cause: error,
    });
  }
  if (error instanceof DOMException && (error.name === "TimeoutError" || error.name === "AbortError")) {
    return new Failure({
      status: 504,
      code: "DeadlineExceeded",
      message: "the request did not finish before its deadline",
      remediation: "try again; what the request had begun was stopped",
      cause: error,
    });
  }
  return new Failure({
    status: 500,
    code: "InternalError",
    message: "the gateway met an unexpected error",
    cause: error,
  });
}

function ofApiServer(error: ApiError): Failure {
  if (error.status === 404) {
    return new Failure({
      status: 404,
      code: "NotFound",
      message: error.message,
      remediation: "check namespace and name: kubectl get sandboxes.agentworlds.dev",
      cause: error,
    });
  }
  const retryAfterSeconds = Math.ceil((error.retryAfterMs ?? 2_000) / 1_000);
  if (error.status === 429 || error.status >= 500) {
    return new Failure({
      status: 503,
      code: "ApiServerUnavailable",
      message: "the API server is overloaded or failing",
      remediation: "try again",
      retryAfterSeconds,
      cause: error,
    });
  }
  return new Failure({
    status: 500,
    code: "ApiServerRefused",
    message: `the API server refused a call of the gateway (${error.status} ${error.reason})`,
    remediation: "check the gateway's RBAC rules and the installed CRDs",
    cause: error,
  });
}

function ofRuntime(error: RuntimeError): Failure {
  const known = RUNTIME_FAILURES[error.code];
  return new Failure({
    status: known.status,
    code: error.code,
    message: error.message,
    remediation: known.remediation,
    retryAfterSeconds: known.retryAfterSeconds,
    cause: error,
  });
}

/** Every runtime error has an answer; the compiler notices a new code. */
const RUNTIME_FAILURES: Readonly<
  Record<RuntimeErrorCode, { status: number; remediation?: string; retryAfterSeconds?: number }>
> = {
  HostUnreachable: {
    status: 503,
    remediation: "try again; if it stays so, `kubectl describe runtime` says whether the controller reaches the host",
    retryAfterSeconds: 5,
  },
  ImageUnavailable: { status: 503, remediation: "check that the host can pull from the registry" },
  ComputeConflict: { status: 409, remediation: "look at the Sandbox's conditions" },
  ComputeNotFound: {
    status: 409,
    remediation: "the container is gone; look at the Sandbox's conditions, then touch it",
  },
  ComputeNotRunning: { status: 409, remediation: "touch the Sandbox to wake it, wait for Ready and try again" },
  ExecConnectionLost: {
    status: 502,
    remediation: "the command's outcome is unknown: look at its effects before repeating it",
  },
  OutputTooLarge: {
    status: 413,
    remediation: "redirect the output into a file of the session and read it with GET files?path=",
  },
  CommandTooLarge: {
    status: 413,
    remediation: "nothing was started; put what is large into stdin, or write a file with PUT files?path= and name it",
  },
  CommandNotStarted: { status: 422, remediation: "check command[0], workingDir and user" },
  FileNotFound: { status: 404, remediation: "check the path; it is absolute and percent-encoded" },
  NotAFile: { status: 422, remediation: "only regular files can be read and written" },
  FileRefused: { status: 422, remediation: "check the path, its permissions and the free space" },
  CommitFailed: { status: 500 },
  PushFailed: { status: 500 },
  HostRefused: { status: 502, remediation: "look at the Runtime's conditions" },
};
