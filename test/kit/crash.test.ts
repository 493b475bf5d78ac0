import assert from "node:assert/strict";
import { test } from "node:test";
import { Crashed, CrashGate, type CrashPoint, livesOf, pointsAfter, pointsOf } from "./crash.ts";

const effects = ["create", "patch", "patch", "push", "patch"];

test("every effect has a point before and one after", () => {
  const points = pointsOf(effects).map(({ name, occurrence, moment }) => `${moment} ${name} ${occurrence}`);
  assert.equal(points.length, 10);
  assert.deepEqual(points.slice(-2), ["before patch 2", "after patch 2"]);
});

test("a later process counts from its own start", () => {
  const points = pointsOf(effects);
  const [, , , , beforeSecond, afterSecond, , , beforeThird] = points;
  const rest = points.slice(6);
  const told = (death: CrashPoint | undefined, of: readonly CrashPoint[]) =>
    pointsAfter(death, of, effects).map(({ name, occurrence }) => `${name} ${occurrence}`);
  assert.deepEqual(
    told(undefined, points),
    points.map(({ name, occurrence }) => `${name} ${occurrence}`),
  );
  assert.deepEqual(told(afterSecond, rest), ["push 0", "push 0", "patch 0", "patch 0"]);
  // The process killed before the second patch has not made it: it is the next one's first.
  assert.deepEqual(told(beforeSecond, rest), ["push 0", "push 0", "patch 1", "patch 1"]);
  assert.deepEqual(told(beforeThird, points.slice(9)), ["patch 0"]);
});

test("points share a life when there is enough between them", () => {
  const long = ["a", "b", "c", "d", "e", "f"];
  const lives = livesOf(pointsOf(long), long, 3).map((points) => points.map(({ name, moment }) => `${moment} ${name}`));
  assert.deepEqual(lives, [
    ["before a", "before d"],
    ["after a", "after d"],
    ["before b", "before e"],
    ["after b", "after e"],
    ["before c", "before f"],
    ["after c", "after f"],
  ]);
});

test("a gate of several points dies at the one that comes first", async () => {
  const [createdBefore, , , , , , , pushed] = pointsOf(effects);
  assert.ok(createdBefore && pushed);
  const gate = new CrashGate(createdBefore, pushed);
  // Not counted yet: what happens before the life begins is no effect of it.
  await gate.effect("create", async () => undefined);
  gate.count();
  await assert.rejects(
    gate.effect("push", async () => undefined),
    Crashed,
  );
  assert.equal(await gate.died, pushed);
});

test("a gate lets nothing through once its process is dead", async () => {
  const gate = new CrashGate({ name: "patch", occurrence: 1, moment: "before" });
  gate.count();
  const reached: string[] = [];
  const effect = (name: string) => gate.effect(name, async () => void reached.push(name));
  await effect("patch");
  await effect("push");
  await assert.rejects(effect("patch"), Crashed);
  await assert.rejects(effect("push"), Crashed);
  await assert.rejects(
    gate.read(async () => 1),
    Crashed,
  );
  assert.deepEqual(reached, ["patch", "push"]);
  assert.equal((await gate.died).name, "patch");
});
