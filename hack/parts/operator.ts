import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { partDirectory } from "./directory.ts";
import { send } from "./http.ts";
import { freePort } from "./ports.ts";
import { type RunningProcess, run, startProcess } from "./process.ts";
import { eventually } from "./wait.ts";

/** Where the repository is. */
export const ROOT = join(import.meta.dirname, "..", "..");

/** How to run the operator beside a cluster. */
export interface OperatorOptions {
  readonly kubeconfigPath: string;
  /** Address of the registry, `http://127.0.0.1:5055`. */
  readonly registryUrl: string;
  /** Folder for settings and log; default: a temporary one that dispose removes. */
  readonly directory?: string;
  readonly role?: "all" | "controller" | "gateway";
  /** Default `Enabled`: the API server runs on this machine and reaches the gateway. */
  readonly aggregation?: "Enabled" | "Disabled";
  /** Laid over the settings of the demo, key by key. */
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly env?: NodeJS.ProcessEnv;
  readonly signal: AbortSignal;
}

/** An operator process that is ready. */
export interface RunningOperator extends AsyncDisposable {
  readonly process: RunningProcess;
  readonly logPath: string;
  readonly metricsPort: number;
  readonly healthPort: number;
  readonly gatewayPort: number;
  /** Orderly end (SIGTERM), then KILL after 30 s. */
  stop(): Promise<void>;
  /** SIGKILL: what it was doing stays half done. */
  kill(): Promise<void>;
}

/** The operator's namespace. */
export const OPERATOR_NAMESPACE = "agent-worlds-system";

/** Installs CRDs, admission policies and the operator's namespace, and waits until the API server serves the kinds. */
export async function installOperator(kubeconfigPath: string, signal: AbortSignal): Promise<void> {
  const kubectl = (...words: string[]) => run(["kubectl", "--kubeconfig", kubeconfigPath, ...words], { signal });
  await kubectl("apply", "--server-side", "-f", join(ROOT, "crds", "generated"));
  await run(["kubectl", "--kubeconfig", kubeconfigPath, "apply", "--server-side", "-f", "-"], {
    signal,
    input: `apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ${OPERATOR_NAMESPACE}\n`,
  });
  const names = ["worlds", "sandboxes", "runtimes"].map((plural) => `crd/${plural}.agentworlds.dev`);
  await kubectl("wait", "--for=condition=Established", "--timeout=60s", ...names);
  // "Established" is said before the admission policies know the kinds: a create is refused with 503 until they do.
  await eventually(
    async () => {
      await run(["kubectl", "--kubeconfig", kubeconfigPath, "create", "--dry-run=server", "-f", "-"], {
        signal,
        input: PROBES,
      });
      return true;
    },
    { signal, timeoutMs: 60_000, intervalMs: 200, what: "the API server to take a World and a Sandbox" },
  );
}

const PROBES = `apiVersion: agentworlds.dev/v1alpha1
kind: World
metadata: { name: probe, namespace: default }
spec: { from: { image: probe } }
---
apiVersion: agentworlds.dev/v1alpha1
kind: Sandbox
metadata: { name: probe, namespace: default }
spec: { image: probe }
`;

/** Starts one operator process and waits for its readiness. The CRDs must be installed. */
export async function startOperator(options: OperatorOptions): Promise<RunningOperator> {
  await using undo = new AsyncDisposableStack();
  const { path } = undo.use(
    await partDirectory({
      kind: "operator",
      ...(options.directory === undefined ? {} : { given: options.directory }),
    }),
  );
  const role = options.role ?? "all";
  const [gatewayPort, metricsPort, healthPort] = [await freePort(), await freePort(), await freePort()];
  const settings = {
    role,
    registry: { url: options.registryUrl },
    sources: { development: "Enabled" },
    gateway: {
      port: gatewayPort,
      address: "127.0.0.1",
      service: "ExternalName",
      aggregation: options.aggregation ?? "Enabled",
    },
    metrics: { port: metricsPort },
    health: { port: healthPort },
    ...options.settings,
  };
  const configPath = join(path, "config.yaml");
  // JSON is YAML.
  await writeFile(configPath, JSON.stringify(settings, undefined, 2));
  const logPath = join(path, "operator.log");
  const started = undo.use(
    await startProcess({
      name: "operator",
      command: process.execPath,
      args: [join(ROOT, "operator", "src", "main.ts"), "--config", configPath, "--kubeconfig", options.kubeconfigPath],
      env: { ...process.env, ...options.env, NODE_NO_WARNINGS: "1" },
      logPath,
    }),
  );
  await started.ready(
    async (signal) => {
      const answer = await send({ url: `http://127.0.0.1:${healthPort}/readyz`, signal });
      return answer.status === 200;
    },
    { timeoutMs: 120_000, signal: options.signal },
  );
  const owned = undo.move();
  return {
    process: started,
    logPath,
    metricsPort,
    healthPort,
    gatewayPort,
    stop: () => started.stop(30_000),
    async kill() {
      process.kill(started.pid, "SIGKILL");
      await started.exited;
    },
    async [Symbol.asyncDispose]() {
      await using _ = owned;
      await started.stop(30_000);
    },
  };
}
