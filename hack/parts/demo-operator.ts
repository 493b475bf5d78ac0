/** The operator of the demo, on parts that are up: CRDs, policies, one process. */
import { join } from "node:path";
import type { GivenCluster } from "./given-cluster.ts";
import { kubectlWords } from "./kubectl.ts";
import { installOperator, startOperator } from "./operator.ts";
import type { PartsFile } from "./parts-file.ts";
import { run } from "./process.ts";

export interface DemoOperator extends AsyncDisposable {
  readonly running: NonNullable<PartsFile["operator"]>;
  readonly pid: number;
  /** Set where creators stay unnamed: why. */
  readonly unstamped?: string;
}

/** Dispose ends it; before that what a given cluster has of our kinds goes in order. */
export async function startDemoOperator(options: {
  readonly parts: Pick<PartsFile, "controlPlane" | "registry">;
  /** Where its settings and its log go. */
  readonly directory: string;
  /** Whose control plane it is, when it is not our own. */
  readonly cluster?: GivenCluster | undefined;
  readonly signal: AbortSignal;
}): Promise<DemoOperator> {
  const { parts, cluster, signal } = options;
  const { kubeconfig } = parts.controlPlane;
  const stampedBy = await installOperator(kubeconfig, signal);
  const isUnstamped = cluster !== undefined && stampedBy === "Gateway";
  if (isUnstamped) {
    // Its API server is older than 1.36 and may not reach this machine: nobody can stamp.
    const words = ["delete", "validatingadmissionpolicybinding", "created-by-is-there.agentworlds.dev"];
    await run(kubectlWords(kubeconfig, ...words), { signal });
  }
  await using undo = new AsyncDisposableStack();
  const operator = undo.use(
    await startOperator({
      kubeconfigPath: kubeconfig,
      registryUrl: parts.registry.url,
      directory: join(options.directory, "operator"),
      ...(cluster === undefined ? {} : { aggregation: "Disabled" }),
      signal,
    }),
  );
  // Before the operator ends: also after Ctrl-C and failures nothing may stay in somebody's cluster.
  if (cluster !== undefined) undo.use(cluster.objects());
  const owned = undo.move();
  return {
    running: { log: operator.logPath, gatewayPort: operator.gatewayPort },
    pid: operator.process.pid,
    ...(isUnstamped
      ? {
          unstamped:
            "this cluster does not stamp creators and may not reach this machine: they stay unnamed in this demo",
        }
      : {}),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
