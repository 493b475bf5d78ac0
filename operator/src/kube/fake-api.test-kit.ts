import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createKubeClient, type KubeClientOptions } from "./client.ts";
import type { KubeClient } from "./contract.ts";

/** One request as a fake API server saw it. */
export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

export type Respond = (request: SeenRequest, response: ServerResponse) => void;

/** A scripted API server on loopback, without TLS. For tests of the client only. */
export interface FakeApi extends AsyncDisposable {
  readonly port: number;
  readonly seen: SeenRequest[];
  /** Connections accepted so far. */
  connections(): number;
  /** A client that talks to it, with the token `secret-token`; closed with the server. */
  client(options?: Omit<KubeClientOptions, "source">): KubeClient;
}

/** Starts one; `respond` answers every request. */
export async function fakeApi(respond: Respond): Promise<FakeApi> {
  const seen: SeenRequest[] = [];
  const clients: KubeClient[] = [];
  let connections = 0;
  const server = createServer(async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const url = new URL(incoming.url ?? "/", "http://fake");
    const request = {
      method: incoming.method ?? "",
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers: incoming.headers,
      body: Buffer.concat(chunks).toString("utf8"),
    };
    seen.push(request);
    respond(request, response);
  });
  server.on("connection", () => {
    connections += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    seen,
    connections: () => connections,
    client(options = {}) {
      const text = plainKubeconfig(port);
      const client = createKubeClient({ source: { kind: "kubeconfigText", text }, ...options });
      clients.push(client);
      return client;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(clients.map((client) => client.close()));
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** client-node talks plain HTTP only where TLS verification is switched off. */
export function plainKubeconfig(port: number): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "fake",
    clusters: [{ name: "fake", cluster: { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
    users: [{ name: "fake", user: { token: "secret-token" } }],
    contexts: [{ name: "fake", context: { cluster: "fake", user: "fake" } }],
  });
}

/** Answers with JSON. */
export function json(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}
