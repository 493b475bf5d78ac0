import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { binary, defaultCacheDirectory } from "./binaries.ts";
import { createAuthority, issue, keyPair } from "./certificates.ts";
import { type Cluster, type ClusterKeys, clusterCaName, LocalCluster } from "./cluster.ts";
import {
  apiServerFlags,
  auditPolicy,
  type ControlPlaneLayout,
  controllerManagerFlags,
  etcdFlags,
  files,
  requestHeaderName,
} from "./control-plane-flags.ts";
import { type PartDirectory, partDirectory } from "./directory.ts";
import { PartFailed } from "./errors.ts";
import { type PartRequest, send } from "./http.ts";
import { kubeconfig } from "./kubeconfig.ts";
import { withLock } from "./lock.ts";
import { freePort, onFreePorts } from "./ports.ts";
import { type RunningProcess, startProcess } from "./process.ts";

/** How to start a control plane. */
export interface ControlPlaneOptions {
  /** Folder for state, keys and logs; default: a temporary one that dispose removes. */
  directory?: string;
  /** Flags added to kube-apiserver, e.g. `--watch-cache=false` so that a compaction ends old watches at once. */
  apiServerFlags?: readonly string[];
  /** Limits starting, compiling included. */
  signal: AbortSignal;
}

/** A running etcd, kube-apiserver and kube-controller-manager on loopback, owned by this process. */
export interface ControlPlane extends Cluster {
  readonly etcdUrl: string;
  /** The process ids of what runs now. */
  pids(): number[];
  /**
   * Compacts etcd up to its newest revision. The API server answers from its cache, so that old revisions become 410
   * only after `restartApiServer()`, or at once where it was started with `--watch-cache=false`.
   */
  compact(signal?: AbortSignal): Promise<void>;
  stopApiServer(): Promise<void>;
  /** On the same port, with the same data; resolves when ready. Does nothing while it runs. */
  startApiServer(signal?: AbortSignal): Promise<void>;
  restartApiServer(signal?: AbortSignal): Promise<void>;
  /** SIGKILL: what it was answering stays half answered. Resolves when it is gone; does nothing when it does not run. */
  killApiServer(): Promise<void>;
  /** SIGKILL, as `killApiServer`. */
  killEtcd(): Promise<void>;
  /** On the same ports, with the same data; resolves when it is healthy. Does nothing while it runs. */
  startEtcd(signal?: AbortSignal): Promise<void>;
}

const readyWithinMs = 120_000;

/**
 * Starts a control plane and waits until it is ready and the namespace `default` has its ServiceAccount.
 * Control planes of one machine start one after another: two at once on a busy machine time each other out.
 * @throws MissingProgram when Go is needed and absent; PartFailed with log lines when a program does not come up.
 */
export async function startControlPlane(options: ControlPlaneOptions): Promise<ControlPlane> {
  const { signal } = options;
  const programs: Programs = {
    etcd: await binary("etcd", { signal }),
    apiServer: await binary("kube-apiserver", { signal }),
    controllerManager: await binary("kube-controller-manager", { signal }),
  };
  const startLock = join(defaultCacheDirectory(), "control-plane-start.lock");
  return withLock(startLock, signal, () => onFreePorts(() => startOnce(programs, options)));
}

async function startOnce(programs: Programs, options: ControlPlaneOptions): Promise<ControlPlane> {
  await using undo = new AsyncDisposableStack();
  const directory = undo.use(await partDirectory({ kind: "control-plane", given: options.directory }));
  const layout: ControlPlaneLayout = {
    directory: directory.path,
    etcdPort: await freePort(),
    etcdPeerPort: await freePort(),
    apiServerPort: await freePort(),
  };
  const keys = await writeKeys(layout);
  const extraFlags = options.apiServerFlags ?? [];
  const machinery = undo.use(new Machinery({ programs, layout, keys, extraFlags, partDirectory: directory }));
  await machinery.start(options.signal);
  undo.move();
  return machinery;
}

interface Programs {
  etcd: string;
  apiServer: string;
  controllerManager: string;
}

interface Keys extends ClusterKeys {
  admin: Required<Pick<PartRequest, "ca" | "cert" | "key">>;
}

async function writeKeys(layout: ControlPlaneLayout): Promise<Keys> {
  const save = (name: string, text: string): Promise<void> =>
    writeFile(join(layout.directory, name), text, { mode: 0o600 });
  const ca = createAuthority(clusterCaName);
  const frontCa = createAuthority("agent-worlds-local-front-proxy-ca");
  const serving = issue(ca, {
    commonName: "kube-apiserver",
    usage: "server",
    names: ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "10.233.0.1"],
  });
  const front = issue(frontCa, { commonName: requestHeaderName, usage: "client" });
  const admin = issue(ca, { commonName: "local-admin", organizations: ["system:masters"], usage: "client" });
  const managerUser = "system:kube-controller-manager";
  const manager = issue(ca, { commonName: managerUser, usage: "client" });
  const serviceAccounts = keyPair();
  const at = { server: `https://127.0.0.1:${layout.apiServerPort}`, ca: ca.certPem };
  await Promise.all([
    save(files.ca, ca.certPem),
    save(files.caKey, ca.keyPem),
    save(files.apiServerCert, serving.certPem),
    save(files.apiServerKey, serving.keyPem),
    save(files.requestHeaderCa, frontCa.certPem),
    save(files.proxyClientCert, front.certPem),
    save(files.proxyClientKey, front.keyPem),
    save(files.serviceAccountPublic, serviceAccounts.publicPem),
    save(files.serviceAccountPrivate, serviceAccounts.privatePem),
    save(files.auditPolicy, auditPolicy),
    save(files.adminKubeconfig, kubeconfig({ ...at, user: "local-admin", ...admin })),
    save(files.controllerManagerKubeconfig, kubeconfig({ ...at, user: managerUser, ...manager })),
  ]);
  return {
    caPem: ca.certPem,
    caKeyPem: ca.keyPem,
    requestHeaderCaPem: frontCa.certPem,
    proxyCertPem: front.certPem,
    proxyKeyPem: front.keyPem,
    admin: { ca: ca.certPem, cert: admin.certPem, key: admin.keyPem },
  };
}

