/** Bad input and trouble: each leaves a condition that says what to do, and nothing is lost. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { eventWith } from "../../kit/events.ts";
import { type FaultProxy, type FaultRule, startFaultProxy } from "../../kit/index.ts";
import { conditionOf, startControllers, testConfig, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

/** Every request to the registry is answered 503. */
const DOWN: FaultRule = { fault: { kind: "respond", status: 503, body: "down" } };

describe("trouble", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let proxy: FaultProxy;

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
    const config = testConfig(stage.site.ground, {
      // Hosts reach the registry itself; only the operator's way is broken on purpose.
      registry: { url: proxy.url, pullAs: new URL(stage.registry.endpoint.url).host },
      limits: { deletionDeadlineSeconds: 4 },
    });
    parts.use(await startControllers(stage.site, { config }));
  });
  after(() => parts.disposeAsync());

  test("a Runtime that does not exist: the World waits, says so, and heals when it appears", async () => {
    const world = await stage.createWorld({ runtime: { name: "nowhere" } });
    const waiting = await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Ready")?.reason === "RuntimeNotFound",
      { what: "the reason" },
    );
    assert.match(conditionOf(waiting, "Ready")?.message ?? "", /Runtime nowhere does not exist; create it/);
    const told = await eventWith(stage.site, world, "RuntimeNotFound");
    assert.match(told.note, /Runtime nowhere does not exist; create it/);
    assert.equal(told.type, "Warning");
    assert.ok(told.metadata.annotations?.["agentworlds.dev/caused-by"], "it says who is behind it");
    const { spec } = await stage.site.runtimes.get({ name: "local" }, { signal: stage.site.signal });
    await stage.site.runtimes.create(
      {
        apiVersion: "agentworlds.dev/v1alpha1",
        kind: "Runtime",
        metadata: { name: "nowhere" },
        spec: { ...spec, selection: "ByName" },
      },
      { signal: stage.site.signal },
    );
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Ready")?.status === "True",
      { what: "the World to heal" },
    );
  });

  test("an image that does not exist stalls the World by name", async () => {
    const image = stage.image.replace("busybox", "no-such-image");
    const world = await stage.createWorld({ from: { image } });
    const stalled = await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Stalled")?.status === "True",
      { what: "the stall" },
    );
    assert.equal(conditionOf(stalled, "Stalled")?.reason, "ImageNotFound");
    assert.match(conditionOf(stalled, "Stalled")?.message ?? "", /no-such-image/);
    assert.match((await eventWith(stage.site, world, "ImageNotFound")).note, /no-such-image/);
  });

  test("the installation's own Worlds are no image source", async () => {
    const victim = await stage.readyWorld();
    const world = await stage.createWorld({ from: { image: victim.status.head?.image ?? "" } });
    const stalled = await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Stalled")?.status === "True",
      { what: "the refusal" },
    );
    assert.equal(conditionOf(stalled, "Stalled")?.reason, "ImageNotAllowed");
    await eventWith(stage.site, world, "ImageNotAllowed");
  });

  test("a World that does not exist: the Sandbox waits and boots when it appears", async () => {
    const sandbox = await stage.sandboxOf({ world: { name: "later" } });
    await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "Admitted")?.reason === "WorldNotFound",
      { what: "the reason" },
    );
    assert.match((await eventWith(stage.site, sandbox, "WorldNotFound")).note, /World later does not exist/);
    await stage.readyWorld("later");
    await stage.close(await stage.ready(sandbox, 1));
  });

  test("the registry is down at genesis: the World waits and heals by itself", async () => {
    const outage = proxy.add(DOWN);
    const world = await stage.createWorld();
    const waiting = await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Ready")?.reason === "RegistryUnavailable",
      { what: "the reason" },
    );
    assert.match(conditionOf(waiting, "Ready")?.message ?? "", /nothing is lost/);
    assert.ok(outage.applied > 0);
    assert.match((await eventWith(stage.site, world, "RegistryUnavailable")).note, /nothing is lost/);
    outage.remove();
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Ready")?.status === "True",
      { what: "the World to heal" },
    );
  });

  test("the registry is down at hibernation: the container is kept, the condition says when it is tried again, then it publishes", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo precious > /tmp/p");
    const outage = proxy.add(DOWN);
    await stage.patchMode(sandbox, "Hibernated");
    const failing = await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "SnapshotFailed")?.status === "True",
      { what: "SnapshotFailed" },
    );
    assert.match(conditionOf(failing, "SnapshotFailed")?.message ?? "", /the container is kept/);
    const told = await eventWith(stage.site, sandbox, conditionOf(failing, "SnapshotFailed")?.reason);
    assert.match(told.note, /the container is kept/);
    assert.equal(await stage.containers(sandbox), 1);
    assert.equal((await stage.world(world)).status.head?.version, 0, "nothing half-written");
    assert.equal((await stage.world(world)).status.holder?.uid, sandbox.metadata.uid, "still held");
    outage.remove();
    await stage.hibernated(sandbox);
    const { status } = await stage.world(world);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/p"), "precious\n");
  });

  test("the container is killed from outside: what it had becomes a version marked as a crash", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo survived > /tmp/k");
    await engineCall(stage, "POST", `/containers/${sandbox.status.compute?.id}/kill`);
    await stage.nudge(sandbox);
    const ended = await stage.hibernated(sandbox);
    assert.equal(conditionOf(ended, "Hibernated")?.reason, "ContainerExited");
    // Told when the end begins, under the reason that Ready has then.
    assert.match((await eventWith(stage.site, sandbox, "Hibernating")).note, /ContainerExited/);
    const { status } = await stage.world(world);
    assert.equal(status.versions?.at(-1)?.reason, "Crash");
    assert.equal(status.versions?.at(-1)?.consistency, "Crash");
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/k"), "survived\n");
  });

  test("the container is removed from outside: ComputeLost, the last version stands, nothing boots by itself", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await engineCall(stage, "DELETE", `/containers/${sandbox.status.compute?.id}?force=1`);
    await stage.nudge(sandbox);
    const lost = await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "ComputeLost")?.status === "True",
      { what: "ComputeLost" },
    );
    assert.equal(lost.status.phase, "Failed");
    await eventWith(stage.site, sandbox, conditionOf(lost, "ComputeLost")?.reason);
    assert.equal(conditionOf(lost, "Hibernated"), undefined, "nothing is pretended");
    const { status } = await stage.world(world);
    assert.equal(status.head?.version, 0);
    assert.equal(status.holder, undefined);
    await stage.request(lost, { id: "again", verb: "Touch" });
    await stage.close(await stage.ready(lost, 2));
  });

  test("a foreign container of the boot's name is not touched, and the Sandbox says so", async () => {
    const world = await stage.readyWorld();
    const asleep = await stage.sandboxOf({ world: { name: world.metadata.name }, mode: "Hibernated" });
    const name = `aw-${asleep.metadata.uid}-1`;
    const created = await engineCall(stage, "POST", `/containers/create?name=${name}`, {
      Image: stage.image,
      Cmd: ["sh"],
    });
    await stage.patchMode(asleep, "Running");
    const waiting = await until(
      () => stage.sandbox(asleep),
      (object) => conditionOf(object, "Ready")?.reason === "ComputeConflict",
      { what: "the conflict" },
    );
    assert.match((await eventWith(stage.site, asleep, "ComputeConflict")).note, new RegExp(name));
    await stage.deleted(waiting);
    const { Id } = JSON.parse(created);
    const survivor = JSON.parse(await engineCall(stage, "GET", `/containers/${Id}/json`));
    assert.equal(survivor.Name, `/${name}`);
    await engineCall(stage, "DELETE", `/containers/${Id}?force=1`);
  });

  test("a namespace is deleted while the registry is down: it goes, and the work is kept and named on the Runtime", async () => {
    const namespace = await stage.site.namespace();
    const world = await stage.readyWorld(undefined, {}, namespace);
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo kept > /tmp/n");
    const outage = proxy.add(DOWN);
    await stage.kubectl("delete", "namespace", namespace, "--timeout=90s");
    outage.remove();
    const runtime = await stage.site.runtimes.get({ name: "local" }, { signal: stage.site.signal });
    const rescue = runtime.status.rescues?.find(({ sandbox: of }) => of.uid === sandbox.metadata.uid);
    assert.equal(rescue?.namespace, namespace);
    assert.equal(rescue?.computeId, sandbox.status.compute?.id);
    assert.equal(await stage.containers(sandbox), 1, "the stopped container is kept");
  });

  test("a container that is restarted by hand: told by name, and what was in it is saved as after a crash", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo kept > /tmp/c");
    await engineCall(stage, "POST", `/containers/${sandbox.status.compute?.id}/restart?t=0`);
    await stage.nudge(sandbox);
    await eventWith(stage.site, sandbox, "ContainerRestarted");
    const asleep = await stage.hibernated(sandbox);
    assert.equal(conditionOf(asleep, "Hibernated")?.reason, "ContainerExited");
    const { status } = await stage.world(world);
    assert.equal(status.versions?.at(-1)?.recovered?.reason, "ContainerExited");
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/c"), "kept\n");
    assert.equal(await stage.containers(sandbox), 0);
  });

  test("three hundred touches written beside the controller: none is lost, the session hibernates at the last one", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world, { ttlSeconds: 2 });
    const last = await stage.touchOften(sandbox, 300);
    const asleep = await stage.hibernated(sandbox);
    const endedAt = Date.parse(asleep.status.lastEnding?.at ?? "");
    assert.ok(endedAt >= last, `ended ${last - endedAt} ms before the last touch's deadline`);
  });
});

async function engineCall(stage: Stage, method: string, path: string, body?: unknown): Promise<string> {
  const answer = await callEngine(stage.site.ground.dockerHost, {
    method,
    path,
    headers: { "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: stage.site.signal,
  });
  return expectSuccess(`${method} ${path}`, answer);
}
