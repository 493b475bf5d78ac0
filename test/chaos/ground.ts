/** Everything a chaos run acts on, all of it its own: control plane, engine, registry on a small disk, and a proxy before each. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type BaseImageName, loadBaseImage } from "../../hack/parts/base-images.ts";
import { createAuthority, issue } from "../../hack/parts/certificates.ts";
import { type ControlPlane, startControlPlane } from "../../hack/parts/control-plane.ts";
import { partDirectory } from "../../hack/parts/directory.ts";
import { type PrivateEngine, startPrivateEngine } from "../../hack/parts/engine.ts";
import { kubeconfig } from "../../hack/parts/kubeconfig.ts";
import { kubectlWords } from "../../hack/parts/kubectl.ts";
import { installOperator } from "../../hack/parts/operator.ts";
import { attempt, run } from "../../hack/parts/process.ts";
import { type Registry, startRegistry } from "../../hack/parts/registry.ts";
import { type FaultProxy, startFaultProxy } from "../kit/fault-proxy.ts";

export interface Ground extends AsyncDisposable {
  readonly directory: string;
  readonly cluster: ControlPlane;
  readonly engine: PrivateEngine;
  readonly registry: Registry;
  /** Before the API server, for the operators. */
  readonly apiProxy: FaultProxy;
  /** Before the registry, for operators and engine. */
  readonly registryProxy: FaultProxy;
  /** Kubeconfig that leads through the proxy. */
  readonly operatorKubeconfigPath: string;
  /** Reference of the base image, through the proxy's address. */
  readonly image: string;
  readonly namespace: string;
}

const IMAGE: BaseImageName = "busybox";
const NAMESPACE = "chaos";
/** All versions of a thousand faults fit, and it is filled up in an instant. */
const REGISTRY_DISK = "768m";

export async function prepareGround(signal: AbortSignal): Promise<Ground> {
  await using undo = new AsyncDisposableStack();
  const { path } = undo.use(await partDirectory({ kind: "chaos", cleanStale: unmountDisk }));
  const [engine, registry, cluster] = await startAll(path, undo, signal);
  const api = await proxyBeforeApi(cluster);
  const proxies = {
    apiProxy: undo.use(api.proxy),
    registryProxy: undo.use(await startFaultProxy({ ...addressOf(registry.url) })),
  };
  const operatorKubeconfigPath = join(path, "operator.kubeconfig");
  await writeFile(operatorKubeconfigPath, api.kubeconfig, { mode: 0o600 });
  const image = await loadBaseImage(IMAGE, {
    dockerHost: engine.dockerHost,
    registry: { url: proxies.registryProxy.url, host: new URL(proxies.registryProxy.url).host },
    signal,
  });
  await installOperator(cluster.kubeconfigPath, signal);
  const kubectl = kubectlWords(cluster.kubeconfigPath);
  await run([...kubectl, "create", "namespace", NAMESPACE], { signal });
  await run([...kubectl, "apply", "-f", "-"], { signal, input: JSON.stringify(runtimeOn(engine.dockerHost)) });
  const owned = undo.move();
  return {
    directory: path,
    cluster,
    engine,
    registry,
    ...proxies,
    operatorKubeconfigPath,
    image,
    namespace: NAMESPACE,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Waits for all three before it throws, since a part still starting cannot be ended yet. */
async function startAll(
  path: string,
  undo: AsyncDisposableStack,
  signal: AbortSignal,
): Promise<[PrivateEngine, Registry, ControlPlane]> {
  await mountDisk(path, signal);
  undo.defer(() => unmountDisk(path));
  const starting = [
    startPrivateEngine({ signal }),
    startRegistry({ directory: registryIn(path), signal }),
    startControlPlane({ signal }),
  ] as const;
  for (const started of await Promise.allSettled(starting)) if (started.status === "fulfilled") undo.use(started.value);
  return Promise.all(starting);
}

const registryIn = (path: string): string => join(path, "registry");
const diskIn = (path: string): string => join(registryIn(path), "data");

async function mountDisk(path: string, signal: AbortSignal): Promise<void> {
  await mkdir(diskIn(path), { recursive: true });
  await run(["mount", "-t", "tmpfs", "-o", `size=${REGISTRY_DISK}`, "chaos-registry", diskIn(path)], { signal });
}

/** Nothing is mounted there when a run ended before it began. */
async function unmountDisk(path: string): Promise<void> {
  await attempt(["umount", "--lazy", diskIn(path)], { signal: AbortSignal.timeout(10_000) });
}

function addressOf(url: string): { targetHost: string; targetPort: number } {
  const { hostname, port } = new URL(url);
  return { targetHost: hostname, targetPort: Number(port) };
}

/** The proxy itself is the client that the API server knows, since certificates do not pass through; it has a CA of its own. */
async function proxyBeforeApi(cluster: ControlPlane): Promise<{ proxy: FaultProxy; kubeconfig: string }> {
  const path = await cluster.kubeconfigFor({ user: "agent-worlds-operator", groups: ["system:masters"] });
  const { users } = JSON.parse(await readFile(path, "utf8"));
  const pem = (field: string): string => Buffer.from(users[0].user[field], "base64").toString("utf8");
  const identity = { certPem: pem("client-certificate-data"), keyPem: pem("client-key-data") };
  const authority = createAuthority("chaos-proxy-ca");
  const serving = issue(authority, { commonName: "proxy", usage: "server", names: ["localhost", "127.0.0.1"] });
  const proxy = await startFaultProxy({
    ...addressOf(cluster.url),
    serverTls: { cert: serving.certPem, key: serving.keyPem },
    clientTls: { ca: cluster.caPem, cert: identity.certPem, key: identity.keyPem },
    keepAlive: true,
  });
  const through = kubeconfig({ server: proxy.url, ca: authority.certPem, user: "operator", ...identity });
  return { proxy, kubeconfig: through };
}

const runtimeOn = (endpoint: string): object => ({
  apiVersion: "agentworlds.dev/v1alpha1",
  kind: "Runtime",
  metadata: { name: "local" },
  spec: {
    selection: "Default",
    capacity: { maxSandboxes: 100 },
    docker: { hosts: [{ name: "here", endpoint }] },
  },
});
