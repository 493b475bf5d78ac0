/**
 * The operator is killed before and after every call that changes something outside of it, and started again: nothing is
 * lost, nothing is published twice, nothing is left behind. The points are derived in the clients (test/kit/crash.ts).
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox, World } from "@agentworlds/crds";
import { CrashGate, type CrashPoint } from "../../kit/crash.ts";
import { startControllers } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

/** One life, from creation to hibernation; returns what it left. */
async function live(stage: Stage, gate: CrashGate): Promise<{ world: World; sandbox: Sandbox }> {
  const world = await stage.readyWorld();
  gate.count();
  const ready = await stage.readySandbox(world);
  await stage.shell(ready, "echo precious > /tmp/work");
  const sandbox = await stage.setMode(ready, "Hibernated");
  return { world, sandbox };
}

/** Runs `story` with controllers that die at `point` and are started again. */
async function surviving<R>(stage: Stage, point: CrashPoint, story: (gate: CrashGate) => Promise<R>) {
  const gate = new CrashGate(point);
  const first = await startControllers(stage.site, { gate });
  await using undo = new AsyncDisposableStack();
  const restarted = gate.died.then(async (where) => {
    await first.stop();
    undo.use(await startControllers(stage.site));
    return where;
  });
  const told = await story(gate);
  if (!gate.isDead) {
    await first.stop();
    return { told, where: undefined };
  }
  return { told, where: await restarted };
}

describe("the operator is killed between any two steps of a session's life", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let effects: readonly string[] = [];

  before(async () => {
    stage = parts.use(await Stage.open());
    const gate = new CrashGate();
    await using _ = await startControllers(stage.site, { gate });
    await live(stage, gate);
    effects = gate.effects;
  });
  after(() => parts.disposeAsync());

  test("a life has the effects that are known: a new one is killed at as well", () => {
    for (const name of [
      "sandboxes.patchStatus",
      "worlds.patchStatus",
      "driver.create",
      "driver.freeze",
      "driver.commit",
      "driver.push",
      "registry.putManifest",
      "driver.remove",
    ]) {
      assert.ok(effects.includes(name), `${name} is among ${effects.join(", ")}`);
    }
  });

  test("at every point: one new version that boots with the work, no holder, no container, no finalizer, no stray tag", async (t) => {
    const points = effects.flatMap(
      (_, effect) =>
        [
          { effect, moment: "before" },
          { effect, moment: "after" },
        ] as const,
    );
    let hit = 0;
    for (const point of points) {
      const name = `${point.moment} ${point.effect} ${effects[point.effect]}`;
      const { told, where } = await surviving(stage, point, (gate) => live(stage, gate));
      if (where !== undefined) hit++;
      const { status } = await stage.world(told.world);
      assert.equal(status.versions?.length, 2, `${name}: exactly one new version`);
      assert.equal(status.head?.version, status.versions?.at(-1)?.version, `${name}: head is it`);
      assert.equal(status.holder, undefined, `${name}: no holder`);
      assert.equal(status.pending, undefined, `${name}: nothing pending`);
      assert.equal(await stage.containers(told.sandbox), 0, `${name}: no container`);
      assert.equal(told.sandbox.status.lastSnapshot?.digest, status.head?.digest, `${name}: the session knows it`);
      assert.deepEqual(await stage.tags(told.world), ["latest", "v0", `v${status.head?.version}`], `${name}: tags`);
      assert.equal(await stage.readInVersion(told.world, status.head?.digest, "tmp/work"), "precious\n", name);
    }
    t.diagnostic(`${hit} of ${points.length} points hit; effects: ${effects.join(" ")}`);
    assert.ok(hit >= points.length * 0.9, `${hit} of ${points.length} points were hit`);
  });
});
