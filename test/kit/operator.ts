import { type Runtime, SANDBOXES, type Sandbox, WORLDS, type World } from "@agentworlds/crds";
import { pino } from "pino";
import { kubectlWords } from "../../hack/parts/kubectl.ts";
import { installOperator, OPERATOR_NAMESPACE } from "../../hack/parts/operator.ts";
import { run } from "../../hack/parts/process.ts";
import { type Config, parseConfig } from "../../operator/src/config.ts";
import { installationId } from "../../operator/src/installation.ts";
import { createKubeClient } from "../../operator/src/kube/client.ts";
import type { KubeClient, ResourceClient } from "../../operator/src/kube/contract.ts";
import { LEASES, RUNTIMES as RUNTIME_TYPE } from "../../operator/src/kube/resource-types.ts";
import { createControllerRole } from "../../operator/src/process/controllers.ts";
import { openDrivers } from "../../operator/src/process/drivers.ts";
import { createMirrors } from "../../operator/src/process/mirror.ts";
import { openRegistries } from "../../operator/src/process/registries.ts";
import { type Clock, systemClock } from "../../operator/src/reconciler/clock.ts";
import type { Lease } from "../../operator/src/reconciler/lease.ts";
import { noMetrics } from "../../operator/src/reconciler/metrics.ts";
import { createLogger } from "../../operator/src/telemetry/logger.ts";
import { CrashGate, crashingDriver, crashingKube, crashingRegistry } from "./crash.ts";
import { eventually } from "./wait.ts";

/** Where an operator of a test works. */
export interface Ground {
  readonly kubeconfigPath: string;
  readonly registryUrl: string;
  /** The engine, for the test itself. */
  readonly dockerHost: string;
  /** The engine as the Runtime names it. */
  readonly endpoint: string;
}

/** A cluster with the CRDs, a Runtime `local` and a client. */
export interface Site extends AsyncDisposable {
  readonly ground: Ground;
  readonly kube: KubeClient;
  readonly worlds: ResourceClient<World>;
  readonly sandboxes: ResourceClient<Sandbox>;
  readonly runtimes: ResourceClient<Runtime>;
  readonly signal: AbortSignal;
  /** A namespace of its own, removed with the cluster. */
  namespace(): Promise<string>;
  kubectl(...words: string[]): Promise<string>;
}

export async function openSite(ground: Ground, signal: AbortSignal): Promise<Site> {
  await installOperator(ground.kubeconfigPath, signal);
  const kube = createKubeClient({ source: { kind: "kubeconfig", path: ground.kubeconfigPath } });
  const kubectl = (...words: string[]) => run(kubectlWords(ground.kubeconfigPath, ...words), { signal });
  const runtimes = kube.resource<Runtime>(RUNTIME_TYPE);
  let count = 0;
  await runtimes.apply(
    { name: "local" },
    {
      apiVersion: "agentworlds.dev/v1alpha1",
      kind: "Runtime",
      metadata: { name: "local" },
      spec: { selection: "Default", docker: { hosts: [{ name: "here", endpoint: ground.endpoint }] } },
    },
    { signal },
  );
  return {
    ground,
    kube,
    kubectl,
    signal,
    runtimes,
    worlds: kube.resource<World>(WORLDS),
    sandboxes: kube.resource<Sandbox>(SANDBOXES),
    async namespace() {
      const name = `t${Date.now().toString(36)}${count++}`;
      await kubectl("create", "namespace", name);
      return name;
    },
    [Symbol.asyncDispose]: () => kube.close(),
  };
}

/** Controllers in this process. */
export interface RunningControllers extends AsyncDisposable {
  readonly gate: CrashGate;
  /** Orderly end; after a crash, the end of what is left of the dead process. */
  stop(): Promise<void>;
}

const gateDies = (gate: CrashGate | undefined): boolean => gate !== undefined && process.env["TEST_LOG"] !== "1";

const levelOf = (level: "debug" | "info" | "warn" | "error" | undefined) =>
  level ?? (process.env["TEST_LOG"] === "1" ? "debug" : "error");

