import type { Sandbox, World } from "@agentworlds/crds";
import { type AccessOptions, findAccess, type Surroundings, surroundings } from "./ambient.ts";
import type { Connected } from "./connected.ts";
import { CredentialSource } from "./credentials.ts";
import { Endpoint } from "./endpoint.ts";
import { ConfigurationError } from "./errors.ts";
import { Objects } from "./objects.ts";
import { Sandboxes } from "./sandboxes.ts";
import { isSessionPath } from "./session.ts";
import { Transport } from "./transport.ts";
import { Worlds } from "./worlds.ts";

/** How to reach the cluster; nothing set: the ambient kubeconfig, else the pod's service account. */
export interface AgentWorldsOptions extends AccessOptions {
  /**
   * The gateway's own endpoint, instead of through kube-apiserver: commands may run longer than 50 s there. It takes
   * bearer tokens only.
   */
  readonly gateway?:
    | {
        /** For example `https://gateway.example:8443`. */
        readonly url: string;
        /** PEM of the authority that signed its certificate. Default: the machine's authorities. */
        readonly ca?: string | undefined;
      }
    | undefined;
}

/** A client of Agent Worlds. Reads and dials nothing before the first call; keeps its connections until it is closed. */
export class AgentWorlds implements AsyncDisposable {
  readonly sandboxes: Sandboxes;
  readonly worlds: Worlds;
  readonly #options: AgentWorldsOptions;
  readonly #around: Surroundings;
  readonly #endpoints: Endpoint[] = [];
  #connected: Promise<Connected> | undefined;
  #closed = false;

  constructor(options: AgentWorldsOptions = {}) {
    this.#options = options;
    this.#around = surroundings();
    this.sandboxes = new Sandboxes(() => this.#connect());
    this.worlds = new Worlds(() => this.#connect());
  }

  /** Ends every connection; calls under way fail. Sessions stay as they are. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#endpoints.splice(0).map((endpoint) => endpoint.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #connect(): Promise<Connected> {
    this.#connected ??= this.#open().catch((error: unknown) => {
      // A kubeconfig that could not be read now may be there at the next call.
      this.#connected = undefined;
      throw error;
    });
    return this.#connected;
  }

  async #open(): Promise<Connected> {
    const access = await findAccess(this.#options, this.#around);
    if (this.#closed) {
      throw new ConfigurationError({ code: "ClientClosed", message: "this AgentWorlds client was closed" });
    }
    const credentials = new CredentialSource(access.user, this.#around.environment);
    const kube = this.#transport(new Endpoint({ server: access.server, credentials }));
    return {
      namespace: access.namespace,
      sandboxes: new Objects<Sandbox>(kube, { kind: "Sandbox", plural: "sandboxes" }),
      worlds: new Objects<World>(kube, { kind: "World", plural: "worlds" }),
      sessions: this.#options.gateway === undefined ? kube : this.#transport(this.#gateway(credentials)),
    };
  }

  #gateway(credentials: CredentialSource): Endpoint {
    const { url = "", ca } = this.#options.gateway ?? {};
    if (!URL.canParse(url)) {
      throw new ConfigurationError({
        code: "BadServer",
        message: `the option gateway.url is not an address: ${url}`,
        remediation: "state it as https://host:port",
      });
    }
    const material = ca === undefined ? undefined : ({ kind: "Inline", pem: ca } as const);
    const server = { server: url.replace(/\/+$/, ""), ca: material, insecureSkipVerify: false };
    return new Endpoint({ server, credentials, bearerOnly: true });
  }

  #transport(endpoint: Endpoint): Transport {
    this.#endpoints.push(endpoint);
    return new Transport({ endpoint, isSession: isSessionPath });
  }
}
