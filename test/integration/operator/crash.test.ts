/**
 * The operator is killed before and after every call that changes something outside of it, and started again: nothing is
 * lost, nothing is published twice, nothing is left behind. The points are derived in the clients (test/kit/crash.ts).
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox, World } from "@agentworlds/crds";
import { CrashGate, type CrashPoint, livesOf, pointsAfter, pointsOf } from "../../kit/crash.ts";
import { startControllers, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

/** What a life left. */
interface Left {
  readonly world: World;
  /** As last seen; its object is gone when it was deleted. */
  readonly sandbox: Sandbox;
  /** Versions beside version 0. */
  readonly published: number;
}

/** A life from creation to its end. Effects count from the moment the World is Ready. */
type Story = (stage: Stage, gate: CrashGate) => Promise<Left>;

const byMode: Story = async (stage, gate) => {
  const { world, ready } = await working(stage, gate);
  return { world, sandbox: await stage.setMode(ready, "Hibernated"), published: 1 };
};

/** The ends that a life by mode does not know, and a snapshot in the middle. */
const OTHER_STORIES: Readonly<Record<string, Story>> = {
  async "a snapshot, then a close"(stage, gate) {
    const { world, ready } = await working(stage, gate, "echo earlier > /tmp/work");
    await stage.request(ready, { id: "middle", verb: "Snapshot" });
    await until(
      () => stage.sandbox(ready),
      ({ status }) => status.requests?.find(({ id }) => id === "middle")?.result !== undefined,
      { what: "the snapshot's answer" },
    );
    await stage.shell(ready, "echo precious > /tmp/work");
    return { world, sandbox: await stage.close(ready), published: 2 };
  },
  async "the deadline"(stage, gate) {
    const { world, ready } = await working(stage, gate, undefined, 2);
    return { world, sandbox: await stage.hibernated(ready), published: 1 };
  },
  async "a deletion"(stage, gate) {
    const { world, ready } = await working(stage, gate);
    await stage.deleted(ready);
    return { world, sandbox: ready, published: 1 };
  },
};

async function working(stage: Stage, gate: CrashGate, script = "echo precious > /tmp/work", ttlSeconds = 600) {
  const world = await stage.readyWorld();
  gate.count();
  const ready = await stage.readySandbox(world, { ttlSeconds });
  await stage.shell(ready, script);
  return { world, ready };
}

/** A recovery comes so many effects far before the next death of the same life cuts it short. */
const EFFECTS_BETWEEN_DEATHS = 6;

/**
 * Runs `story` with controllers that die at each of the points that comes and are started again; says where they died.
 * `effects` are those of a life without a death.
 */
async function surviving(
  stage: Stage,
  life: { points: readonly CrashPoint[]; effects: readonly string[]; story: Story },
): Promise<{ left: Left; deaths: CrashPoint[] }> {
  const over = Promise.withResolvers<"over">();
  const deaths: CrashPoint[] = [];
  await using undo = new AsyncDisposableStack();
  /** What lies after the last death, as the process after it sees it. */
  const ahead = (): { gate: CrashGate; points: readonly CrashPoint[]; seen: readonly CrashPoint[] } => {
    const last = deaths.at(-1);
    const points = life.points.slice(last === undefined ? 0 : life.points.indexOf(last) + 1);
    const seen = pointsAfter(last, points, life.effects);
    return { gate: new CrashGate(...seen), points, seen };
  };
  const first = ahead();
  const dying = async (): Promise<void> => {
    for (let turn = first; ; turn = ahead()) {
      // The first begins to count when the story says so.
      if (turn !== first) turn.gate.count();
      const running = undo.use(await startControllers(stage.site, { gate: turn.gate }));
      const death = await Promise.race([turn.gate.died, over.promise]);
      await running.stop();
      if (death === "over") return;
      const died = turn.points[turn.seen.indexOf(death)];
      if (died !== undefined) deaths.push(died);
    }
  };
  const told = life.story(stage, first.gate).finally(() => over.resolve("over"));
  const [left] = await Promise.all([told, dying()]);
  return { left, deaths };
}

