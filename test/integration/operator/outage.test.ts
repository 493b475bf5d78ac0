/** Hosts and registries that go away and come back, clocks that jump: everything heals by itself, nothing is lost. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Clock, systemClock } from "../../../operator/src/reconciler/clock.ts";
import { eventWith } from "../../kit/events.ts";
import { type FaultProxy, startFaultProxy } from "../../kit/index.ts";
import { conditionOf, startControllers, testConfig, until } from "../../kit/operator.ts";
import { type Relay, startRelay } from "../../kit/relay.ts";
import { Stage } from "../../kit/stage.ts";

/** The machine's clock, moved. */
const clock: Clock & { offsetMs: number } = {
  offsetMs: 0,
  now() {
    return systemClock.now() + this.offsetMs;
  },
  sleep: (milliseconds, signal) => systemClock.sleep(milliseconds, signal),
};

const HOUR_MS = 3_600_000;

describe("outages", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let host: Relay;
  let registry: FaultProxy;

  before(async () => {
    stage = parts.use(
      await Stage.open({
        async engineEndpoint(dockerHost) {
          host = parts.use(await startRelay(dockerHost));
          return host.endpoint;
        },
        // The engine pushes through the proxy as well: a full disk is met where bytes are written.
        async registryUrl(url) {
          const { hostname, port } = new URL(url);
          registry = parts.use(await startFaultProxy({ targetHost: hostname, targetPort: Number(port) }));
          return registry.url;
        },
      }),
    );
    parts.use(await startControllers(stage.site, { config: testConfig(stage.site.ground), clock }));
  });
  after(() => parts.disposeAsync());

  test("the host is away at boot: the session waits, says so, and boots when the host is back", async () => {
    const world = await stage.readyWorld();
    await host.down();
    const sandbox = await stage.sandboxOf({ world: { name: world.metadata.name } });
    const waiting = await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "Ready")?.reason === "HostUnreachable",
      { what: "the reason" },
    );
    assert.match(conditionOf(waiting, "Ready")?.message ?? "", /nothing is lost/);
    assert.match((await eventWith(stage.site, sandbox, "HostUnreachable")).note, /nothing is lost/);
    await host.up();
    const ready = await stage.ready(sandbox, 1);
    await stage.close(ready, "Discard");
  });

  test("the host is away at hibernation: nothing is given up, and the version has the work when it is back", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo there > /tmp/h");
    await host.down();
    await stage.patchMode(sandbox, "Hibernated");
    const waiting = await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "Ready")?.reason === "HostUnreachable",
      { what: "the reason" },
    );
    assert.equal(conditionOf(waiting, "Ready")?.status, "Unknown", "not observed is not False");
    await eventWith(stage.site, sandbox, "HostUnreachable");
    assert.equal(waiting.status.compute?.boot, 1);
    await host.up();
    await stage.hibernated(sandbox);
    const { status } = await stage.world(world);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/h"), "there\n");
  });

  test("the registry's disk is full at the push: the container is kept, the cause is named, and it publishes when there is room", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo room > /tmp/r");
    const body = JSON.stringify({ errors: [{ code: "UNKNOWN", message: "no space left on device" }] });
    const full = [
      registry.add({ method: "PATCH", fault: { kind: "respond", status: 500, body } }),
      registry.add({ method: "PUT", fault: { kind: "respond", status: 500, body } }),
    ];
    await stage.patchMode(sandbox, "Hibernated");
    const failing = await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "SnapshotFailed")?.status === "True",
      { what: "SnapshotFailed" },
    );
    assert.match(conditionOf(failing, "SnapshotFailed")?.message ?? "", /500|no space|was not pushed/);
    const told = await eventWith(stage.site, sandbox, conditionOf(failing, "SnapshotFailed")?.reason);
    assert.match(told.note, /500|no space|was not pushed/);
    assert.equal(await stage.containers(sandbox), 1);
    for (const rule of full) rule.remove();
    await stage.hibernated(sandbox);
    const { status } = await stage.world(world);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/r"), "room\n");
  });

  test("the clock jumps forward by an hour: the session ends early, in a version", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world, { ttlSeconds: 600 });
    await stage.shell(sandbox, "echo jumped > /tmp/j");
    clock.offsetMs = HOUR_MS;
    await stage.nudge(sandbox);
    const asleep = await stage.hibernated(sandbox);
    clock.offsetMs = 0;
    assert.equal(conditionOf(asleep, "Hibernated")?.reason, "DeadlinePassed");
    assert.match((await eventWith(stage.site, sandbox, "Hibernating")).note, /DeadlinePassed/);
    const { status } = await stage.world(world);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/j"), "jumped\n");
  });

  test("the clock jumps back by an hour: nothing that ended comes alive, and what runs goes on", async () => {
    const world = await stage.readyWorld();
    const asleep = await stage.setMode(await stage.readySandbox(world), "Hibernated");
    const running = await stage.readySandbox(await stage.readyWorld());
    clock.offsetMs = -HOUR_MS;
    await stage.nudge(asleep);
    await stage.nudge(running);
    assert.equal((await stage.sandbox(asleep)).status.compute, undefined);
    assert.equal(await stage.shell(running, "echo alive"), "alive\n");
    await stage.setMode(running, "Hibernated");
    clock.offsetMs = 0;
  });
});
