/** The plain HTTP endpoints for the platform: metrics on one port, health and readiness on another. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Registry } from "prom-client";

export interface Endpoint {
  readonly port: number;
  close(): Promise<void>;
}

/** `/metrics` in the Prometheus text format. */
export function serveMetrics(options: { port: number; registry: Registry }): Promise<Endpoint> {
  return listen(options.port, async (path) =>
    path === "/metrics"
      ? { status: 200, type: options.registry.contentType, body: await options.registry.metrics() }
      : NOT_FOUND,
  );
}

/**
 * `/healthz`: the process runs. `/readyz`: 200 when `problems` is empty, else 503 with one problem a line.
 */
export function serveHealth(options: { port: number; problems: () => readonly string[] }): Promise<Endpoint> {
  return listen(options.port, async (path) => {
    if (path === "/healthz" || path === "/livez") return { status: 200, type: TEXT, body: "ok\n" };
    if (path !== "/readyz") return NOT_FOUND;
    const problems = options.problems();
    return problems.length === 0
      ? { status: 200, type: TEXT, body: "ok\n" }
      : { status: 503, type: TEXT, body: `${problems.join("\n")}\n` };
  });
}

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** A metric that cannot be collected must not end the process by an unhandled rejection. */
async function orFailed(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : String(error));
    return { status: 500, type: TEXT, body: "the answer could not be made; see the process's stderr\n" };
  }
}

const TEXT = "text/plain; charset=utf-8";
const NOT_FOUND: Answer = { status: 404, type: TEXT, body: "not found\n" };

async function listen(port: number, answer: (path: string) => Promise<Answer>): Promise<Endpoint> {
  const server: Server = createServer({ requestTimeout: 10_000, headersTimeout: 5_000 }, async (request, response) => {
    const { status, type, body } = await orFailed(answer((request.url ?? "").split("?")[0] ?? ""));
    response.writeHead(status, { "content-type": type }).end(body);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, resolve);
  });
  return {
    port: addressOf(server).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function addressOf(server: Server): AddressInfo {
  const address = server.address();
  if (address === null || typeof address === "string") throw new TypeError("the server listens on no port");
  return address;
}
