/** Every way a session can end on real parts: killed, out of memory, removed, hooked, cordoned, its host silent or gone. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox, World } from "@agentworlds/crds";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { createDockerDriver } from "../../../operator/src/runtime/docker/driver.ts";
import { isRuntimeError } from "../../../operator/src/runtime/errors.ts";
import { loadHelper } from "../../../operator/src/runtime/helper.ts";
import { eventWith } from "../../kit/events.ts";
import { conditionOf, startControllers, until } from "../../kit/operator.ts";
import { type Relay, startRelay } from "../../kit/relay.ts";
import { Stage } from "../../kit/stage.ts";

describe("endings", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let host: Relay;

  before(async () => {
    stage = parts.use(
      await Stage.open({
        async engineEndpoint(dockerHost) {
          host = parts.use(await startRelay(dockerHost));
          return host.endpoint;
        },
      }),
    );
    parts.use(await startControllers(stage.site));
  });
  after(() => parts.disposeAsync());

  async function engineCall(method: string, path: string): Promise<void> {
    const { signal } = stage.site;
    expectSuccess(`${method} ${path}`, await callEngine(stage.site.ground.dockerHost, { method, path, signal }));
  }
  const lastVersion = async (world: World) => (await stage.world(world)).status.versions?.at(-1);
  const read = async (world: World, path: string) =>
    stage.readInVersion(world, (await stage.world(world)).status.head?.digest, path);
  const becomes = (sandbox: Sandbox, what: string, check: (object: Sandbox) => boolean) =>
    until(() => stage.sandbox(sandbox), check, { what });
  const patchRuntime = (spec: Record<string, unknown>) =>
    stage.site.runtimes.patch({ name: "local" }, { spec }, { signal: stage.site.signal });

  test("the container is killed: its work is saved from what is left, and the version says how it had ended", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo survived > /tmp/k");
    await engineCall("POST", `/containers/${sandbox.status.compute?.id}/kill`);
    await stage.nudge(sandbox);
    await stage.hibernated(sandbox);
    const version = await lastVersion(world);
    assert.deepEqual([version?.reason, version?.consistency], ["Crash", "Crash"]);
    assert.deepEqual(version?.recovered, { reason: "ContainerExited", exitCode: 137 });
    assert.equal(await read(world, "tmp/k"), "survived\n");
  });

  test("a session runs out of memory and its container dies: saved, and the version says so", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world, { resources: { memory: "40Mi" } });
    await stage.shell(sandbox, "echo survived > /tmp/o");
    // A file in memory stays when its writer is killed.
    await stage
      .shell(sandbox, "dd if=/dev/zero of=/dev/shm/hog bs=1M count=60 2>/dev/null; true")
      .catch(() => undefined);
    await engineCall("POST", `/containers/${sandbox.status.compute?.id}/kill`);
    await stage.nudge(sandbox);
    const ended = await stage.hibernated(sandbox);
    assert.equal(conditionOf(ended, "Hibernated")?.reason, "OutOfMemory");
    assert.equal((await lastVersion(world))?.recovered?.reason, "OutOfMemory");
    assert.equal(await read(world, "tmp/o"), "survived\n");
  });

  test("the container is removed after a snapshot: what was lost is said, and the snapshot stands", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo saved > /tmp/r");
    await stage.request(sandbox, { id: "save", verb: "Snapshot" });
    await becomes(sandbox, "the snapshot", ({ status }) => status.requests?.[0]?.result?.outcome === "Succeeded");
    await engineCall("DELETE", `/containers/${sandbox.status.compute?.id}?force=1`);
    await stage.nudge(sandbox);
    const lost = await becomes(
      sandbox,
      "ComputeLost",
      (object) => conditionOf(object, "ComputeLost")?.status === "True",
    );
    assert.match(conditionOf(lost, "ComputeLost")?.message ?? "", /work since v1 is lost/);
    const { status } = await stage.world(world);
    assert.deepEqual([status.head?.version, status.holder, status.pending], [1, undefined, undefined]);
    assert.equal(await read(world, "tmp/r"), "saved\n");
  });

  test("a hook flushes before every version, with the session's environment; one that fails is named and loses nothing", async () => {
    const command = ["sh", "-c", "echo $TOKEN > /tmp/flushed; test ! -e /tmp/broken"];
    const world = await stage.readyWorld(undefined, {
      snapshot: { hook: { command, timeoutSeconds: 10, onFailure: "Continue" } },
    });
    const sandbox = await stage.readySandbox(world, { env: [{ name: "TOKEN", value: "t-1" }] });
    await stage.setMode(sandbox, "Hibernated");
    assert.deepEqual(await lastVersion(world).then((version) => [version?.hook, version?.consistency]), [
      "Succeeded",
      "Frozen",
    ]);
    assert.equal(await read(world, "tmp/flushed"), "t-1\n");
    const awake = await stage.setMode(await stage.sandbox(sandbox), "Running");
    await stage.shell(awake, "touch /tmp/broken; echo kept > /tmp/kept");
    const asleep = await stage.setMode(awake, "Hibernated");
    assert.equal((await lastVersion(world))?.hook, "Failed");
    assert.match(asleep.status.lastEnding?.message ?? "", /the snapshot hook ended with exit code 1/);
    assert.match((await eventWith(stage.site, sandbox, "HookFailed")).note, /exit code 1/);
    assert.equal(await read(world, "tmp/kept"), "kept\n");
  });

  test("its host is silent: commands are refused by name, nothing is called lost, and a deadline that passed is acted on after", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world, { ttlSeconds: 4 });
    await stage.shell(sandbox, "echo there > /tmp/s");
    await host.down();
    await stage.nudge(sandbox);
    await becomes(sandbox, "the silence", ({ status }) => status.compute?.unreachableAt !== undefined);
    await using far = await throughRelay();
    const command = far.driver.exec(sandbox.status.compute?.id ?? "", { command: ["true"] }, stage.site.signal);
    await assert.rejects(command, (error) => isRuntimeError(error, "HostUnreachable"));
    const expired = await becomes(
      sandbox,
      "the deadline",
      ({ status }) => Date.now() > Date.parse(status.expiresAt ?? "") + 1_000,
    );
    assert.equal(conditionOf(expired, "Ready")?.status, "Unknown");
    assert.equal(conditionOf(expired, "ComputeLost"), undefined);
    await host.up();
    const asleep = await stage.hibernated(sandbox);
    assert.equal(conditionOf(asleep, "Hibernated")?.reason, "DeadlinePassed");
    assert.equal(await read(world, "tmp/s"), "there\n");
  });

  async function throughRelay() {
    const driver = createDockerDriver({
      installation: stage.installation,
      endpoint: host.endpoint,
      helper: (platform, signal) => loadHelper({ platform }, signal),
    });
    return { driver, [Symbol.asyncDispose]: () => driver.close() };
  }

  test("its Runtime is cordoned: told by when, hibernated then, and awake again after", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo drained > /tmp/d");
    await patchRuntime({ scheduling: "Cordoned", drainSeconds: 4 });
    const told = await becomes(sandbox, "the notice", (object) => conditionOf(object, "Draining")?.status === "True");
    assert.equal(told.status.phase, "Draining");
    assert.match(await stage.kubectl("-n", stage.namespace, "get", "sbx", sandbox.metadata.name), /Draining/);
    assert.match((await eventWith(stage.site, sandbox, "RuntimeCordoned")).note, /hibernates at/);
    const asleep = await stage.hibernated(sandbox);
    assert.equal(conditionOf(asleep, "Hibernated")?.reason, "RuntimeCordoned");
    assert.equal((await lastVersion(world))?.reason, "Drain");
    const runtime = await stage.site.runtimes.get({ name: "local" }, { signal: stage.site.signal });
    const due = Date.parse(runtime.status.cordonedAt ?? "") + 4_000;
    assert.ok(Date.parse(asleep.status.lastEnding?.at ?? "") >= due, "not before its time");
    await stage.request(asleep, { id: "wake", verb: "Touch" });
    await becomes(sandbox, "the refusal", (object) => conditionOf(object, "Admitted")?.reason === "RuntimeCordoned");
    await patchRuntime({ scheduling: "Enabled" });
    await stage.close(await stage.ready(sandbox, 2));
    assert.equal(await read(world, "tmp/d"), "drained\n");
  });

  test("its Runtime is deleted: its sessions hibernate, nothing new boots, and then it goes", async () => {
    const runtimes = stage.site.runtimes;
    const { signal } = stage.site;
    const { spec } = await runtimes.get({ name: "local" }, { signal });
    await runtimes.create(
      {
        apiVersion: "agentworlds.dev/v1alpha1",
        kind: "Runtime",
        metadata: { name: "leaving" },
        spec: { ...spec, selection: "ByName" },
      },
      { signal },
    );
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world, { runtime: { name: "leaving" } });
    await stage.shell(sandbox, "echo moved > /tmp/m");
    await stage.kubectl("delete", "runtime", "leaving", "--timeout=60s");
    const asleep = await stage.hibernated(sandbox);
    assert.equal(conditionOf(asleep, "Hibernated")?.reason, "RuntimeDeleted");
    assert.equal(await read(world, "tmp/m"), "moved\n");
    assert.equal(await stage.containers(sandbox), 0);
  });

  test("its host is gone for good: said by name; no other session boots the older version; the host comes back with the work", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo far > /tmp/f");
    await patchRuntime({ hostLossSeconds: 3 });
    await host.down();
    await stage.nudge(sandbox);
    const lost = await becomes(
      sandbox,
      "HostLost",
      (object) => conditionOf(object, "ComputeLost")?.reason === "HostLost",
    );
    assert.equal(lost.status.compute, undefined);
    await patchRuntime({ hostLossSeconds: 7_200 });
    const { status } = await stage.world(world);
    assert.equal(status.head?.version, 0);
    assert.deepEqual(
      status.rescues?.map(({ reason, computeId }) => [reason, computeId]),
      [["HostLost", sandbox.status.compute?.id]],
    );
    const runtime = await stage.site.runtimes.get({ name: "local" }, { signal: stage.site.signal });
    assert.ok(runtime.status.rescues?.some(({ computeId }) => computeId === sandbox.status.compute?.id));
    await host.up();
    const other = await stage.sandboxOf({ world: { name: world.metadata.name } });
    const refused = await until(
      () => stage.sandbox(other),
      (object) => conditionOf(object, "Admitted")?.reason === "WorldHeld" || object.status.bootedFrom !== undefined,
      { what: "the refusal" },
    );
    // Unless the work is a version by now, which then is what boots.
    assert.notEqual(refused.status.bootedFrom?.version, 0, "nobody boots the older state silently");
    assert.equal(await stage.containers(sandbox), refused.status.bootedFrom === undefined ? 1 : 0, "the work is there");
  });
});
