import { readFile } from "node:fs/promises";
import { SANDBOXES, type Sandbox, type SandboxStatus, sandboxSchema } from "@agentworlds/crds";
import pino from "pino";
import { parse } from "yaml";
import { kubectlWords } from "../../../hack/parts/kubectl.ts";
import { run } from "../../../hack/parts/process.ts";
import { API_SERVICE } from "../../../operator/src/gateway/apiservice.ts";
import { GROUP_VERSION } from "../../../operator/src/gateway/discovery.ts";
import { sandboxReader } from "../../../operator/src/gateway/sandbox-store.ts";
import { createGateway, type Gateway, type GatewayConfig } from "../../../operator/src/gateway/server.ts";
import { createKubeClient } from "../../../operator/src/kube/client.ts";
import type { KubeClient, ResourceClient } from "../../../operator/src/kube/contract.ts";
import {
  API_SERVICES,
  CLUSTER_ROLE_BINDINGS,
  CLUSTER_ROLES,
  CUSTOM_RESOURCE_DEFINITIONS,
  NAMESPACES,
  ROLE_BINDINGS,
  ROLES,
} from "../../../operator/src/kube/resource-types.ts";
import { systemClock } from "../../../operator/src/reconciler/clock.ts";
import type { KubeObject } from "../../../operator/src/reconciler/list-watch.ts";
import { computeName } from "../../../operator/src/runtime/contract.ts";
import { type ControlPlane, controlPlane, eventually } from "../../kit/index.ts";
import { MemoryDriver } from "./memory-driver.ts";
import { type Caller, caller, kubeconfigCaller } from "./raw-request.ts";

/** Namespace of the installation. */
export const SYSTEM = "agent-worlds-system";
/** Namespace the identities have rights in. */
export const LAB = "lab";

/** The path of a Sandbox in the sessions API. */
export const sessionPath = (name: string, subresource = "", namespace = LAB): string =>
  `/apis/${GROUP_VERSION}/namespaces/${namespace}/sandboxes/${name}${subresource === "" ? "" : `/${subresource}`}`;

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

/** A control plane with the CRDs, three identities, and a driver in memory; gateways are started on it. */
export class Lab implements AsyncDisposable {
  readonly cluster: ControlPlane;
  readonly kube: KubeClient;
  readonly sandboxes: ResourceClient<KubeObject>;
  readonly driver = new MemoryDriver();
  readonly #callers: Caller[] = [];
  readonly #gateways: Gateway[] = [];
  readonly #ended = new AbortController();

