/**
 * Two tenants on one host, on real parts. One of them, who may write status, names the other's container in it: no command, no
 * file and no ending reaches that one, and the own work is still saved.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox, SandboxStatus, World } from "@agentworlds/crds";
import { startOperator } from "../../../hack/parts/operator.ts";
import { AgentWorlds, AgentWorldsError } from "../../../sdk/src/index.ts";
import { eventually } from "../../kit/index.ts";
import { type RunningControllers, startControllers } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

interface Tenant {
  readonly world: World;
  readonly ready: Sandbox;
}

describe("a Sandbox whose status names another tenant's container", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let controllers: RunningControllers;

  before(async () => {
    stage = parts.use(await Stage.open());
    controllers = parts.use(await startControllers(stage.site));
  });
  after(() => parts.disposeAsync());

  async function tenant(namespace: string, work: string): Promise<Tenant> {
    const world = await stage.readyWorld(undefined, {}, namespace);
    const ready = await stage.readySandbox(world, { ttlSeconds: 600 });
    await stage.shell(ready, `echo ${work} > /tmp/work`);
    return { world, ready };
  }

  const forge = (of: Sandbox, status: { [Field in keyof SandboxStatus]?: SandboxStatus[Field] | null }) =>
    stage.site.sandboxes.patchStatus(
      { name: of.metadata.name, namespace: of.metadata.namespace ?? "" },
      { status },
      { signal: stage.site.signal },
    );

  const forgeId = ({ ready }: Tenant, id: string | undefined) =>
    forge(ready, { compute: { ...ready.status.compute, id } as NonNullable<SandboxStatus["compute"]> });

  async function assertUntouched({ world, ready }: Tenant, work: string): Promise<void> {
    assert.equal(await stage.containers(ready), 1);
    assert.equal((await stage.driver.inspect(ready.status.compute?.id ?? "", stage.site.signal)).state, "Running");
    assert.equal(await stage.shell(ready, "cat /tmp/work"), `${work}\n`);
    assert.equal((await stage.world(world)).status.head?.version, 0);
  }

  test("while no controller runs: a gateway refuses commands and files by name", async () => {
    const victim = await tenant(await stage.site.namespace(), "secret");
    const forger = await tenant(stage.namespace, "own");
    await controllers.stop();
    await using _ = await startOperator({
      kubeconfigPath: stage.site.ground.kubeconfigPath,
      registryUrl: stage.site.ground.registryUrl,
      role: "gateway",
      signal: stage.site.signal,
    });
    await using worlds = new AgentWorlds({
      kubeconfig: stage.site.ground.kubeconfigPath,
      namespace: stage.namespace,
    });
    const session = await eventually(() => worlds.sandboxes.get(forger.ready.metadata.name), { what: "the gateway" });
    const first = await eventually(() => session.exec(["cat", "/tmp/work"]), { what: "a command through the gateway" });
    assert.equal(first.stdout, "own\n");
    await forgeId(forger, victim.ready.status.compute?.id);
    const isRefused = (error: unknown) => error instanceof AgentWorldsError && error.code === "ForeignCompute";
    await assert.rejects(session.exec(["cat", "/tmp/work"]), isRefused);
    await assert.rejects(session.readFile("/tmp/work"), isRefused);
    await assert.rejects(session.writeFile("/tmp/work", new TextEncoder().encode("x")), isRefused);
    await assertUntouched(victim, "secret");
    // The controller that comes back finds the own container and goes on with it.
    controllers = parts.use(await startControllers(stage.site));
    await eventually(
      async () => (await stage.sandbox(forger.ready)).status.compute?.id === forger.ready.status.compute?.id,
      { what: "the own container to be found" },
    );
    assert.equal((await session.exec(["cat", "/tmp/work"])).stdout, "own\n");
    await stage.close(await stage.sandbox(forger.ready));
    await assertUntouched(victim, "secret");
    await stage.close(victim.ready);
  });

  for (const [ending, end] of Object.entries<(sandbox: Sandbox) => Promise<unknown>>({
    hibernated: (sandbox) => stage.setMode(sandbox, "Hibernated"),
    deleted: (sandbox) => stage.deleted(sandbox),
  })) {
    test(`${ending}: the own work becomes a version, the own container goes, the other's is as it was`, async () => {
      const victim = await tenant(await stage.site.namespace(), "secret");
      const forger = await tenant(stage.namespace, "own");
      await forgeId(forger, victim.ready.status.compute?.id);
      await end(await stage.sandbox(forger.ready));
      const { status } = await stage.world(forger.world);
      assert.equal(status.head?.version, 1);
      assert.equal(await stage.readInVersion(forger.world, status.head?.digest, "tmp/work"), "own\n");
      assert.equal(status.holder, undefined);
      assert.equal(await stage.containers(forger.ready), 0);
      await assertUntouched(victim, "secret");
      await stage.close(victim.ready);
    });
  }
});
