import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { kubectlWords } from "../../../hack/parts/kubectl.ts";
import { run } from "../../../hack/parts/process.ts";
import { controlPlane } from "../../kit/index.ts";

test("kubectl leaves no cache behind in the home of whoever runs the demo or the tests", async () => {
  await using cluster = await controlPlane();
  await using undo = new AsyncDisposableStack();
  const home = await mkdtemp(join(tmpdir(), "agent-worlds-home-"));
  undo.defer(() => rm(home, { recursive: true }));
  const options = { env: { ...process.env, HOME: home }, signal: AbortSignal.timeout(60_000) };
  assert.match(await run(kubectlWords(cluster.kubeconfigPath, "api-resources"), options), /configmaps/);
  assert.match(await run(kubectlWords(cluster.kubeconfigPath, "get", "namespaces"), options), /default/);
  assert.deepEqual(await readdir(home), []);
});