  constructor(cluster: ControlPlane) {
    this.cluster = cluster;
    this.kube = createKubeClient({ source: { kind: "kubeconfig", path: cluster.kubeconfigPath } });
    this.sandboxes = this.kube.resource<KubeObject>(SANDBOXES);
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Starts a gateway; aggregated outside a cluster unless told otherwise. */
  async gateway(
    name: string,
    config: Partial<GatewayConfig> = {},
    { aggregated } = { aggregated: true },
  ): Promise<Gateway> {
    const gateway = await createGateway({
      kube: this.kube,
      sandboxes: sandboxReader(this.kube, systemClock),
      drivers: async () => this.driver.driver,
      clock: systemClock,
      logger: pino({ level: process.env["GATEWAY_LOG"] ?? "silent" }),
      config: {
        namespace: SYSTEM,
        name,
        host: "127.0.0.1",
        port: 0,
        // No policy is installed here, so a gateway would register its webhook; that has a test file of its own.
        creatorStamp: "Disabled",
        ...(aggregated ? { backend: { kind: "External", host: "localhost" } } : {}),
        ...config,
      },
      signal: this.signal,
    });
    this.#gateways.push(gateway);
    return gateway;
  }

  /** Waits until kube-apiserver forwards to a gateway. */
  async aggregated(): Promise<void> {
    const admin = await this.through({ user: "root", groups: ["system:masters"] });
    await eventually(async () => (await admin.send({ target: `/apis/${GROUP_VERSION}` })).status === 200, {
      what: "the aggregated API being served",
    });
  }

  /** A user that calls through kube-apiserver. */
  async through(identity: { user: string; groups?: readonly string[] }): Promise<Caller> {
    const made = await kubeconfigCaller(await this.cluster.kubeconfigFor(identity));
    this.#callers.push(made);
    return made;
  }

  /** A caller of the gateway's own endpoint. */
  direct(gateway: Gateway, options: { token?: string; cert?: string; key?: string } = {}): Caller {
    const made = caller(`https://localhost:${gateway.port}`, { ca: gateway.caBundle, ...options });
    this.#callers.push(made);
    return made;
  }

  /** A bearer token of a new ServiceAccount, and the user name it stands for. */
  async serviceAccount(name: string): Promise<{ token: string; user: string }> {
    const path = `/api/v1/namespaces/${LAB}/serviceaccounts`;
    const { signal } = this;
    await this.kube.request("POST", path, {
      signal,
      body: { apiVersion: "v1", kind: "ServiceAccount", metadata: { name } },
    });
    const answer = await this.kube.request<{ status: { token: string } }>("POST", `${path}/${name}/token`, {
      signal,
      body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} },
    });
    return { token: answer.status.token, user: `system:serviceaccount:${LAB}:${name}` };
  }

  /** Lets a user do this everywhere. */
  async grant(user: string, rule: Rule): Promise<void> {
    await this.grantIn(undefined, user, rule);
  }

  /** Lets a user do this in one namespace. */
  async grantIn(namespace: string | undefined, user: string, rule: Rule): Promise<void> {
    const name = user.replaceAll(":", "-");
    const { signal } = this;
    const [scope, types] =
      namespace === undefined
        ? (["ClusterRole", { roles: CLUSTER_ROLES, bindings: CLUSTER_ROLE_BINDINGS }] as const)
        : (["Role", { roles: ROLES, bindings: ROLE_BINDINGS }] as const);
    const ref = { name, ...(namespace === undefined ? {} : { namespace }) };
    const apiVersion = "rbac.authorization.k8s.io/v1";
    const apiGroup = "rbac.authorization.k8s.io";
    await this.kube
      .resource(types.roles)
      .apply(ref, { apiVersion, kind: scope, metadata: ref, rules: [rule] }, { signal });
    const binding = {
      apiVersion,
      kind: `${scope}Binding`,
      metadata: ref,
      roleRef: { apiGroup, kind: scope, name },
      subjects: [{ apiGroup, kind: "User", name: user }],
    };
    await this.kube.resource(types.bindings).apply(ref, binding, { signal });
  }

  async namespace(name: string): Promise<void> {
    const object = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
    await this.kube.resource(NAMESPACES).apply({ name }, object, { signal: this.signal });
  }

  /** A Sandbox as its controller would have left it; running with half an hour to go unless told otherwise. */
  async sandbox(
    name: string,
    options: {
      namespace?: string;
      spec?: Record<string, unknown>;
      status?: { readonly [K in keyof SandboxStatus]?: SandboxStatus[K] | null };
    } = {},
  ): Promise<Sandbox> {
    const namespace = options.namespace ?? LAB;
    const { signal } = this;
    const spec = { image: "registry.example/base:1", ...options.spec };
    const object = { apiVersion: "agentworlds.dev/v1alpha1", kind: "Sandbox", metadata: { name, namespace }, spec };
    const { metadata } = await this.sandboxes.create(object, { namespace, signal });
    const status = { ...running(metadata.uid), ...options.status };
    return sandboxSchema.parse(await this.sandboxes.patchStatus({ namespace, name }, { status }, { signal }));
  }

  /** Id of the container that a Sandbox's status names. */
  async computeOf(name: string, namespace = LAB): Promise<string> {
    const { compute } = (await this.read(name, namespace)).status;
    if (compute === undefined) throw new TypeError(`Sandbox ${name} has no container`);
    return compute.id;
  }

  async read(name: string, namespace = LAB): Promise<Sandbox> {
    return sandboxSchema.parse(await this.sandboxes.get({ namespace, name }, { signal: this.signal }));
  }

  /** kubectl as cluster-admin, or as somebody; rejects with what it printed when it fails. */
  async kubectl(...args: string[]): Promise<string> {
    return run(kubectlWords(this.cluster.kubeconfigPath, ...args), { signal: AbortSignal.timeout(60_000) });
  }

  /** Whether the aggregated API is registered. */
  async registered(): Promise<boolean> {
    const page = await this.kube
      .resource(API_SERVICES)
      .list({ fieldSelector: `metadata.name=${API_SERVICE}`, signal: this.signal });
    return page.items.length > 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of this.#callers) each[Symbol.dispose]();
    for (const gateway of this.#gateways) await gateway.stop();
    this.#ended.abort();
    await this.kube.close();
    await this.cluster[Symbol.asyncDispose]();
  }
}

/** `apiServerFlags` are added to kube-apiserver's own. */
export async function startLab(apiServerFlags: readonly string[] = []): Promise<Lab> {
  // ExternalName Services are refused where kube-apiserver resolves endpoints itself.
  const flags = ["--enable-aggregator-routing=false", ...apiServerFlags];
  const lab = new Lab(await controlPlane({ own: true, apiServerFlags: flags }));
  const { signal } = lab;
  const definitions = lab.kube.resource<Definition>(CUSTOM_RESOURCE_DEFINITIONS);
  for (const plural of ["sandboxes", "worlds"]) {
    const text = await readFile(new URL(`../../../crds/generated/${plural}.yaml`, import.meta.url), "utf8");
    const name = `${plural}.agentworlds.dev`;
    await definitions.apply({ name }, parse(text), { signal });
    await eventually(async () => isEstablished(await definitions.get({ name }, { signal })), { what: `CRD ${name}` });
  }
  for (const name of [SYSTEM, LAB]) await lab.namespace(name);
  return lab;
}

interface Definition extends KubeObject {
  readonly status?: { readonly conditions?: readonly { type: string; status: string }[] };
}

const isEstablished = (definition: Definition): boolean =>
  definition.status?.conditions?.some(({ type, status }) => type === "Established" && status === "True") === true;

/** The status of a session that runs and has half an hour to go, and two hours to live. */
export function running(uid: string): SandboxStatus {
  const now = Date.now();
  return {
    observedGeneration: 1,
    boot: 1,
    compute: {
      runtime: "local",
      host: "one",
      id: computeName({ sandboxUid: uid, boot: 1 }),
      boot: 1,
      provisionedAt: iso(now),
    },
    expiresAt: iso(now + 1_800_000),
    lifetimeEndsAt: iso(now + 7_200_000),
  };
}

export const iso = (epochMs: number): string => new Date(epochMs).toISOString();
