/** The World on real parts: its end, its tags, its head, whose registry failed, and a holder that was removed by force. */
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import type { Sandbox, World } from "@agentworlds/crds";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { isNotFound } from "../../../operator/src/kube/errors.ts";
import { eventWith } from "../../kit/events.ts";
import { eventually, type FaultProxy, type FaultRule, startFaultProxy } from "../../kit/index.ts";
import { conditionOf, type RunningControllers, startControllers, testConfig, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

/** Every request to the registry is answered 503. */
const DOWN: FaultRule = { fault: { kind: "respond", status: 503, body: "down" } };

describe("the World", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let proxy: FaultProxy;
  let controllers: RunningControllers;

  const start = () =>
    startControllers(stage.site, {
      config: testConfig(stage.site.ground, {
        registry: { url: proxy.url, pullAs: new URL(stage.registry.endpoint.url).host },
        limits: { deletionDeadlineSeconds: 20 },
      }),
    });

  before(async () => {
    stage = parts.use(
      await Stage.open({
        async registryUrl(url) {
          const { hostname, port } = new URL(url);
          proxy = parts.use(await startFaultProxy({ targetHost: hostname, targetPort: Number(port) }));
          return proxy.url;
        },
      }),
    );
    controllers = await start();
    parts.defer(() => controllers.stop());
  });
  afterEach(() => proxy.clear());
  after(() => parts.disposeAsync());

  test("deletionPolicy Delete takes the versions along", async () => {
    const world = await stage.readyWorld(undefined, { deletionPolicy: "Delete" });
    await stage.kubectl("-n", stage.namespace, "delete", "world", world.metadata.name, "--timeout=60s");
    await assert.rejects(
      stage.registry.getManifest(stage.repositoryOf(world), world.status.head?.digest ?? "", stage.site.signal),
      { code: "NotFound" },
    );
  });

  test("deletionPolicy Delete while the registry is down: what is waited for is told, and at the deadline the World goes and names what it leaves", async () => {
    const world = await stage.readyWorld(undefined, { deletionPolicy: "Delete" });
    const outage = proxy.add(DOWN);
    await stage.kubectl("-n", stage.namespace, "delete", "world", world.metadata.name, "--wait=false");
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Reconciling")?.reason === "RegistryUnavailable",
      { what: "the reason" },
    );
    await gone(world);
    outage.remove();
    const kept = await eventWith(stage.site, world, "ContentKept");
    assert.ok(kept.note.includes(world.status.repository ?? "no repository"), kept.note);
    assert.ok(outage.applied > 0);
  });

  test("a version whose tag could not be written gets it after the next commit too", async () => {
    const world = await stage.readyWorld();
    const outage = proxy.add({ method: "PUT", path: /\/manifests\/v1$/, fault: { kind: "respond", status: 400 } });
    for (const work of ["one", "two"]) {
      const sandbox = await stage.readySandbox(world);
      await stage.shell(sandbox, `echo ${work} > /tmp/${work}`);
      await stage.close(sandbox);
    }
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "TagsNotRepaired")?.reason === "RegistryRefused",
      { what: "the refusal to be told" },
    );
    assert.ok(outage.applied > 0);
    outage.remove();
    await nudge(world);
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "TagsNotRepaired") === undefined,
      { what: "the tags to be repaired" },
    );
    assert.deepEqual(
      (await stage.tags(world)).filter((tag) => !tag.startsWith("capture-")),
      ["latest", "v0", "v1", "v2"],
    );
  });

  test("a head that the registry lost: the World says so and is not Ready; it heals when the manifest is back", async () => {
    const world = await stage.readyWorld();
    const repository = stage.repositoryOf(world);
    const digest = world.status.head?.digest;
    assert.ok(digest);
    const manifest = await stage.registry.getManifest(repository, digest, stage.site.signal);
    await stage.registry.deleteManifest(repository, digest, stage.site.signal);
    await nudge(world);
    const broken = await until(
      () => stage.world(world),
      (object) => conditionOf(object, "HeadAvailable")?.status === "False",
      { what: "HeadAvailable=False" },
    );
    assert.equal(conditionOf(broken, "Ready")?.reason, "HeadNotFound");
    await eventWith(stage.site, world, "HeadNotFound");
    await stage.registry.putManifest(repository, { reference: digest, ...manifest }, stage.site.signal);
    await nudge(world);
    await until(
      () => stage.world(world),
      (object) =>
        conditionOf(object, "Ready")?.status === "True" && conditionOf(object, "HeadAvailable")?.status === "True",
      { what: "the World to heal" },
    );
    assert.deepEqual(await stage.tags(world), ["latest", "v0"]);
  });

  test("the installation's registry refuses the genesis: the World waits, names whose registry it is, and heals", async () => {
    const refusal = proxy.add({
      path: /\/blobs\/uploads\//,
      fault: { kind: "respond", status: 413, body: '{"errors":[{"code":"SIZE_INVALID"}]}' },
    });
    const world = await stage.createWorld();
    const waiting = await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Ready")?.reason === "RegistryRefused",
      { what: "the reason" },
    );
    assert.equal(conditionOf(waiting, "Stalled"), undefined);
    assert.match(conditionOf(waiting, "Ready")?.message ?? "", /the installation's registry/);
    assert.ok(refusal.applied > 0);
    refusal.remove();
    await nudge(world);
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Ready")?.status === "True",
      { what: "the World to heal" },
    );
  });

  test("a holder removed by force together with its container: the hold ends, and the next session boots", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await controllers.stop();
    await engine("DELETE", `/containers/${sandbox.status.compute?.id}?force=1`);
    await removeByForce(sandbox);
    controllers = await start();
    await until(
      () => stage.world(world),
      (object) => object.status.holder === undefined,
      { what: "the hold to end" },
    );
    await eventWith(stage.site, world, "HoldEnded");
    await stage.close(await stage.readySandbox(world));
  });

  test("a holder removed by force whose container is left: the container is put aside, and its rescue holds the World", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo precious > /tmp/p");
    await controllers.stop();
    await removeByForce(sandbox);
    controllers = await start();
    const rescued = await until(
      async () => {
        await nudge(world);
        return stage.world(world);
      },
      (object) => object.status.holder === undefined && (object.status.rescues ?? []).length > 0,
      { what: "the rescue on the World" },
    );
    assert.equal(rescued.status.rescues?.[0]?.computeId, sandbox.status.compute?.id);
    assert.equal(await stage.containers(sandbox), 1, "the stopped container is kept");
    const second = await stage.sandboxOf({ world: { name: world.metadata.name } });
    await until(
      () => stage.sandbox(second),
      (object) => conditionOf(object, "Admitted")?.reason === "WorldHeld",
      { what: "the next session to wait for the rescue" },
    );
  });

  /** Makes the controller look at a World now, as any change of the object does. */
  async function nudge({ metadata: { name, namespace } }: World): Promise<void> {
    const annotations = { "example.com/nudge": String(performance.now()) };
    await stage.site.worlds.patch(
      { name, ...(namespace === undefined ? {} : { namespace }) },
      { metadata: { annotations } },
      { signal: stage.site.signal },
    );
  }

  async function gone(world: World): Promise<void> {
    await eventually(
      async () => {
        try {
          await stage.world(world);
          return undefined;
        } catch (error) {
          if (isNotFound(error)) return true;
          throw error;
        }
      },
      { timeoutMs: 60_000, what: `World ${world.metadata.name} to be gone` },
    );
  }

  async function removeByForce({ metadata: { name } }: Sandbox): Promise<void> {
    const patch = JSON.stringify({ metadata: { finalizers: null } });
    await stage.kubectl("-n", stage.namespace, "patch", "sandbox", name, "--type=merge", "-p", patch);
    await stage.kubectl("-n", stage.namespace, "delete", "sandbox", name, "--timeout=60s");
  }

  async function engine(method: string, path: string): Promise<void> {
    const { dockerHost } = stage.site.ground;
    expectSuccess(`${method} ${path}`, await callEngine(dockerHost, { method, path, signal: stage.site.signal }));
  }
});
