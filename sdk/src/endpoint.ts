import { createHash } from "node:crypto";
import type { Agent, Dispatcher } from "undici";
import type { ServerAccess } from "./access.ts";
import { type CredentialSource, type Credentials, pemOf } from "./credentials.ts";
import { ConfigurationError } from "./errors.ts";

/** What one call needs; valid for that call only, since tokens and certificates rotate. */
export interface Lease {
  readonly origin: string;
  /** Path of the server's address, without a trailing slash; mostly empty. */
  readonly prefix: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly dispatcher: Dispatcher;
}

interface Pool {
  readonly fingerprint: string;
  readonly dispatcher: Dispatcher;
}

/** One server and the caller's credentials there, over connections that are kept. Dials nothing before the first call. */
export class Endpoint {
  readonly #server: ServerAccess;
  readonly #credentials: CredentialSource;
  readonly #bearerOnly: boolean;
  #pool: Pool | undefined;
  #closed = false;

  /** `bearerOnly`: the server takes no client certificate, as a gateway's own endpoint. */
  constructor(options: { server: ServerAccess; credentials: CredentialSource; bearerOnly?: boolean }) {
    this.#server = options.server;
    this.#credentials = options.credentials;
    this.#bearerOnly = options.bearerOnly ?? false;
  }

  /** Throws `ConfigurationError`. */
  async lease(): Promise<Lease> {
    const credentials = await this.#credentials.current();
    if (this.#bearerOnly && credentials.token === undefined) {
      throw new ConfigurationError({
        code: "TokenNeeded",
        message: "the gateway's own endpoint takes bearer tokens only, and these credentials have none",
        remediation: "pass token, or leave out gateway to go through kube-apiserver",
      });
    }
    const dispatcher = await this.#dispatcher(credentials);
    const { origin, pathname } = new URL(this.#server.server);
    return {
      origin,
      prefix: pathname.replace(/\/+$/, ""),
      headers: credentials.token === undefined ? {} : { authorization: `Bearer ${credentials.token}` },
      dispatcher,
    };
  }

  /** Has a plugin asked anew; files are read at each call anyway. */
  refresh(): void {
    this.#credentials.refresh();
  }

  /** Closes every connection; calls under way fail. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#pool?.dispatcher.destroy();
  }

  async #dispatcher(credentials: Credentials): Promise<Dispatcher> {
    const ca = await pemOf(this.#server.ca);
    // Imported here: it is the heaviest part, and a program that only imports the SDK should not pay for it.
    const undici = await import("undici");
    if (this.#closed) {
      throw new ConfigurationError({ code: "ClientClosed", message: "this AgentWorlds client was closed" });
    }
    const { certificate, key } = this.#bearerOnly ? { certificate: undefined, key: undefined } : credentials;
    const fingerprint = fingerprintOf([ca, certificate, key]);
    if (this.#pool?.fingerprint === fingerprint) return this.#pool.dispatcher;
    retire(this.#pool?.dispatcher);
    const tls = {
      ...(ca === undefined ? {} : { ca }),
      ...(certificate === undefined ? {} : { cert: certificate }),
      ...(key === undefined ? {} : { key }),
      ...(this.#server.serverName === undefined ? {} : { servername: this.#server.serverName }),
      rejectUnauthorized: !this.#server.insecureSkipVerify,
    };
    const common: Agent.Options = {
      // HTTP/2 watches leak memory in Node (defenseunicorns/kubernetes-fluent-client#424).
      allowH2: false,
      // Each call has a deadline; undici's own would cut a quiet watch.
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    const { proxyUrl } = this.#server;
    const dispatcher =
      proxyUrl === undefined
        ? new undici.Agent({ ...common, connect: { ...tls, keepAlive: true, keepAliveInitialDelay: 30_000 } })
        : new undici.ProxyAgent({ ...common, uri: proxyUrl, requestTls: tls });
    this.#pool = { fingerprint, dispatcher };
    return dispatcher;
  }
}

/** Lets running requests finish; what closing fails with concerns nobody any more. */
function retire(dispatcher: Dispatcher | undefined): void {
  dispatcher?.close().catch(() => dispatcher.destroy());
}

function fingerprintOf(parts: readonly (string | undefined)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(`${part?.length ?? -1}:${part ?? ""}`);
  return hash.digest("hex");
}
