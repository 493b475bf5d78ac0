import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { createAuthority, issue } from "../../hack/parts/certificates.ts";

/** A request as it came. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** Answers one request; `index` counts from 0. */
export type Script = (exchange: { seen: Seen; response: ServerResponse; index: number }) => void;

/** An HTTPS server on loopback whose answers the test decides. */
export interface FakeServer extends AsyncDisposable {
  readonly url: string;
  readonly caPem: string;
  readonly seen: Seen[];
}

export async function fakeServer(script: Script): Promise<FakeServer> {
  const authority = createAuthority("sdk-test-ca");
  const { certPem, keyPem } = issue(authority, { commonName: "localhost", names: ["127.0.0.1"], usage: "server" });
  const seen: Seen[] = [];
  const server = createServer({ cert: certPem, key: keyPem }, (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { method = "", url = "", headers } = request;
      const one = { method, url, headers, body: Buffer.concat(chunks).toString() };
      seen.push(one);
      script({ seen: one, response, index: seen.length - 1 });
    });
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  const { port } = server.address() as AddressInfo;
  return {
    url: `https://127.0.0.1:${port}`,
    caPem: authority.certPem,
    seen,
    async [Symbol.asyncDispose]() {
      const closed = new Promise((done) => server.close(done));
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Answers JSON. */
export function answer(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

/** A `Status` as the gateway writes it. */
export const status = (code: number, details: Record<string, unknown>): Record<string, unknown> => ({
  kind: "Status",
  apiVersion: "v1",
  status: "Failure",
  message: `${details["cause"]}: ${details["remediation"]}`,
  code,
  details,
});
