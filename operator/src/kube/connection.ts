import { createHash } from "node:crypto";
import { access, readFile } from "node:fs/promises";
import type { RequestOptions } from "node:https";
import { homedir } from "node:os";
import { join } from "node:path";
import type { KubeConfig } from "@kubernetes/client-node";
import { Agent, type Dispatcher, ProxyAgent } from "undici";
import { wordsOf } from "../reconciler/words-of.ts";

/** Where the address and the credentials of the API server come from. */
export type ConnectionSource =
  /** `KUBECONFIG`, else `~/.kube/config`, else the pod's service account. */
  | { readonly kind: "ambient" }
  | { readonly kind: "kubeconfig"; readonly path: string; readonly context?: string }
  | { readonly kind: "kubeconfigText"; readonly text: string; readonly context?: string }
  /** `server` defaults to the pod's environment, `directory` to the mounted service account (`ca.crt`, `token`). */
  | { readonly kind: "serviceAccount"; readonly server?: string; readonly directory?: string };

/** No usable address or credential: somebody has to change the configuration. The message names what was looked for. */
export class ConnectionConfigError extends Error {
  override readonly name = "ConnectionConfigError";
}

/** What one call needs: valid for that call only, since tokens and certificates rotate. */
export interface ConnectionLease {
  /** Base address without a trailing slash, for example `https://10.0.0.1:443`. */
  readonly server: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Bounded pool for calls that end soon. */
  readonly calls: Dispatcher;
  /** For watches, each of which holds a connection: they must not starve the calls. */
  readonly streams: Dispatcher;
  /** Changes when the configuration was read again. */
  readonly generation: number;
}

export interface ConnectionOptions {
  readonly source: ConnectionSource;
  /** Connections for ordinary calls. Default 8. */
  readonly poolSize?: number;
}

interface Pool {
  readonly calls: Dispatcher;
  readonly streams: Dispatcher;
}

const SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * The address, credentials and connections of one API server. client-node reads the configuration and knows the ways to
 * authenticate (token file, exec plugin, OIDC, certificates); its own dispatcher is not used, for it makes a new one, and with
 * it a TLS handshake, per call.
 */
export class Connection {
  readonly #source: ConnectionSource;
  readonly #poolSize: number;
  readonly #pools = new Map<string, Pool>();
  #config: Promise<KubeConfig> | undefined;
  #generation = 0;
  #closed = false;

  constructor(options: ConnectionOptions) {
    this.#source = options.source;
    this.#poolSize = options.poolSize ?? 8;
  }

  /** Credentials and pool for one call. Errors: `ConnectionConfigError`, also for an exec plugin or a file that fails. */
  async lease(): Promise<ConnectionLease> {
    if (this.#closed) throw new ConnectionConfigError("the connection to the API server was closed");
    const generation = this.#generation;
    const { config, tls } = await this.#read();
    const cluster = config.getCurrentCluster();
    if (cluster === null) throw new ConnectionConfigError("the kubeconfig has no current context with a cluster");
    const pool = this.#pool(config, tls);
    return { server: cluster.server.replace(/\/+$/, ""), headers: headersOf(tls), generation, ...pool };
  }

  /**
   * Reads the configuration, tokens and exec credentials anew, unless that has happened since `generation`: of many calls
   * refused at once only the first reads.
   */
  refresh(generation: number): void {
    if (generation !== this.#generation) return;
    this.#generation += 1;
    this.#config = undefined;
  }

  /** Closes every connection; calls in flight fail. */
  async close(): Promise<void> {
    this.#closed = true;
    const pools = [...this.#pools.values()];
    this.#pools.clear();
    await Promise.all(pools.flatMap((pool) => [pool.calls.destroy(), pool.streams.destroy()]));
  }

  async #read(): Promise<{ config: KubeConfig; tls: RequestOptions }> {
    try {
      const config = await this.#load();
      return { config, tls: await credentials(config) };
    } catch (cause) {
      if (cause instanceof ConnectionConfigError) throw cause;
      throw new ConnectionConfigError(`the credentials for the API server cannot be read: ${wordsOf(cause)}`, {
        cause,
      });
    }
  }

  #load(): Promise<KubeConfig> {
    this.#config ??= loadConfig(this.#source).catch((error: unknown) => {
      // A file that could not be read now may be there at the next call.
      this.#config = undefined;
      throw error;
    });
    return this.#config;
  }

  /** The pool of exactly these TLS credentials. A rotation makes a new one and lets the old one end in peace. */
  #pool(config: KubeConfig, tls: RequestOptions): Pool {
    const key = fingerprint(config, tls);
    const found = this.#pools.get(key);
    if (found !== undefined) return found;
    for (const [oldKey, old] of this.#pools) {
      this.#pools.delete(oldKey);
      retire(old);
    }
    const pool = {
      calls: makeDispatcher(config, tls, this.#poolSize),
      streams: makeDispatcher(config, tls, undefined),
    };
    this.#pools.set(key, pool);
    return pool;
  }
}

/** `close` lets running requests finish; what it fails with concerns nobody any more. */
function retire(pool: Pool): void {
  for (const dispatcher of [pool.calls, pool.streams]) dispatcher.close().catch(() => dispatcher.destroy());
}

