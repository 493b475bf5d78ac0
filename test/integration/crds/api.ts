import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Agent, request } from "undici";
import { parse } from "yaml";
import { z } from "zod";
import { kubectlWords } from "../../../hack/parts/kubectl.ts";
import { attempt, type CommandResult } from "../../../hack/parts/process.ts";
import type { Cluster } from "../../kit/index.ts";
import { eventually } from "../../kit/index.ts";

const generated = join(import.meta.dirname, "../../../crds/generated");

/** An object as the tests pass it about. */
export type Json = { [member: string]: unknown };

/** What the API server answered. */
export interface Answer {
  readonly status: number;
  readonly body: Json;
  /** `Status.message` of a refusal, else empty. */
  readonly message: string;
}

const kubeconfigSchema = z.object({
  clusters: z
    .array(z.object({ cluster: z.object({ server: z.string(), "certificate-authority-data": z.base64() }) }))
    .min(1),
  users: z
    .array(z.object({ user: z.object({ "client-certificate-data": z.base64(), "client-key-data": z.base64() }) }))
    .min(1),
});

/** One identity's connection to the API server. */
export class Api implements AsyncDisposable {
  readonly #agent: Agent;
  readonly #server: string;

  private constructor(server: string, agent: Agent) {
    this.#server = server;
    this.#agent = agent;
  }

  static async open(kubeconfigPath: string): Promise<Api> {
    const config = kubeconfigSchema.parse(parse(await readFile(kubeconfigPath, "utf8")));
    const [cluster] = config.clusters;
    const [user] = config.users;
    if (cluster === undefined || user === undefined) throw new TypeError("a kubeconfig without cluster or user");
    const pem = (base64: string): string => Buffer.from(base64, "base64").toString();
    const agent = new Agent({
      connect: {
        ca: pem(cluster.cluster["certificate-authority-data"]),
        cert: pem(user.user["client-certificate-data"]),
        key: pem(user.user["client-key-data"]),
      },
    });
    return new Api(cluster.cluster.server, agent);
  }

  send(method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: unknown): Promise<Answer> {
    return this.#exchange({ method, path, body, contentType: "application/json" });
  }

  /** A merge patch. */
  patch(path: string, body: unknown): Promise<Answer> {
    return this.#exchange({ method: "PATCH", path, body, contentType: "application/merge-patch+json" });
  }

  async #exchange(call: {
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
    path: string;
    body: unknown;
    contentType: string;
  }): Promise<Answer> {
    const answer = await request(`${this.#server}${call.path}`, {
      method: call.method,
      dispatcher: this.#agent,
      signal: AbortSignal.timeout(30_000),
      ...(call.body === undefined
        ? {}
        : { body: JSON.stringify(call.body), headers: { "content-type": call.contentType } }),
    });
    const parsed = z.looseObject({ message: z.string().optional() }).parse(await answer.body.json());
    return { status: answer.statusCode, body: parsed, message: parsed.message ?? "" };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }
}

const PLURALS: Readonly<Record<string, string>> = { World: "worlds", Sandbox: "sandboxes", Runtime: "runtimes" };

/** The path of a collection of ours, or of one object in it. */
export function pathOf(kind: string, at: { namespace: string; name?: string }): string {
  const namespace = kind === "Runtime" ? "" : `/namespaces/${at.namespace}`;
  const name = at.name === undefined ? "" : `/${at.name}`;
  return `/apis/agentworlds.dev/v1alpha1${namespace}/${PLURALS[kind]}${name}`;
}

/** An object of ours to be created. */
export const manifest = (kind: string, name: string, spec: unknown): Json => ({
  apiVersion: "agentworlds.dev/v1alpha1",
  kind,
  metadata: { name },
  spec,
});

/** Runs the machine's kubectl. */
export function kubectl(kubeconfigPath: string, args: readonly string[], input = ""): Promise<CommandResult> {
  return attempt(kubectlWords(kubeconfigPath, ...args), { input, signal: AbortSignal.timeout(60_000) });
}

/** Like `kubectl`, for runs that must succeed; returns stdout. */
export async function kubectlOk(kubeconfigPath: string, args: readonly string[], stdin = ""): Promise<string> {
  const result = await kubectl(kubeconfigPath, args, stdin);
  if (result.code !== 0) throw new Error(`kubectl ${args.join(" ")}: ${result.stderr}`);
  return result.stdout;
}

/** Applies the three CRDs as they are committed and waits until the API server serves them. */
export async function installKinds(cluster: Pick<Cluster, "kubeconfigPath">, api: Api): Promise<void> {
  const files = ["worlds", "sandboxes", "runtimes"].flatMap((plural) => ["-f", join(generated, `${plural}.yaml`)]);
  await kubectlOk(cluster.kubeconfigPath, ["apply", "--server-side", "--force-conflicts", ...files]);
  for (const kind of ["World", "Sandbox", "Runtime"]) {
    await eventually(async () => (await api.send("GET", pathOf(kind, { namespace: "default" }))).status === 200, {
      what: `${kind} is served`,
    });
  }
}

/** Applies the admission policies as they are committed. They are in force a moment later: wait for what they do. */
export async function installPolicies(cluster: Pick<Cluster, "kubeconfigPath">): Promise<void> {
  const files = ["admission", "creator-stamp"].flatMap((name) => ["-f", join(generated, `${name}.yaml`)]);
  await kubectlOk(cluster.kubeconfigPath, ["apply", "--server-side", "--force-conflicts", ...files]);
}

/** A namespace for one test file. */
export async function createNamespace(api: Api, prefix: string): Promise<string> {
  const answer = await api.send("POST", "/api/v1/namespaces", { metadata: { generateName: `${prefix}-` } });
  const { metadata } = z.object({ metadata: z.object({ name: z.string() }) }).parse(answer.body);
  return metadata.name;
}
