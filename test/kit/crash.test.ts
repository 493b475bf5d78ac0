import assert from "node:assert/strict";
import { test } from "node:test";
import { Crashed, CrashGate, inOneLife, pointsOf } from "./crash.ts";

const effects = ["create", "patch", "patch", "push", "patch"];

test("every effect has a point before and one after", () => {
  const points = pointsOf(effects).map(({ name, occurrence, moment }) => `${moment} ${name} ${occurrence}`);
  assert.equal(points.length, 10);
  assert.deepEqual(points.slice(-2), ["before patch 2", "after patch 2"]);
});

test("in one life a later process counts from its own start", () => {
  const points = pointsOf(effects);
  const at = (moment: string, name: string, occurrence: number) =>
    points.filter((point) => point.moment === moment && point.name === name && point.occurrence === occurrence);
  const life = [
    ...at("after", "patch", 0),
    ...at("before", "patch", 1),
    ...at("after", "push", 0),
    ...at("before", "patch", 2),
  ];
  assert.deepEqual(
    inOneLife(life, effects).map(({ name, occurrence }) => `${name} ${occurrence}`),
    // The process killed before the second patch has not made it: it is the next one's first.
    ["patch 0", "patch 0", "push 0", "patch 0"],
  );
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
  assert.equal(await gate.died, "patch");
});
