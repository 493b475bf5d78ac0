import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Authority, createAuthority, issue } from "../../../hack/parts/certificates.ts";
import { createKubeClient, type KubeClientOptions } from "../../../operator/src/kube/client.ts";
import type { KubeClient, ResourceClient } from "../../../operator/src/kube/contract.ts";
import { listWatchOf } from "../../../operator/src/kube/list-watch-of.ts";
import {
  CLUSTER_ROLE_BINDINGS,
  CONFIG_MAPS,
  type ConfigMap,
  NAMESPACES,
  SERVICE_ACCOUNTS,
} from "../../../operator/src/kube/resource-types.ts";
import type { KubeObject } from "../../../operator/src/reconciler/list-watch.ts";
import { noMetrics, type ReconcilerMetrics } from "../../../operator/src/reconciler/metrics.ts";
import { Reflector, type ReflectorOptions } from "../../../operator/src/reconciler/reflector.ts";
import { keyOf, ObjectStore } from "../../../operator/src/reconciler/store.ts";
import {
  type EventuallyOptions,
  eventually,
  type FaultProxy,
  type ReachableCluster,
  startFaultProxy,
} from "../../kit/index.ts";

/** Never aborts: for the calls of a test itself. */
export const signal: AbortSignal = new AbortController().signal;

/** A namespace on a real API server, and a fault proxy before it that a client reaches as a pod would: by CA and token. */
export interface Rig extends AsyncDisposable {
  readonly namespace: string;
  /** Straight to the API server, as cluster-admin: the test's own hand. */
  readonly direct: KubeClient;
  readonly configMaps: ResourceClient<ConfigMap>;
  readonly proxy: FaultProxy;
  /** Folder of `ca.crt` and `token`, as a pod has it. */
  readonly credentials: string;
  /** A client through the proxy; closed with the rig. */
  client(options?: Omit<KubeClientOptions, "source">): KubeClient;
  /** Makes the ServiceAccount anew and returns its token: every earlier token becomes invalid. */
  renewServiceAccount(): Promise<string>;
  /** A new CA with a certificate for the proxy; neither is in use yet. */
  newServerIdentity(): { caPem: string; tls: { cert: string; key: string } };
  /** Writes a ConfigMap, creating it if need be. */
  write(name: string, value: string): Promise<void>;
  remove(name: string): Promise<void>;
}

