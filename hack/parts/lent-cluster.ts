import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PartFailed } from "./errors.ts";
import { kubectlSaid, kubectlWords } from "./kubectl.ts";
import { ROOT } from "./operator.ts";
import type { PartsFile } from "./parts-file.ts";
import { attempt, run } from "./process.ts";

/** A cluster that somebody lends to the tests. */
export interface LentCluster extends AsyncDisposable {
  readonly lent: NonNullable<PartsFile["lent"]>;
}

const KINDS = ["worlds", "sandboxes", "runtimes"];

/**
 * Makes the cluster that env KUBECONFIG names ready for tests: its current context alone is used, by a copy in `directory`, and
 * gets the CRDs unless it has some, which are then somebody's and stay untouched. Dispose removes what was added.
 * @throws PartFailed when the cluster does not answer, or is not reached by a client certificate.
 */
export async function borrowCluster(directory: string, signal: AbortSignal): Promise<LentCluster> {
  const kubeconfig = join(directory, "lent.kubeconfig");
  const view = ["kubectl", "config", "view", "--minify", "--flatten", "--output", "json"];
  const text = await run(view, { signal });
  if (!text.includes('"client-certificate-data"') || !text.includes('"certificate-authority-data"')) {
    throw new PartFailed(
      "cluster",
      `the user of KUBECONFIG has no client certificate, which the tests need: unset KUBECONFIG, or name an administrator's`,
    );
  }
  await writeFile(kubeconfig, text, { mode: 0o600 });
  const kubectl = (...words: string[]): string[] => kubectlWords(kubeconfig, ...words);
  const files = KINDS.flatMap((plural) => ["--filename", join(ROOT, "crds", "generated", `${plural}.yaml`)]);
  const found = await attempt(kubectl("get", "crd", ...KINDS.map(crdName), "--request-timeout=10s", "--output=name"), {
    signal,
  });
  if (found.stdout.includes("agentworlds.dev")) return { lent: { kubeconfig, kinds: "Theirs" }, ...nothingToUndo };
  if (!found.stderr.includes("NotFound")) {
    throw new PartFailed("cluster", `that of KUBECONFIG cannot be used: ${kubectlSaid(found.stderr)}`);
  }
  await using undo = new AsyncDisposableStack();
  undo.defer(async () => {
    const end = kubectl("delete", ...files, "--ignore-not-found", "--timeout=60s");
    await run(end, { signal: AbortSignal.timeout(90_000) });
  });
  await run(kubectl("apply", "--server-side", ...files), { signal });
  await run(kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", ...KINDS.map(crdName)), { signal });
  const owned = undo.move();
  return { lent: { kubeconfig, kinds: "Ours" }, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

const crdName = (plural: string): string => `${plural}.agentworlds.dev`;

const nothingToUndo: AsyncDisposable = {
  async [Symbol.asyncDispose]() {
    // Nothing was added.
  },
};