interface MachineryOptions {
  programs: Programs;
  layout: ControlPlaneLayout;
  keys: Keys;
  extraFlags: readonly string[];
  partDirectory: PartDirectory;
}

class Machinery extends LocalCluster implements ControlPlane {
  readonly etcdUrl: string;
  readonly #options: MachineryOptions;
  #etcd: RunningProcess | undefined;
  #apiServer: RunningProcess | undefined;
  #controllerManager: RunningProcess | undefined;

  constructor(options: MachineryOptions) {
    const { layout, keys } = options;
    super({ url: `https://127.0.0.1:${layout.apiServerPort}`, directory: layout.directory, keys });
    this.#options = options;
    this.etcdUrl = `http://127.0.0.1:${layout.etcdPort}`;
  }

  async start(signal: AbortSignal): Promise<void> {
    const { programs, layout } = this.#options;
    await this.startEtcd(signal);
    await this.startApiServer(signal);
    // It gives up when the API server is not healthy within 10 s, so it comes last.
    this.#controllerManager = await this.#launch(
      "kube-controller-manager",
      programs.controllerManager,
      controllerManagerFlags(layout),
    );
    await this.#controllerManager.ready(
      (probe) => this.#apiAnswers("/api/v1/namespaces/default/serviceaccounts/default", probe),
      { timeoutMs: readyWithinMs, signal },
    );
  }

  pids(): number[] {
    const all = [this.#etcd, this.#apiServer, this.#controllerManager];
    return all.flatMap((child) => (child?.isRunning() ? [child.pid] : []));
  }

  async startEtcd(signal = AbortSignal.timeout(readyWithinMs)): Promise<void> {
    if (this.#etcd?.isRunning()) return;
    const { programs, layout } = this.#options;
    const child = await this.#launch("etcd", programs.etcd, etcdFlags(layout));
    this.#etcd = child;
    await child.ready((probe) => this.#answers({ url: `${this.etcdUrl}/health`, signal: probe }), {
      timeoutMs: readyWithinMs,
      signal,
    });
  }

  async killEtcd(): Promise<void> {
    await this.#etcd?.kill();
  }

  async killApiServer(): Promise<void> {
    await this.#apiServer?.kill();
  }

  async startApiServer(signal = AbortSignal.timeout(readyWithinMs)): Promise<void> {
    if (this.#apiServer?.isRunning()) return;
    const { programs, layout, extraFlags } = this.#options;
    const child = await this.#launch("kube-apiserver", programs.apiServer, [...apiServerFlags(layout), ...extraFlags]);
    this.#apiServer = child;
    await child.ready((probe) => this.#apiAnswers("/readyz", probe), { timeoutMs: readyWithinMs, signal });
  }

  async stopApiServer(): Promise<void> {
    // It drains open watches for up to a minute; a test that stops it wants it gone.
    await this.#apiServer?.stop(3_000);
  }

  async restartApiServer(signal?: AbortSignal): Promise<void> {
    await this.stopApiServer();
    await this.startApiServer(signal);
  }

  async compact(signal = AbortSignal.timeout(30_000)): Promise<void> {
    const status = await this.#etcdCall("/v3/maintenance/status", {}, signal);
    const revision = /"revision":"(\d+)"/.exec(status)?.[1];
    if (revision === undefined) throw new PartFailed("etcd", `status without a revision: ${status}`);
    await this.#etcdCall("/v3/kv/compaction", { revision, physical: true }, signal);
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await using _directory = this.#options.partDirectory;
    await using _etcd = this.#etcd;
    await this.#controllerManager?.stop(3_000);
    await this.stopApiServer();
  }

  #launch(name: string, command: string, args: readonly string[]): Promise<RunningProcess> {
    return startProcess({
      name,
      command,
      args,
      cwd: this.directory,
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: this.directory },
      logPath: join(this.directory, `${name}.log`),
    });
  }

  #apiAnswers(path: string, signal: AbortSignal): Promise<boolean> {
    return this.#answers({ url: `${this.url}${path}`, ...this.#options.keys.admin, signal });
  }

  async #answers(request: PartRequest): Promise<boolean> {
    return (await send(request)).status === 200;
  }

  async #etcdCall(path: string, body: object, signal: AbortSignal): Promise<string> {
    const answer = await send({
      url: `${this.etcdUrl}${path}`,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    if (answer.status !== 200) throw new PartFailed("etcd", `${path} answered ${answer.status}: ${answer.text}`);
    return answer.text;
  }
}
