import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import { sendFailure } from "./answer.ts";
import { asFailure, Failure } from "./failure.ts";

/** One request and who hears of it. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly logger: Logger;
  /** Aborts when the client goes away before its answer is complete. */
  readonly gone: AbortSignal;
}

/** What the request was about, as far as that was known when it failed. */
export interface Subject {
  readonly action: string;
  readonly resource: string;
  readonly ref: { readonly namespace: string; readonly name: string };
}

/** Tells a failure to the client and to the log. */
export function reportFailure(exchange: Exchange, error: unknown, subject: Subject | undefined): void {
  const { logger, response, gone } = exchange;
  const about = { action: subject?.action, ...subject?.ref };
  if (gone.aborted && isOfDeparture(error, gone)) {
    // Its own decision, or its network's: nobody hears an answer, and the gateway has not failed.
    logger.debug(about, "the client went away before its answer");
    response.destroy();
    return;
  }
  const failure = error instanceof Failure ? error : asFailure(error);
  const failed = { code: failure.code, status: failure.status, ...about };
  // A refusal is the client's business; what the gateway could not do is the operator's.
  if (failure.status >= 500) logger.error({ ...failed, err: failure.cause ?? failure }, "request failed");
  else logger.debug(failed, "request refused");
  sendFailure(exchange, failure, subject && { resource: subject.resource, name: subject.ref.name });
}

/** Whether work failed because of the departure, not beside it. */
function isOfDeparture(error: unknown, gone: AbortSignal): boolean {
  if (error === gone.reason) return true;
  if (!(error instanceof Error)) return false;
  // Streams to and from the client end with errors of their own; an aborted pipeline wraps the reason.
  if (error.name === "AbortError") return true;
  return "code" in error && typeof error.code === "string" && BROKEN_STREAM.has(error.code);
}

const BROKEN_STREAM: ReadonlySet<string> = new Set([
  "ERR_STREAM_PREMATURE_CLOSE",
  "ERR_STREAM_DESTROYED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
]);
