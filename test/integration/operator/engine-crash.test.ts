/**
 * The engine itself dies, with its containers or without: what a session had becomes a version, or the session goes on. A host
 * that reboots is the same to the operator: silence, then an engine whose containers have all ended.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type PrivateEngine, startPrivateEngine } from "../../../hack/parts/engine.ts";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { engineVolumeName } from "../../../operator/src/runtime/docker/engine-marker.ts";
import { conditionOf, startControllers, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

async function open(daemonSettings: Record<string, unknown> = {}) {
  await using undo = new AsyncDisposableStack();
  let engine: PrivateEngine | undefined;
  const stage = undo.use(
    await Stage.open({
      async engine() {
        engine = await startPrivateEngine({ daemonSettings, signal: AbortSignal.timeout(5 * 60_000) });
        return engine;
      },
    }),
  );
  if (!engine) throw new TypeError("no engine was started");
  const controllers = undo.use(await startControllers(stage.site));
  const owned = undo.move();
  return { stage, engine, controllers, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

type Opened = Awaited<ReturnType<typeof open>>;

const deaths: Record<string, (engine: PrivateEngine) => Promise<void>> = {
  killed: (engine) => engine.kill(),
  "stopped in order": (engine) => engine.stop(),
};

describe("the engine dies", () => {
  for (const [how, die] of Object.entries(deaths)) {
    test(`${how}: its containers end with it, and their work is saved from what is left of them`, async () => {
      await using opened = await open();
      const { stage, engine } = opened;
      const world = await stage.readyWorld();
      const sandbox = await stage.readySandbox(world);
      await stage.shell(sandbox, "echo crashed > /tmp/c");
      await die(engine);
      await stage.nudge(sandbox);
      const silent = await until(
        () => stage.sandbox(sandbox),
        (object) => conditionOf(object, "Ready")?.reason === "HostUnreachable",
        { what: "the silence" },
      );
      assert.equal(conditionOf(silent, "Ready")?.status, "Unknown");
      await engine.start();
      const asleep = await stage.hibernated(sandbox);
      assert.equal(conditionOf(asleep, "Hibernated")?.reason, "ContainerExited");
      await assertSaved(opened, sandbox.metadata.name, world.metadata.name);
    });
  }

  test("in the middle of a hibernation, with the container frozen: the hibernation ends as it began", async () => {
    await using opened = await open();
    const { stage, engine } = opened;
    // Long enough to be met: the hook is part of the hibernation.
    const hook = { command: ["sleep", "3"], timeoutSeconds: 10, onFailure: "Continue" as const };
    for (const isFrozen of [false, true]) {
      const world = await stage.readyWorld(undefined, isFrozen ? {} : { snapshot: { hook } });
      const sandbox = await stage.readySandbox(world);
      await stage.shell(sandbox, "echo crashed > /tmp/c");
      if (isFrozen) await stage.driver.freeze(sandbox.status.compute?.id ?? "", stage.site.signal);
      await stage.patchMode(sandbox, "Hibernated");
      await until(
        () => stage.sandbox(sandbox),
        ({ status }) => status.operation !== undefined || status.lastEnding !== undefined,
        { what: "the hibernation" },
      );
      await engine.kill();
      await engine.start();
      const asleep = await stage.hibernated(sandbox);
      assert.equal(conditionOf(asleep, "Hibernated")?.reason, "ModeHibernated", `frozen: ${isFrozen}`);
      const { status } = await stage.world(world);
      assert.deepEqual(
        status.versions?.map(({ version }) => version),
        [0, status.head?.version],
        "one new version",
      );
      assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/c"), "crashed\n");
      assert.equal(await stage.containers(sandbox), 0);
    }
  });

  test("with live-restore its containers live on, and so does the session", async () => {
    await using opened = await open({ "live-restore": true });
    const { stage, engine } = opened;
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo alive > /tmp/c");
    await engine.kill();
    await stage.nudge(sandbox);
    await until(
      () => stage.sandbox(sandbox),
      ({ status }) => status.compute?.unreachableAt !== undefined,
      { what: "the silence" },
    );
    await engine.start();
    const back = await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "Ready")?.status === "True",
      { what: "the session to go on" },
    );
    assert.equal(back.status.boot, 1);
    assert.equal(back.status.compute?.unreachableAt, undefined);
    assert.equal(await stage.shell(sandbox, "cat /tmp/c"), "alive\n");
    await stage.setMode(sandbox, "Hibernated");
    const version = (await stage.world(world)).status.versions?.at(-1);
    assert.deepEqual([version?.consistency, version?.recovered], ["Frozen", undefined]);
  });
});

test("its marker is pruned, it restarts, and a new leader sweeps: a live session is neither stopped nor put aside, and keeps its engine", async () => {
  await using opened = await open({ "live-restore": true });
  const { stage, engine, controllers } = opened;
  const { signal, runtimes } = stage.site;
  const world = await stage.readyWorld();
  const sandbox = await stage.readySandbox(world);
  await stage.shell(sandbox, "echo alive > /tmp/c");
  // What nobody accounts for tells that the sweep has been there.
  const ghost = { installation: stage.installation, namespace: stage.namespace, sandbox: "ghost", sandboxUid: "ghost" };
  await stage.driver.create(
    { owner: { ...ghost, boot: 1 }, image: stage.image, limits: { pids: 64 }, isolation: { network: "None" } },
    signal,
  );
  await controllers[Symbol.asyncDispose]();
  const path = `/volumes/${engineVolumeName(stage.installation)}`;
  expectSuccess(path, await callEngine(engine.dockerHost, { method: "DELETE", path, signal }));
  await engine.kill();
  await engine.start();
  await using _ = await startControllers(stage.site);
  const { status } = await until(
    () => runtimes.get({ name: "local" }, { signal }),
    ({ status: { rescues = [] } }) => rescues.length > 0,
    { what: "the sweep" },
  );
  assert.deepEqual(
    status.rescues?.map(({ computeId, reason }) => [computeId, reason]),
    [["aw-ghost-1", "Orphaned"]],
  );
  const back = await until(
    () => stage.sandbox(sandbox),
    (object) => conditionOf(object, "Ready")?.status === "True",
    { what: "the session to go on" },
  );
  assert.deepEqual(
    [back.status.boot, back.status.compute?.id, back.status.compute?.engine],
    [1, sandbox.status.compute?.id, sandbox.status.compute?.engine],
  );
  assert.equal(await stage.shell(sandbox, "cat /tmp/c"), "alive\n");
});

async function assertSaved({ stage }: Opened, sandboxName: string, worldName: string): Promise<void> {
  const { signal } = stage.site;
  const ref = (name: string) => ({ name, namespace: stage.namespace });
  const world = await stage.site.worlds.get(ref(worldName), { signal });
  const version = world.status.versions?.at(-1);
  assert.deepEqual([version?.reason, version?.consistency], ["Crash", "Crash"]);
  assert.equal(version?.recovered?.reason, "ContainerExited");
  assert.equal(await stage.readInVersion(world, world.status.head?.digest, "tmp/c"), "crashed\n");
  assert.equal(await stage.containers(await stage.site.sandboxes.get(ref(sandboxName), { signal })), 0);
}
