import { PartFailed } from "./errors.ts";
import { manifestsFor, OPERATOR_NAMESPACE } from "./operator.ts";
import { attempt, run } from "./process.ts";

/** A cluster that somebody else runs, named by env KUBECONFIG, made ready for a demo. */
export interface GivenCluster extends AsyncDisposable {
  readonly kubeconfigPath: string;
  /** Bearer token of a ServiceAccount of the demo: the gateway's direct endpoint takes tokens only. */
  token(signal: AbortSignal): Promise<string>;
}

const DEMO = "agent-worlds-demo";

/** The cluster that env KUBECONFIG names; undefined when it names none. */
export const givenKubeconfig = (): string | undefined => {
  const given = process.env["KUBECONFIG"];
  return given === undefined || given === "" ? undefined : given;
};

/**
 * Uses the given cluster and leaves it as it was: dispose removes CRDs, policies, namespace and rights of the demo.
 * @throws PartFailed when it does not answer, or has Agent Worlds already, which a demo must not touch.
 */
export async function useGivenCluster(kubeconfigPath: string, signal: AbortSignal): Promise<GivenCluster> {
  const kubectl = (words: readonly string[], within: AbortSignal) =>
    run(["kubectl", "--kubeconfig", kubeconfigPath, ...words], { signal: within });
  const installed = await attempt(
    ["kubectl", "--kubeconfig", kubeconfigPath, "get", "crd", "worlds.agentworlds.dev", "--request-timeout=10s"],
    { signal },
  );
  if (installed.code === 0) {
    throw new PartFailed(
      "cluster",
      `${kubeconfigPath} has Agent Worlds already: unset KUBECONFIG for a demo beside it`,
    );
  }
  if (!installed.stderr.includes("NotFound")) {
    throw new PartFailed("cluster", `${kubeconfigPath} cannot be used: ${installed.stderr.trim()}`);
  }
  return {
    kubeconfigPath,
    async token(within) {
      await kubectl(["-n", OPERATOR_NAMESPACE, "create", "serviceaccount", DEMO], within);
      const account = `--serviceaccount=${OPERATOR_NAMESPACE}:${DEMO}`;
      await kubectl(["create", "clusterrolebinding", DEMO, "--clusterrole=cluster-admin", account], within);
      return (await kubectl(["-n", OPERATOR_NAMESPACE, "create", "token", DEMO, "--duration=1h"], within)).trim();
    },
    async [Symbol.asyncDispose]() {
      const within = AbortSignal.timeout(120_000);
      const gone = ["--ignore-not-found", "--timeout=60s"];
      await kubectl(["delete", "clusterrolebinding", DEMO, ...gone], within);
      const { files } = await manifestsFor(kubeconfigPath, within);
      await kubectl(["delete", ...files, ...gone], within);
      await kubectl(["delete", "namespace", OPERATOR_NAMESPACE, ...gone], within);
    },
  };
}
