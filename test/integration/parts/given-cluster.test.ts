import assert from "node:assert/strict";
import { test } from "node:test";
import { demoToken, useGivenCluster } from "../../../hack/parts/given-cluster.ts";
import { kubectlWords } from "../../../hack/parts/kubectl.ts";
import { installOperator } from "../../../hack/parts/operator.ts";
import { run } from "../../../hack/parts/process.ts";
import { controlPlane } from "../../kit/index.ts";

test("a demo that broke off leaves nothing in somebody's cluster, whatever held its objects", async () => {
  await using own = await controlPlane({ own: true });
  const signal = AbortSignal.timeout(3 * 60_000);
  const kubectl = (input: string, ...words: string[]) =>
    run(kubectlWords(own.kubeconfigPath, ...words), { input, signal });
  const names = async () => (await kubectl("", "get", "crd,namespace,clusterrolebinding", "-o", "name")).split("\n");
  const before = await names();
  {
    await using cluster = await useGivenCluster(own.kubeconfigPath, signal);
    await installOperator(own.kubeconfigPath, signal);
    await demoToken(cluster.kubeconfigPath, signal);
    // As an operator leaves it that was killed while a session ran.
    const held = (kind: string, spec: object) =>
      kubectl(
        JSON.stringify({
          apiVersion: "agentworlds.dev/v1alpha1",
          kind,
          metadata: { name: "held", finalizers: ["agentworlds.dev/compute"] },
          spec,
        }),
        ...["create", "--filename", "-"],
      );
    await held("Runtime", { docker: { hosts: [{ name: "a", endpoint: "unix:///run/docker.sock" }] } });
    await held("World", { from: { image: "registry.example/base:1" } });
    await held("Sandbox", { world: { name: "held" } });
    await assert.rejects(useGivenCluster(own.kubeconfigPath, signal), /has Agent Worlds already/);
  }
  assert.deepEqual(await names(), before);
});
