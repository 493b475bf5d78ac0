/** Operator processes beside an API server that is too old to stamp creators by itself, and what their deaths mean for it. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { installOperator, type RunningOperator, startOperator } from "../../../hack/parts/operator.ts";
import { type ControlPlane, controlPlane, eventually } from "../../kit/index.ts";
import { kubectl, kubectlOk } from "../crds/api.ts";
import { type Creator, sandboxOf } from "../gateway/creators.ts";

const ALICE: Creator = { what: "a person", user: "alice" };
const WEBHOOKS = "mutatingwebhookconfigurations";

describe("operator processes on Kubernetes 1.34", () => {
  const parts = new AsyncDisposableStack();
  const ended = new AbortController();
  let cluster: ControlPlane;
  let alice: string;
  let gateway: RunningOperator;

  before(async () => {
    cluster = parts.use(await controlPlane({ own: true, apiServerFlags: ["--emulated-version=1.34"] }));
    assert.equal(await installOperator(cluster.kubeconfigPath, ended.signal), "Gateway");
    alice = await cluster.kubeconfigFor(ALICE);
    await admin("create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user=alice");
    parts.use(await start("controller"));
    gateway = await start("gateway");
  });
  after(async () => {
    await gateway?.[Symbol.asyncDispose]();
    await parts.disposeAsync();
    ended.abort();
  });

  const start = (role: "controller" | "gateway"): Promise<RunningOperator> =>
    startOperator({
      kubeconfigPath: cluster.kubeconfigPath,
      // Nothing here comes to a registry: no Sandbox gets further than the API server.
      registryUrl: "http://127.0.0.1:9",
      role,
      signal: ended.signal,
    });
  const admin = (...words: string[]): Promise<string> => kubectlOk(cluster.kubeconfigPath, words);
  const registered = async (): Promise<string> => (await admin("get", WEBHOOKS, "-o", "name")).trim();
  /** What alice is told when she would create; the stamp when she could. */
  async function tried(annotations: Record<string, string> = {}): Promise<string> {
    const text = sandboxOf({ ...ALICE, annotations }, { name: "tried", namespace: "default" });
    const stamp = "jsonpath={.metadata.annotations.agentworlds\\.dev/created-by}";
    const result = await kubectl(alice, ["create", "--dry-run=server", "-f", "-", "-o", stamp], text);
    return result.code === 0 ? result.stdout : result.stderr;
  }
  const says = (pattern: RegExp, timeoutMs = 30_000): Promise<string> =>
    eventually(
      async () => {
        const said = await tried();
        return pattern.test(said) && said;
      },
      { what: `alice being told ${pattern}`, timeoutMs, intervalMs: 250 },
    );

  test("a gateway stamps who creates, and overwrites what a client claims", async () => {
    await says(/^\{"user":"alice"\}$/);
    assert.equal(await tried({ "agentworlds.dev/created-by": '{"user":"bob"}' }), '{"user":"alice"}');
  });

  test("SIGKILL: the API server says who did not answer, then the controller withdraws and the policy says what to do", async () => {
    await gateway.kill();
    await says(/failed calling webhook "created-by\.agentworlds\.dev"/);
    await says(
      /nothing stamped who creates this.*set the annotation agentworlds\.dev\/created-by to \{"user":"alice"\}/,
      90_000,
    );
    assert.equal(await registered(), "");
    const own = { "agentworlds.dev/created-by": '{"user":"alice"}' };
    assert.equal(await tried(own), own["agentworlds.dev/created-by"], "who states truly who they are is not held up");
  });

  test("the next gateway stamps again; stopped in order it withdraws at once", async () => {
    await gateway[Symbol.asyncDispose]();
    gateway = await start("gateway");
    await says(/^\{"user":"alice"\}$/);
    assert.match(await registered(), /created-by\.agentworlds\.dev/);
    await gateway.stop();
    assert.equal(await registered(), "");
    assert.match(await tried(), /nothing stamped who creates this/);
  });
});
