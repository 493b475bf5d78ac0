import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import type { Access, Material } from "./access.ts";
import { ConfigurationError } from "./errors.ts";
import { accessFromKubeconfig, type KubeconfigFile } from "./kubeconfig.ts";

/** Which API server to use, and as whom; nothing set: what kubectl would use here, else the pod's service account. */
export interface AccessOptions {
  /** Path of a kubeconfig. Default: `KUBECONFIG` (several paths are merged), else `~/.kube/config`. */
  readonly kubeconfig?: string | undefined;
  /** Context of the kubeconfig. Default: its current one. */
  readonly context?: string | undefined;
  /** Address of the API server, for example `https://10.0.0.1:6443`; no kubeconfig is read then. */
  readonly server?: string | undefined;
  /** Bearer token; with `server`, or instead of the kubeconfig's user. */
  readonly token?: string | undefined;
  /** PEM of the authority that signed the certificate of `server`. Default: the machine's authorities. */
  readonly ca?: string | undefined;
  /** Namespace of calls that name none. Default: the context's, else the pod's, else `default`. */
  readonly namespace?: string | undefined;
}

/** The process's surroundings, given so that tests can give others. */
export interface Surroundings {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly serviceAccount: string;
}

/** Those of this process. */
export const surroundings = (): Surroundings => ({
  environment: process.env,
  home: homedir(),
  serviceAccount: "/var/run/secrets/kubernetes.io/serviceaccount",
});

/** Finds the API server and the credentials. Throws `ConfigurationError` that names every place that was looked at. */
export async function findAccess(options: AccessOptions, around: Surroundings): Promise<Access> {
  const found = await baseAccess(options, around);
  return {
    server: found.server,
    user: options.token === undefined ? found.user : { token: options.token },
    namespace: options.namespace ?? found.namespace,
  };
}

async function baseAccess(options: AccessOptions, around: Surroundings): Promise<Access> {
  if (options.server !== undefined) return statedServer(options.server, options.ca);
  const paths = kubeconfigPaths(options, around);
  const files = await readKubeconfigs(paths);
  if (files.length > 0) return accessFromKubeconfig(files, options.context);
  const token = join(around.serviceAccount, "token");
  const isNamed = options.kubeconfig !== undefined || options.context !== undefined;
  if (!isNamed && (await textOf(token)) !== undefined) return inCluster(around);
  const also = isNamed ? "" : ` nor ${token}`;
  throw new ConfigurationError({
    code: "NoCluster",
    message: `no API server is configured: neither ${paths.join(" nor ")}${also} exists`,
    remediation: "set KUBECONFIG, or pass kubeconfig, or server and token",
  });
}

function statedServer(server: string, ca: string | undefined): Access {
  if (!URL.canParse(server)) {
    throw new ConfigurationError({
      code: "BadServer",
      message: `the option server is not an address: ${server}`,
      remediation: "state it as https://host:port",
    });
  }
  const material: Material | undefined = ca === undefined ? undefined : { kind: "Inline", pem: ca };
  return {
    server: { server: server.replace(/\/+$/, ""), ca: material, insecureSkipVerify: false },
    user: {},
    namespace: "default",
  };
}

function kubeconfigPaths(options: AccessOptions, { environment, home }: Surroundings): string[] {
  if (options.kubeconfig !== undefined) return [options.kubeconfig];
  const listed = (environment["KUBECONFIG"] ?? "").split(delimiter).filter((path) => path !== "");
  return listed.length > 0 ? listed : [join(home, ".kube", "config")];
}

async function readKubeconfigs(paths: readonly string[]): Promise<KubeconfigFile[]> {
  const files: KubeconfigFile[] = [];
  for (const path of paths) {
    const text = await textOf(path);
    // kubectl passes over a missing path of KUBECONFIG too.
    if (text === undefined) continue;
    // Imported here: a process that is given an address never needs it.
    const { parse } = await import("yaml");
    try {
      files.push({ path, content: parse(text) });
    } catch {
      // The parser's own message quotes the line, and with it perhaps a token: it goes nowhere.
      throw new ConfigurationError({ code: "BadKubeconfig", message: `${path} is not YAML`, remediation: "mend it" });
    }
  }
  return files;
}

async function inCluster({ environment, serviceAccount }: Surroundings): Promise<Access> {
  const host = environment["KUBERNETES_SERVICE_HOST"] ?? "";
  const port = environment["KUBERNETES_SERVICE_PORT"] ?? "";
  if (host === "" || port === "") {
    throw new ConfigurationError({
      code: "NoCluster",
      message: "a service account is mounted, but KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is unset",
      remediation: "set KUBECONFIG, or pass server and token",
    });
  }
  const namespace = (await textOf(join(serviceAccount, "namespace")))?.trim();
  return {
    server: {
      server: `https://${host.includes(":") ? `[${host}]` : host}:${port}`,
      ca: { kind: "File", path: join(serviceAccount, "ca.crt") },
      insecureSkipVerify: false,
    },
    user: { tokenFile: join(serviceAccount, "token") },
    namespace: namespace === undefined || namespace === "" ? "default" : namespace,
  };
}

/** A file's text; `undefined` when there is none. Throws `ConfigurationError` when it cannot be read. */
async function textOf(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    throw new ConfigurationError({
      code: "FileUnreadable",
      message: `${path} cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`,
      remediation: "check its permissions",
      cause,
    });
  }
}

const isMissing = (error: unknown): boolean =>
  error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR");
