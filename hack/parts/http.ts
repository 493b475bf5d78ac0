import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

/** One plain request of the local parts: readiness probes, etcd's JSON gateway, the Engine API. */
export interface PartRequest {
  /** Absolute URL; the host is only a name when `socketPath` is set. */
  url: string;
  /** Default GET. */
  method?: string;
  /** Unix socket to use instead of the URL's host and port. */
  socketPath?: string;
  headers?: Record<string, string>;
  /** A string is sent as it is; a stream is sent chunked. */
  body?: string | Readable;
  /** CA that must have signed the server, PEM. */
  ca?: string;
  /** Client certificate and key, PEM. */
  cert?: string;
  key?: string;
  /** Deadline of the whole exchange. */
  signal: AbortSignal;
}

/** The answer, read to its end. */
export interface PartResponse {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

/**
 * Sends one request on a connection of its own (these parts come and go: a kept socket would outlive its server).
 * Any status is an answer; only a broken exchange rejects.
 */
export async function send(options: PartRequest): Promise<PartResponse> {
  const url = new URL(options.url);
  const open = url.protocol === "https:" ? httpsRequest : httpRequest;
  const request = open(url, {
    method: options.method ?? "GET",
    headers: options.headers,
    socketPath: options.socketPath,
    ca: options.ca,
    cert: options.cert,
    key: options.key,
    agent: false,
    signal: options.signal,
  });
  const answer = new Promise<PartResponse>((resolve, reject) => {
    request.on("error", reject);
    request.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text: Buffer.concat(chunks).toString("utf8"),
        }),
      );
    });
  });
  if (options.body === undefined || typeof options.body === "string") {
    request.end(options.body);
    return answer;
  }
  const [response] = await Promise.all([answer, pipeline(options.body, request)]);
  return response;
}