describe("the operator is killed between any two steps of a session's life", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let effects: readonly string[] = [];

  const record = async (story: Story): Promise<readonly string[]> => {
    const gate = new CrashGate();
    await using _ = await startControllers(stage.site, { gate });
    await story(stage, gate);
    return gate.effects;
  };

  /**
   * Every effect's name among the points must have been died at; points of that name that no life came to are named, for which
   * of its occurrences a life has depends on what a pass finds. `recorded`: the effects of a life without a death.
   */
  async function cross(points: readonly CrashPoint[], recorded: readonly string[], story: Story): Promise<string> {
    const died = new Set<CrashPoint>();
    const live = async (chosen: readonly CrashPoint[]): Promise<void> => {
      const { left, deaths } = await surviving(stage, { points: chosen, effects: recorded, story });
      const said = deaths.map(({ moment, name, occurrence }) => `${moment} ${name} (${occurrence})`);
      await assertWhole(left, said.join(", "));
      for (const point of deaths) died.add(point);
    };
    const missed = () => points.filter((point) => !died.has(point));
    let lives = 0;
    // A death can take a later point out of its life; that one is then died at in another.
    for (let before = -1; died.size > before; ) {
      before = died.size;
      for (const life of livesOf(missed(), recorded, EFFECTS_BETWEEN_DEATHS)) {
        await live(life);
        lives++;
      }
    }
    // A write of conditions alone depends on when a pass looks: not every life has it.
    const names = new Set(points.map(({ name }) => name).filter((name) => !name.endsWith("[]")));
    for (const { name } of died) names.delete(name);
    assert.deepEqual([...names], [], "effects at which the operator was never killed");
    const never = missed().map(({ moment, name, occurrence }) => `${moment} ${name} (${occurrence})`);
    const killed = `killed at ${died.size} of ${points.length} points in ${lives} lives`;
    return never.length === 0 ? killed : `${killed}; no life came to ${never.join(", ")}`;
  }

  async function assertWhole({ world, sandbox, published }: Left, name: string): Promise<void> {
    const { status } = await stage.world(world);
    const versions = status.versions?.map(({ version }) => version) ?? [];
    assert.equal(versions.length, 1 + published, `${name}: versions ${versions}`);
    assert.equal(status.head?.version, versions.at(-1), `${name}: head is the newest`);
    assert.equal(status.holder, undefined, `${name}: no holder`);
    assert.equal(status.pending, undefined, `${name}: nothing pending`);
    assert.equal(await stage.containers(sandbox), 0, `${name}: no container`);
    const tags = ["latest", ...versions.map((version) => `v${version}`)].sort();
    assert.deepEqual(await stage.tags(world), tags, `${name}: tags`);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/work"), "precious\n", name);
  }

  before(async () => {
    stage = parts.use(await Stage.open());
    effects = await record(byMode);
  });
  after(() => parts.disposeAsync());

  test("a life has the effects that are known: a new one is killed at as well", () => {
    for (const known of [
      "sandboxes.patchStatus",
      "worlds.patchStatus",
      "driver.create",
      "driver.freeze",
      "driver.commit",
      "driver.push",
      "registry.putManifest",
      "driver.remove",
    ]) {
      assert.ok(
        effects.some((name) => name.startsWith(known)),
        `${known} is among ${effects.join(", ")}`,
      );
    }
  });

  test("at each effect of a life that ends by mode: one new version with the work, no holder, no container, no stray tag", async (t) => {
    t.diagnostic(`effects: ${effects.join(", ")}`);
    // Nothing reaches the outside between two effects: before one is after the one that went ahead of it.
    const points = pointsOf(effects).filter(({ moment }, index) => moment === "after" || index === 0);
    t.diagnostic(await cross(points, effects, byMode));
  });

  for (const [end, story] of Object.entries(OTHER_STORIES)) {
    test(`${end}: the same at each effect that a life by mode does not have`, async (t) => {
      const recorded = await record(story);
      const own = recorded.filter((name) => !effects.includes(name));
      // An end that differs by its reason alone is killed where that reason is written.
      const intent = recorded.filter((name) => name.includes("[operation")).slice(0, 1);
      const chosen = own.length > 0 ? own : intent;
      assert.ok(chosen.length > 0, `no effect to be killed at among ${recorded.join(", ")}`);
      t.diagnostic(`killed at: ${chosen.join(", ")}`);
      const points = pointsOf(recorded).filter(({ name }) => chosen.includes(name));
      t.diagnostic(await cross(points, recorded, story));
    });
  }
});
