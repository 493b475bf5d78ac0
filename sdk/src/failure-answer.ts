import {
  ClosedError,
  ConflictError,
  NotFoundError,
  PermissionError,
  RequestError,
  type RequestErrorFacts,
  UnavailableError,
} from "./errors.ts";
import { numberIn, recordIn, textIn } from "./json.ts";

/** An answer that is not a success, as it came. */
export interface FailureAnswer {
  readonly status: number;
  /** Parsed JSON, or the text where it is none. */
  readonly body: unknown;
  /** Seconds or a date, as in the header. */
  readonly retryAfter: string | undefined;
}

/** What the call was, for the sentence and the advice. */
export interface CallFacts {
  /** For example `POST …/sandboxes/a/exec`. */
  readonly what: string;
  /** Of the sessions API; else of the API server's own. */
  readonly isSession: boolean;
  /** May a repetition do harm? Then an answer of a hop on the way leaves the outcome unknown. */
  readonly once: boolean;
}

/** The typed error of a failed answer: the gateway's `details {code, cause, remediation}`, or a `Status` of kube-apiserver. */
export function toRequestError(answer: FailureAnswer, call: CallFacts): RequestError {
  const { status, body } = answer;
  const details = recordIn(body, "details");
  const code = textIn(details, "code");
  const said = textIn(body, "message") ?? (typeof body === "string" ? clip(body.trim()) : "");
  const facts: RequestErrorFacts = {
    status,
    code: code ?? codeOf(answer, call),
    message: said === "" ? `${call.what} was answered ${status}` : said,
    remediation: textIn(details, "remediation") ?? (code === undefined ? adviceOf(status, call) : undefined),
    // Repeated as the cause, a sentence would be printed twice.
    cause: textIn(details, "cause"),
    // A 4xx is a refusal. A 5xx may come from a hop behind which the work went on.
    outcomeUnknown: call.once && status >= 500,
    retryAfterMs: retryAfterMs(answer, numberIn(details, "retryAfterSeconds")),
  };
  if (status === 401 || status === 403) return new PermissionError(facts);
  if (status === 404) return new NotFoundError(facts);
  if (status === 409) return new ConflictError(facts);
  if (status === 410) return new ClosedError(facts);
  if (status === 429 || status >= 500) return new UnavailableError(facts);
  return new RequestError(facts);
}

/** Only kube-apiserver answers the sessions API without a code of ours, and then it is not about the session. */
function codeOf({ status, body }: FailureAnswer, call: CallFacts): string {
  if (call.isSession && status === 404) return "SessionsApiMissing";
  if (call.isSession && (status === 502 || status === 503)) return "GatewayUnavailable";
  return textIn(body, "reason") ?? `Http${status}`;
}

function adviceOf(status: number, call: CallFacts): string | undefined {
  if (status === 401) return "check the credentials of the kubeconfig's user";
  if (status === 403) {
    return call.isSession
      ? "ask for a role with the verb on the subresource of sandboxes.sessions.agentworlds.dev that the message names"
      : "ask for a role with the verb and the resource that the message names";
  }
  if (call.isSession && (status === 404 || status === 502 || status === 503)) {
    return "check that a gateway serves: kubectl get apiservices.apiregistration.k8s.io v1alpha1.sessions.agentworlds.dev";
  }
  if (status === 404) return "check namespace and name, and that the CRDs are installed: kubectl get crds";
  if (status === 504 && call.once) {
    return "kube-apiserver cuts a request after 60 s: look at what it did, then state a shorter timeoutSeconds or use the gateway's own endpoint";
  }
  if (status === 422) return "correct what the message names; kubectl explain says what each field may hold";
  if (status === 400) return "correct what the message names";
  if (status === 429 || status >= 500) return "try again later";
  return undefined;
}

function retryAfterMs({ retryAfter }: FailureAnswer, seconds: number | undefined): number | undefined {
  if (seconds !== undefined && seconds >= 0) return seconds * 1_000;
  if (retryAfter === undefined || !/^\d{1,6}$/.test(retryAfter)) return undefined;
  return Number(retryAfter) * 1_000;
}

const clip = (text: string): string => (text.length <= 500 ? text : `${text.slice(0, 499)}…`);
