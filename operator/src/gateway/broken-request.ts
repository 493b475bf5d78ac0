import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { GROUP } from "./discovery.ts";
import { Failure, statusAnswer } from "./failure.ts";

/**
 * Of a request line and all headers. kube-apiserver repeats each group of a user in a header of its own, and takes 1 MiB
 * itself; Node's 16 KiB are a user with some hundred groups.
 */
export const MOST_HEADER_BYTES = 64 * 1024;
/** What a client still sends is read and dropped this long: a reset would overtake the answer. */
const LINGER_MS = 1_000;

/**
 * A request that Node's parser gave up on, so that there is none to answer: said on the bare connection, which then ends.
 * kube-apiserver would make a 503 of a connection that just closes.
 */
export function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex): void {
  // The parser may fail again on what comes after.
  if (socket.writableEnded) return;
  const failure = failureOf(error.code ?? "");
  if (failure === undefined || !socket.writable) {
    socket.destroy();
    return;
  }
  const body = `${JSON.stringify(statusAnswer(failure, { group: GROUP, kind: "sandboxes" }))}\n`;
  const head = [
    `HTTP/1.1 ${failure.status} ${STATUS_CODES[failure.status]}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
  ];
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
  socket.resume();
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}

/** Undefined: the connection broke, or never spoke HTTP. */
function failureOf(code: string): Failure | undefined {
  if (code === "HPE_HEADER_OVERFLOW") {
    return new Failure({
      status: 431,
      code: "HeadersTooLarge",
      message: `the request's headers are longer than ${MOST_HEADER_BYTES} bytes`,
      remediation: "send fewer headers; kube-apiserver adds one for each group of the user",
    });
  }
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") {
    return new Failure({
      status: 408,
      code: "RequestTimeout",
      message: "the request's headers did not come in time",
      remediation: "try again",
    });
  }
  if (!code.startsWith("HPE_")) return undefined;
  return new Failure({
    status: 400,
    code: "MalformedRequest",
    message: "this is no request of HTTP/1.1",
    remediation: "check the client",
  });
}
