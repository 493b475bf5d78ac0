import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Answer } from "./call.ts";
import { GROUP } from "./discovery.ts";
import { type Failure, statusAnswer } from "./failure.ts";

/** How long the rest of a body is read and dropped after an early answer, before the connection is cut. */
const LINGER_MS = 10_000;

/** Writes a JSON document. */
export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  const text = Buffer.from(`${JSON.stringify(body)}\n`);
  response.writeHead(status, { "content-type": "application/json", "content-length": text.length });
  response.end(text);
}

/** Writes a handler's answer; rejects when a file's stream fails, which cuts the connection before its length. */
export async function sendAnswer(response: ServerResponse, answer: Answer, signal: AbortSignal): Promise<void> {
  if (answer.kind === "json") {
    sendJson(response, answer.status, answer.body);
    return;
  }
  if (answer.kind === "stream") {
    response.writeHead(200, { "content-type": answer.type });
    await pipeline(Readable.from(answer.content, { objectMode: false }), response, { signal });
    return;
  }
  response.strictContentLength = true;
  response.writeHead(200, { "content-type": "application/octet-stream", "content-length": answer.size });
  await pipeline(Readable.from(answer.content, { objectMode: false }), response, { signal });
}

/** Writes a failure as a `Status`; cuts the connection when an answer had begun already. */
export function sendFailure(
  exchange: { request: IncomingMessage; response: ServerResponse },
  failure: Failure,
  about: { readonly resource: string; readonly name?: string } = { resource: "sandboxes" },
): void {
  const { request, response } = exchange;
  if (response.headersSent) {
    // The only way left to say that what was sent is not the whole.
    response.destroy();
    return;
  }
  if (failure.retryAfterSeconds !== undefined) response.setHeader("retry-after", String(failure.retryAfterSeconds));
  if (failure.status === 401) response.setHeader("www-authenticate", "Bearer");
  const subject = { group: GROUP, kind: about.resource, ...(about.name === undefined ? {} : { name: about.name }) };
  sendJson(response, failure.status, statusAnswer(failure, subject));
  if (!request.complete) linger(request);
}

/** Node reads the rest of the body and drops it, so that the client sees the answer; not for ever, though. */
function linger(request: IncomingMessage): void {
  const timer = setTimeout(() => request.socket.destroy(), LINGER_MS);
  timer.unref();
  request.once("close", () => clearTimeout(timer));
  request.resume();
}
