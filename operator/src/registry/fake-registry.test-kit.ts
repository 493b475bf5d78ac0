import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Clock, systemClock } from "../reconciler/clock.ts";
import { digestOf } from "./digest.ts";

/** A clock on which the pauses between two tries take no time; deadlines keep theirs. */
export const impatientClock: Clock = {
  now: () => systemClock.now(),
  sleep: (milliseconds, signal) => systemClock.sleep(milliseconds < 4_000 ? 0 : milliseconds, signal),
};

/** A request as it arrived. */
export interface SeenRequest {
  readonly method: string;
  /** Path and query, raw. */
  readonly target: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

/** Answers a request itself and returns true, or returns false and leaves it to the registry. */
export type Intercept = (request: SeenRequest, response: ServerResponse) => boolean;

/** An HTTP server on loopback that remembers what it was asked. */
export interface FakeServer extends AsyncDisposable {
  readonly url: string;
  readonly requests: SeenRequest[];
  /** `GET /v2/…` lines, queries left out. */
  lines(): string[];
}

/** A registry that holds blobs in memory and can be made to misbehave. */
export interface FakeRegistry extends FakeServer {
  readonly blobs: Map<string, Buffer>;
  readonly sessions: Map<string, Buffer>;
}

/** Serves every request with `answer`. */
export async function fakeServer(
  answer: (request: SeenRequest, response: ServerResponse) => void,
): Promise<FakeServer> {
  const requests: SeenRequest[] = [];
  const server = createServer(async (incoming, response) => {
    const parts: Buffer[] = [];
    for await (const part of incoming) parts.push(part);
    const { method = "", url = "", headers } = incoming;
    const request = { method, target: url, headers, body: Buffer.concat(parts) };
    requests.push(request);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    lines: () => requests.map(({ method, target }) => `${method} ${target.split("?")[0]}`),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A registry of blobs and uploads as the specification has it; `intercept` sees every request first. */
export async function fakeRegistry(intercept: Intercept = () => false): Promise<FakeRegistry> {
  const blobs = new Map<string, Buffer>();
  const sessions = new Map<string, Buffer>();
  const server = await fakeServer((request, response) => {
    if (intercept(request, response)) return;
    const url = new URL(request.target, "http://registry");
    const session = /\/blobs\/uploads\/(.+)$/.exec(url.pathname)?.[1];
    const digest = /\/blobs\/(sha256:.+)$/.exec(url.pathname)?.[1];
    if (request.method === "POST") return startSession(sessions, response);
    if (session !== undefined) return serveSession({ sessions, blobs, session, url }, request, response);
    if (digest !== undefined) return serveBlob(blobs.get(digest), request, response);
    return refuse(response, 404, "UNSUPPORTED");
  });
  return {
    ...server,
    blobs,
    sessions,
    lines: server.lines,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** Answers with an error of the specification. */
export function refuse(
  response: ServerResponse,
  status: number,
  code: string,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify({ errors: [{ code, message: "made up by the fake" }] }));
}

function startSession(sessions: Map<string, Buffer>, response: ServerResponse): void {
  const id = `session-${sessions.size + 1}`;
  sessions.set(id, Buffer.alloc(0));
  response.writeHead(202, { location: `/v2/some/name/blobs/uploads/${id}?_state=0%2Bsigned`, range: "0-0" }).end();
}

function serveSession(
  state: { sessions: Map<string, Buffer>; blobs: Map<string, Buffer>; session: string; url: URL },
  request: SeenRequest,
  response: ServerResponse,
): void {
  const { sessions, blobs, session, url } = state;
  const held = sessions.get(session);
  if (held === undefined) {
    refuse(response, 404, "BLOB_UPLOAD_UNKNOWN");
    return;
  }
  const bytes = Buffer.concat([held, request.body]);
  const headers = {
    location: `/v2/some/name/blobs/uploads/${session}?_state=${bytes.length}%2Bsigned`,
    range: `0-${Math.max(0, bytes.length - 1)}`,
  };
  if (request.method === "DELETE") {
    sessions.delete(session);
    response.writeHead(204).end();
  } else if (request.method === "GET") {
    response.writeHead(204, headers).end();
  } else if (request.method === "PATCH") {
    sessions.set(session, bytes);
    response.writeHead(202, headers).end();
  } else {
    const digest = url.searchParams.get("digest") ?? "";
    if (digest !== digestOf(bytes)) {
      refuse(response, 400, "DIGEST_INVALID");
      return;
    }
    sessions.delete(session);
    blobs.set(digest, bytes);
    response.writeHead(201, { "docker-content-digest": digest }).end();
  }
}

function serveBlob(blob: Buffer | undefined, request: SeenRequest, response: ServerResponse): void {
  if (blob === undefined) {
    refuse(response, 404, "BLOB_UNKNOWN");
    return;
  }
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  if (range === null) {
    response.writeHead(200, { "content-length": blob.length }).end(blob);
    return;
  }
  const first = Number(range[1]);
  const last = range[2] === "" ? blob.length - 1 : Math.min(Number(range[2]), blob.length - 1);
  if (first >= blob.length) {
    refuse(response, 416, "RANGE_INVALID");
    return;
  }
  const part = blob.subarray(first, last + 1);
  const headers = { "content-length": part.length, "content-range": `bytes ${first}-${last}/${blob.length}` };
  response.writeHead(206, headers).end(part);
}