/** Settings of an operator of a test. */
export function testConfig(ground: Ground, settings: Partial<Record<keyof Config, unknown>> = {}): Config {
  return parseConfig({
    role: "controller",
    registry: { url: ground.registryUrl },
    sources: { development: "Enabled" },
    leader: { leaseDurationSeconds: 2, renewDeadlineSeconds: 1.5, retryPeriodSeconds: 0.2 },
    ...settings,
  });
}

/** Runs the controllers in this process on real parts; `gate` lets them die at a chosen effect. */
export async function startControllers(
  site: Site,
  options: { gate?: CrashGate; config?: Config; clock?: Clock; log?: "debug" | "info" | "warn" | "error" } = {},
): Promise<RunningControllers> {
  const gate = options.gate ?? new CrashGate();
  const config = options.config ?? testConfig(site.ground);
  // What a dying process says of itself would bury what matters.
  const log = gateDies(options.gate) ? pino({ level: "silent" }) : createLogger(levelOf(options.log));
  await using undo = new AsyncDisposableStack();
  const kube = undo.adopt(
    createKubeClient({ source: { kind: "kubeconfig", path: site.ground.kubeconfigPath } }),
    (client) => client.close(),
  );
  const mirrors = createMirrors({ kube, log, metrics: noMetrics });
  const installation = await installationId(
    kube,
    { namespace: config.namespace, wanted: config.installation },
    site.signal,
  );
  const registries = undo.adopt(await openRegistries(config, { installation, kube }, site.signal), (opened) =>
    opened.close(),
  );
  const drivers = undo.adopt(openDrivers(config, { installation, kube, mirrors, log }), (pool) => pool.close());
  const stop = new AbortController();
  const role = createControllerRole({
    config,
    installation,
    kube: crashingKube(kube, gate),
    leases: crashingKube(kube, gate).resource<Lease>(LEASES),
    mirrors,
    drivers: {
      driverFor: async (...call) => crashingDriver(await drivers.driverFor(...call), gate),
      close: () => drivers.close(),
    },
    registry: { ...registries.registry, client: crashingRegistry(registries.registry.client, gate) },
    sources: registries.sources,
    metrics: noMetrics,
    verification: { verified: () => undefined, failed: () => undefined, damaged: () => undefined },
    rescueMetrics: {
      rescuesKept: () => undefined,
      rescueRetried: () => undefined,
      workLost: () => undefined,
    },
    log,
    identity: "test",
    clock: options.clock ?? systemClock,
  });
  const cachesEnd = new AbortController();
  const caches = mirrors.run(cachesEnd.signal);
  const running = role.run(stop.signal);
  const owned = undo.move();
  let ended: Promise<void> | undefined;
  const end = async () => {
    stop.abort(new Error("the test ends the controllers"));
    try {
      await running;
    } finally {
      cachesEnd.abort();
      await caches;
      await owned.disposeAsync();
    }
  };
  return {
    gate,
    stop: () => {
      ended ??= end();
      return ended;
    },
    [Symbol.asyncDispose]() {
      ended ??= end();
      return ended;
    },
  };
}

/** Waits until an object satisfies `check`; the message names what it was last. */
export async function until<T extends { status?: unknown }>(
  read: () => Promise<T>,
  check: (object: T) => boolean,
  options: { what: string; timeoutMs?: number },
): Promise<T> {
  let last: T | undefined;
  try {
    return await eventually(
      async () => {
        last = await read();
        return check(last) ? last : undefined;
      },
      // Each look is a request that the API server audits: at 50 ms these were four of ten of all its requests.
      { timeoutMs: options.timeoutMs ?? 60_000, intervalMs: 100, what: options.what },
    );
  } catch (error) {
    throw new Error(`${options.what} did not happen; last status ${JSON.stringify(last?.status, undefined, 1)}`, {
      cause: error,
    });
  }
}

/** The status of a condition, or undefined when it is absent. */
export const conditionOf = (
  object: { status?: { conditions?: readonly { type: string; status: string; reason: string; message: string }[] } },
  type: string,
) => object.status?.conditions?.find((condition) => condition.type === type);

export { OPERATOR_NAMESPACE };
