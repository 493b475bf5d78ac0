import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { partDirectory } from "./directory.ts";
import { PartFailed } from "./errors.ts";
import { send } from "./http.ts";
import { kubectlWords } from "./kubectl.ts";
import { freePort, onFreePorts } from "./ports.ts";
import { attempt, type RunningProcess, run, startProcess } from "./process.ts";
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
  /** Default `Enabled`: the API server runs on this machine and reaches the gateway. `Disabled`: it does not. */
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

/** Who stamps the creators of Worlds and Sandboxes in a cluster. */
export type StampedBy = "ApiServer" | "Gateway";

/**
 * Installs CRDs, admission policies and the operator's namespace, and waits until the API server takes the kinds. Says who
 * stamps creators there: where it is a gateway (Kubernetes below 1.36), creations are refused until one serves.
 */
export async function installOperator(kubeconfigPath: string, signal: AbortSignal): Promise<StampedBy> {
  const kubectl = (words: readonly string[], input = "") =>
    run(kubectlWords(kubeconfigPath, ...words), { signal, input });
  const { files, stampedBy } = await manifestsFor(kubeconfigPath, signal);
  await kubectl(["apply", "--server-side", ...files]);
  await kubectl(
    ["apply", "--server-side", "-f", "-"],
    `apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ${OPERATOR_NAMESPACE}\n`,
  );
  const names = PLURALS.map((plural) => `crd/${plural}.agentworlds.dev`);
  await kubectl(["wait", "--for=condition=Established", "--timeout=60s", ...names]);
  // "Established" is said before the admission policies know the kinds: a create is refused with 503 until they do.
  await eventually(() => takesKinds(kubeconfigPath, { stampedBy, signal }), {
    signal,
    timeoutMs: 60_000,
    intervalMs: 200,
    what: "the API server to take a World and a Sandbox",
  });
  return stampedBy;
}

const PLURALS = ["worlds", "sandboxes", "runtimes"];

/** The generated manifests that this cluster knows, as words for kubectl, and who stamps there. */
export async function manifestsFor(
  kubeconfigPath: string,
  signal: AbortSignal,
): Promise<{ files: readonly string[]; stampedBy: StampedBy }> {
  const path = "/apis/admissionregistration.k8s.io/v1";
  const api = await run(kubectlWords(kubeconfigPath, "get", "--raw", path), { signal });
  const stampedBy = api.includes('"mutatingadmissionpolicies"') ? "ApiServer" : "Gateway";
  const names = [...PLURALS, "admission", ...(stampedBy === "ApiServer" ? ["creator-stamp"] : [])];
  return { files: names.flatMap((name) => ["-f", join(ROOT, "crds", "generated", `${name}.yaml`)]), stampedBy };
}

/** Whether the policies let a World and a Sandbox in, or refuse them for nothing but the stamp that a gateway is to set. */
async function takesKinds(
  kubeconfigPath: string,
  { stampedBy, signal }: { stampedBy: StampedBy; signal: AbortSignal },
): Promise<boolean> {
  const words = kubectlWords(kubeconfigPath, "create", "--dry-run=server", "-f", "-");
  const tried = await attempt(words, { signal, input: PROBES });
  if (tried.code === 0) return true;
  const refusals = tried.stderr.match(/nothing stamped who creates this/g) ?? [];
  if (stampedBy === "Gateway" && refusals.length === 2) return true;
  throw new PartFailed("operator", tried.stderr);
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
export function startOperator(options: OperatorOptions): Promise<RunningOperator> {
  return onFreePorts(() => startOnce(options));
}

async function startOnce(options: OperatorOptions): Promise<RunningOperator> {
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
      // A webhook that the API server cannot reach would refuse every creation.
      creatorStamp: options.aggregation ?? "Enabled",
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