export async function rig(cluster: Omit<ReachableCluster, keyof AsyncDisposable>): Promise<Rig> {
  await using undo = new AsyncDisposableStack();
  const direct = createKubeClient({ source: { kind: "kubeconfig", path: cluster.kubeconfigPath } });
  undo.defer(() => direct.close());

  const namespace = `rig-${randomBytes(4).toString("hex")}`;
  await direct.resource(NAMESPACES).create({ metadata: { name: namespace } }, { signal });
  undo.defer(() => direct.resource(NAMESPACES).delete({ name: namespace }, { signal }));
  const binding = {
    metadata: { name: namespace },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" },
    subjects: [{ kind: "ServiceAccount", name: "mirror", namespace }],
  };
  await direct.resource(CLUSTER_ROLE_BINDINGS).create(binding, { signal });
  undo.defer(() => direct.resource(CLUSTER_ROLE_BINDINGS).delete({ name: namespace }, { signal }));

  const identity = newServerIdentity();
  const { hostname, port } = new URL(cluster.url);
  const proxy = await startFaultProxy({
    targetHost: hostname,
    targetPort: Number(port || 443),
    serverTls: identity.tls,
    clientTls: { ca: cluster.caPem },
  });
  undo.use(proxy);

  const credentials = await mkdtemp(join(tmpdir(), "rig-"));
  undo.defer(() => rm(credentials, { recursive: true, force: true }));
  const accounts = direct.resource(SERVICE_ACCOUNTS);
  const renewServiceAccount = async (): Promise<string> => {
    const before = await accounts.list({ namespace, fieldSelector: "metadata.name=mirror", signal });
    if (before.items.length > 0) await accounts.delete({ namespace, name: "mirror" }, { signal });
    await accounts.create({ metadata: { name: "mirror" } }, { namespace, signal });
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts/mirror/token`;
    const answer = await direct.request<{ status: { token: string } }>("POST", path, {
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} },
      signal,
    });
    return answer.status.token;
  };
  await writeFile(join(credentials, "ca.crt"), identity.caPem);
  await writeFile(join(credentials, "token"), await renewServiceAccount());

  const configMaps = direct.resource<ConfigMap>(CONFIG_MAPS);
  const clients = new AsyncDisposableStack();
  undo.use(clients);
  const owned = undo.move();
  return {
    namespace,
    direct,
    configMaps,
    proxy,
    credentials,
    renewServiceAccount,
    newServerIdentity,
    client(options = {}) {
      const source = { kind: "serviceAccount", server: proxy.url, directory: credentials } as const;
      const client = createKubeClient({ source, ...options });
      clients.defer(() => client.close());
      return client;
    },
    async write(name, value) {
      const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name }, data: { value } };
      await configMaps.apply({ namespace, name }, body, { signal });
    },
    remove: (name) => configMaps.delete({ namespace, name }, { signal }),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function newServerIdentity(): { caPem: string; tls: { cert: string; key: string } } {
  const authority: Authority = createAuthority(`rig-${randomBytes(4).toString("hex")}`);
  const issued = issue(authority, { commonName: "proxy", names: ["127.0.0.1", "localhost"], usage: "server" });
  return { caPem: authority.certPem, tls: { cert: issued.certPem, key: issued.keyPem } };
}

/** A mirror of the rig's ConfigMaps, through the proxy, that also keeps what its listeners were told. */
export interface Mirror extends AsyncDisposable {
  readonly store: ObjectStore<ConfigMap>;
  readonly reflector: Reflector<ConfigMap>;
  /** Every change, as `kind name value`. */
  readonly told: readonly string[];
  /** `list`, `BOOKMARK` and the other event types, and how watches ended, in order. */
  readonly happened: readonly string[];
  /** Ends the mirror and resolves when it has ended. */
  stop(): Promise<void>;
  /** Waits until store and listeners hold exactly what the server holds. */
  converged(options?: EventuallyOptions): Promise<void>;
}

/** Starts a mirror. Its watches last 3 to 4.5 s and its waits are short, so that a test does not take minutes. */
export function mirror(
  it: Rig,
  options: { client?: Omit<KubeClientOptions, "source">; reflector?: Partial<ReflectorOptions<ConfigMap>> } = {},
): Mirror {
  const client = it.client({ deadlineMs: 2_000, ...options.client });
  const happened: string[] = [];
  const metrics: ReconcilerMetrics = {
    ...noMetrics,
    listed: () => void happened.push("list"),
    watchHeard: (_, { type }) => void happened.push(type),
    watchClosed: (_, cause) => void happened.push(cause),
    reflectorFailed: (_, during) => void happened.push(`${during} failed`),
  };
  const store = new ObjectStore<ConfigMap>({ resource: "configmaps", metrics });
  const told: string[] = [];
  const heard = new Map<string, ConfigMap>();
  store.subscribe((change) => {
    const { object } = change;
    told.push(`${change.kind} ${object.metadata.name} ${object.data?.["value"]}`);
    if (change.kind === "deleted") heard.delete(keyOf(object));
    else heard.set(keyOf(object), object);
  });
  const reflector = new Reflector<ConfigMap>({
    source: listWatchOf(client.resource<ConfigMap>(CONFIG_MAPS), { namespace: it.namespace }),
    store,
    metrics,
    backoff: { baseMs: 50, capMs: 1_000 },
    pageSize: 3,
    listDeadlineMs: 2_000,
    watchTimeoutSeconds: 3,
    watchGraceMs: 500,
    ...options.reflector,
  });
  const abort = new AbortController();
  const running = reflector.run(abort.signal);
  const stop = async (): Promise<void> => {
    abort.abort(new Error("the test is over"));
    await running;
  };
  return {
    store,
    reflector,
    told,
    happened,
    stop,
    async converged(wait = {}) {
      const options = { what: "the mirror equals the server", timeoutMs: 60_000, ...wait };
      await eventually(async () => {
        const { items } = await it.configMaps.list({ namespace: it.namespace, signal });
        const want = stateOf(items);
        // A namespace with nothing in it equals a mirror that has not listed yet.
        return reflector.hasSynced() && stateOf(store.list()) === want && stateOf(heard.values()) === want;
      }, options);
    },
    [Symbol.asyncDispose]: stop,
  };
}

function stateOf(objects: Iterable<KubeObject>): string {
  const lines = [...objects].map(({ metadata: m }) => `${m.name} ${m.uid} ${m.resourceVersion}`);
  return lines.toSorted().join("\n");
}

/** Text of a file in the credentials folder. */
export function credential(it: Rig, name: "ca.crt" | "token"): Promise<string> {
  return readFile(join(it.credentials, name), "utf8");
}

/** Replaces a file in the credentials folder. */
export async function setCredential(it: Rig, name: "ca.crt" | "token", text: string): Promise<void> {
  await writeFile(join(it.credentials, name), text);
}