async function loadConfig(source: ConnectionSource): Promise<KubeConfig> {
  // Imported here: it costs half a second and 34 MB, which a process that never talks to an API server should not pay.
  const { KubeConfig } = await import("@kubernetes/client-node");
  const config = new KubeConfig();
  switch (source.kind) {
    case "ambient":
      await requireAmbient();
      config.loadFromDefault();
      break;
    case "kubeconfig":
      config.loadFromFile(source.path);
      break;
    case "kubeconfigText":
      config.loadFromString(source.text);
      break;
    case "serviceAccount": {
      const directory = source.directory ?? SERVICE_ACCOUNT_DIRECTORY;
      const server = source.server ?? inClusterServer(process.env);
      // A token file that is missing is found missing here, with its path, not as a 401 later.
      await readFile(join(directory, "token"));
      config.loadFromClusterAndUser(
        { name: "in-cluster", server, caFile: join(directory, "ca.crt"), skipTLSVerify: false },
        {
          name: "service-account",
          authProvider: { name: "tokenFile", config: { tokenFile: join(directory, "token") } },
        },
      );
      break;
    }
  }
  if ("context" in source && source.context !== undefined) config.setCurrentContext(source.context);
  return config;
}

/**
 * Whether there is a configuration to begin with; whether its credentials are good, and the server there, is not asked.
 * @throws ConnectionConfigError naming the option or variable that has to be changed.
 */
export async function expectConfigured(source: ConnectionSource): Promise<void> {
  const setting = settingOf(source);
  try {
    const config = await loadConfig(source);
    if (config.getCurrentCluster() !== null) return;
  } catch (cause) {
    if (cause instanceof ConnectionConfigError) throw cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ConnectionConfigError(`${setting} cannot be read: ${why}`, { cause });
  }
  throw new ConnectionConfigError(`${setting} has no current context with a cluster`);
}

function settingOf(source: ConnectionSource): string {
  if (source.kind === "kubeconfig") return `--kubeconfig ${source.path}`;
  const variable = process.env["KUBECONFIG"] ?? "";
  if (source.kind === "ambient" && variable !== "") return `KUBECONFIG=${variable}`;
  return source.kind === "serviceAccount" ? "the pod's service account" : "the kubeconfig";
}

/** client-node falls back to http://localhost:8080, which then fails with a sentence about TLS. Say what is missing instead. */
async function requireAmbient(): Promise<void> {
  if ((process.env["KUBECONFIG"] ?? "") !== "") return;
  const places = [join(homedir(), ".kube", "config"), join(SERVICE_ACCOUNT_DIRECTORY, "token")];
  const found = await Promise.all(
    places.map((place) =>
      access(place).then(
        () => true,
        () => false,
      ),
    ),
  );
  if (!found.includes(true)) {
    throw new ConnectionConfigError(
      `no API server is configured: KUBECONFIG is unset and neither ${places.join(" nor ")} exists`,
    );
  }
}

function inClusterServer(environment: NodeJS.ProcessEnv): string {
  const host = environment["KUBERNETES_SERVICE_HOST"] ?? "";
  const port = environment["KUBERNETES_SERVICE_PORT"] ?? "";
  if (host === "" || port === "") {
    throw new ConnectionConfigError("not in a pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is unset");
  }
  return `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Asks client-node for headers and TLS material of this moment: it re-reads files and runs exec plugins as needed. */
async function credentials(config: KubeConfig): Promise<RequestOptions> {
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  return options;
}

function headersOf(options: RequestOptions): Record<string, string> {
  const headers: Record<string, string> = {};
  if (typeof options.auth === "string")
    headers["authorization"] = `Basic ${Buffer.from(options.auth).toString("base64")}`;
  for (const [name, value] of Object.entries(options.headers ?? {})) {
    // A token file ends in a newline, which no header may hold.
    if (value !== undefined) headers[name.toLowerCase()] = String(value).trim();
  }
  return headers;
}

function fingerprint(config: KubeConfig, tls: RequestOptions): string {
  const cluster = config.getCurrentCluster();
  const parts = [tls.ca, tls.cert, tls.key, tls.servername, tls.rejectUnauthorized, cluster?.server, cluster?.proxyUrl];
  const hash = createHash("sha256");
  for (const part of parts) {
    const bytes = Buffer.isBuffer(part) ? part : Buffer.from(String(part));
    hash.update(`${bytes.length}:`).update(bytes);
  }
  return hash.digest("hex");
}

function makeDispatcher(config: KubeConfig, tls: RequestOptions, connections: number | undefined): Dispatcher {
  const target = {
    ...(tls.ca === undefined ? {} : { ca: tls.ca }),
    ...(tls.cert === undefined ? {} : { cert: tls.cert }),
    ...(tls.key === undefined ? {} : { key: tls.key }),
    ...(tls.rejectUnauthorized === undefined ? {} : { rejectUnauthorized: tls.rejectUnauthorized }),
    ...(tls.servername === undefined ? {} : { servername: tls.servername }),
  };
  const common: Agent.Options = {
    // HTTP/2 watches leak memory in Node (defenseunicorns/kubernetes-fluent-client#424).
    allowH2: false,
    // Deadlines are the transport's and watchdogs the reflector's; undici's own would cut quiet watches at 300 s.
    headersTimeout: 0,
    bodyTimeout: 0,
    ...(connections === undefined ? {} : { connections }),
  };
  // The first probe after 30 s: a dead peer is found long before a load balancer's idle limit.
  const keepAlive = { keepAlive: true, keepAliveInitialDelay: 30_000 };
  const proxyUrl = config.getCurrentCluster()?.proxyUrl;
  return proxyUrl === undefined || proxyUrl === ""
    ? new Agent({ ...common, connect: { ...target, ...keepAlive } })
    : new ProxyAgent({ ...common, uri: proxyUrl, requestTls: target, connect: keepAlive });
}
