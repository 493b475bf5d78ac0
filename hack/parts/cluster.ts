import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { issue } from "./certificates.ts";
import { files, requestHeaderName } from "./control-plane-flags.ts";
import { kubeconfig } from "./kubeconfig.ts";

/** What identifies a caller that kube-apiserver vouches for towards aggregated APIs. */
export interface RequestHeaderIdentity {
  /** The CA that must have signed the caller's certificate, PEM. */
  readonly caPem: string;
  /** The common name it must carry. */
  readonly allowedName: string;
  /** The certificate and key that kube-apiserver itself presents, PEM. */
  readonly proxyCertPem: string;
  readonly proxyKeyPem: string;
}

/** A local cluster as every test may use it, shared or not. */
export interface Cluster extends AsyncDisposable {
  /** Base URL of the API server. */
  readonly url: string;
  /** The CA of serving and client certificates, PEM. */
  readonly caPem: string;
  /** Cluster-admin by client certificate. */
  readonly kubeconfigPath: string;
  readonly directory: string;
  /** JSON lines of level Metadata, one per answered request; a watch has one more when it begins. */
  readonly auditLogPath: string;
  readonly requestHeader: RequestHeaderIdentity;
  /** Writes a kubeconfig whose client certificate says this user and these groups; returns its path. */
  kubeconfigFor(identity: { user: string; groups?: readonly string[] }): Promise<string>;
}

/** The keys a cluster was started with. */
export interface ClusterKeys {
  caPem: string;
  caKeyPem: string;
  proxyCertPem: string;
  proxyKeyPem: string;
  requestHeaderCaPem: string;
}

/** A cluster known by its folder; dispose leaves it alone, since somebody else runs it. */
export class LocalCluster implements Cluster {
  readonly url: string;
  readonly directory: string;
  readonly caPem: string;
  readonly kubeconfigPath: string;
  readonly auditLogPath: string;
  readonly requestHeader: RequestHeaderIdentity;
  readonly #caKeyPem: string;

  constructor(at: { url: string; directory: string; keys: ClusterKeys }) {
    this.url = at.url;
    this.directory = at.directory;
    this.caPem = at.keys.caPem;
    this.#caKeyPem = at.keys.caKeyPem;
    this.kubeconfigPath = join(at.directory, files.adminKubeconfig);
    this.auditLogPath = join(at.directory, files.auditLog);
    this.requestHeader = {
      caPem: at.keys.requestHeaderCaPem,
      allowedName: requestHeaderName,
      proxyCertPem: at.keys.proxyCertPem,
      proxyKeyPem: at.keys.proxyKeyPem,
    };
  }

  async kubeconfigFor(identity: { user: string; groups?: readonly string[] }): Promise<string> {
    const authority = { commonName: clusterCaName, certPem: this.caPem, keyPem: this.#caKeyPem };
    const issued = issue(authority, {
      commonName: identity.user,
      organizations: identity.groups ?? [],
      usage: "client",
    });
    const path = join(this.directory, `identity-${randomUUID()}.kubeconfig`);
    const text = kubeconfig({ server: this.url, ca: this.caPem, user: identity.user, ...issued });
    await writeFile(path, text, { mode: 0o600 });
    return path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Whoever started it ends it.
  }
}

/** Common name of the CA of serving and client certificates. */
export const clusterCaName = "agent-worlds-local-ca";

/** The cluster that somebody else started in `directory`. Rejects with ENOENT when its keys are not there. */
export async function attachCluster(at: { url: string; directory: string }): Promise<Cluster> {
  const read = (name: string): Promise<string> => readFile(join(at.directory, name), "utf8");
  const [caPem, caKeyPem, requestHeaderCaPem, proxyCertPem, proxyKeyPem] = await Promise.all([
    read(files.ca),
    read(files.caKey),
    read(files.requestHeaderCa),
    read(files.proxyClientCert),
    read(files.proxyClientKey),
  ]);
  return new LocalCluster({ ...at, keys: { caPem, caKeyPem, requestHeaderCaPem, proxyCertPem, proxyKeyPem } });
}
