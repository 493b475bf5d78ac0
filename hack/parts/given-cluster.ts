import { PartFailed } from "./errors.ts";
import { kubectlSaid, kubectlWords } from "./kubectl.ts";
import { manifestsFor, OPERATOR_NAMESPACE } from "./operator.ts";
import { attempt, run } from "./process.ts";

/** A cluster that somebody else runs, named by env KUBECONFIG, made ready for a demo. */
export interface GivenCluster extends AsyncDisposable {
  readonly kubeconfigPath: string;
  /** Deletes on dispose, in order, what the demo made of our kinds; the operator must run then. */
  objects(): AsyncDisposable;
}

const DEMO = "agent-worlds-demo";
const KINDS = ["sandboxes", "worlds", "runtimes"].map((plural) => `${plural}.agentworlds.dev`);

/** The cluster that env KUBECONFIG names; undefined when it names none. */
export const givenKubeconfig = (): string | undefined => {
  const given = process.env["KUBECONFIG"];
  return given === undefined || given === "" ? undefined : given;
};

/** Whether a cluster answers, and has our kinds. */
export async function lookAtCluster(
  kubeconfigPath: string,
  signal: AbortSignal,
): Promise<"Empty" | "HasAgentWorlds" | { readonly trouble: string }> {
  const words = kubectlWords(kubeconfigPath, "get", "crd", "worlds.agentworlds.dev", "--request-timeout=10s");
  const { code, stderr } = await attempt(words, { signal });
  if (code === 0) return "HasAgentWorlds";
  return stderr.includes("NotFound") ? "Empty" : { trouble: kubectlSaid(stderr) };
}

/**
 * Uses the given cluster and leaves it as it was: dispose removes CRDs, policies, namespace and rights of the demo.
 * @throws PartFailed when it does not answer, or has Agent Worlds already, which a demo must not touch.
 */
export async function useGivenCluster(kubeconfigPath: string, signal: AbortSignal): Promise<GivenCluster> {
  const kubectl = (words: readonly string[], within: AbortSignal) =>
    run(kubectlWords(kubeconfigPath, ...words), { signal: within });
  const seen = await lookAtCluster(kubeconfigPath, signal);
  if (seen === "HasAgentWorlds") {
    throw new PartFailed(
      "cluster",
      `${kubeconfigPath} has Agent Worlds already: unset KUBECONFIG for a demo beside it`,
    );
  }
  if (seen !== "Empty") throw new PartFailed("cluster", `${kubeconfigPath} cannot be used: ${seen.trouble}`);
  return {
    kubeconfigPath,
    objects: () => ({
      async [Symbol.asyncDispose]() {
        const words = kubectlWords(kubeconfigPath, "delete", KINDS.join(","), "--all", "-A", "--timeout=60s");
        // What does not go in order is forced when the operator has ended.
        await attempt(words, { signal: AbortSignal.timeout(90_000) });
      },
    }),
    async [Symbol.asyncDispose]() {
      const within = AbortSignal.timeout(180_000);
      const gone = ["--ignore-not-found", "--timeout=60s"];
      // Whatever one of them fails with, the others are tried; the last named is the first done.
      await using undo = new AsyncDisposableStack();
      undo.defer(async () => void (await kubectl(["delete", "namespace", OPERATOR_NAMESPACE, ...gone], within)));
      undo.defer(async () => {
        const { files } = await manifestsFor(kubeconfigPath, within);
        await kubectl(["delete", ...files, ...gone], within);
      });
      undo.defer(() => forceObjects(kubeconfigPath, within));
      undo.defer(async () => void (await kubectl(["delete", "clusterrolebinding", DEMO, ...gone], within)));
    },
  };
}

/** Bearer token of a ServiceAccount of the demo: the gateway's direct endpoint takes tokens only. Goes with the given cluster's dispose. */
export async function demoToken(kubeconfigPath: string, signal: AbortSignal): Promise<string> {
  const kubectl = (...words: string[]) => run(kubectlWords(kubeconfigPath, ...words), { signal });
  await kubectl("-n", OPERATOR_NAMESPACE, "create", "serviceaccount", DEMO);
  const account = `--serviceaccount=${OPERATOR_NAMESPACE}:${DEMO}`;
  await kubectl("create", "clusterrolebinding", DEMO, "--clusterrole=cluster-admin", account);
  return (await kubectl("-n", OPERATOR_NAMESPACE, "create", "token", DEMO, "--duration=1h")).trim();
}

/** Nobody is left who would drop their finalizers, and with one of them the CRDs would never go. All of them are the demo's. */
async function forceObjects(kubeconfigPath: string, signal: AbortSignal): Promise<void> {
  const kubectl = (...words: string[]) => attempt(kubectlWords(kubeconfigPath, ...words), { signal });
  for (const kind of KINDS) {
    const path = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}";
    // No answer: the CRD was never installed.
    const { stdout } = await kubectl("get", kind, "-A", "-o", path);
    for (const [namespace = "", name = ""] of stdout
      .trim()
      .split(" ")
      .map((item) => item.split("/"))) {
      if (name === "") continue;
      const at = namespace === "" ? [] : ["-n", namespace];
      process.stderr.write(`${kind} ${name} did not go by itself: it is removed by force\n`);
      await kubectl(...at, "delete", kind, name, "--wait=false", "--ignore-not-found");
      await kubectl(...at, "patch", kind, name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}');
    }
  }
}
