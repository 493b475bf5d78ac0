import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { Line } from "./line.ts";

const never = new AbortController().signal;

test("so many are in at once; the others come in as they came, each when one has left", async () => {
  const line = new Line(2);
  const first = await line.enter(never);
  const second = await line.enter(never);
  const entered: string[] = [];
  const later = ["third", "fourth"].map(async (name) => {
    const place = await line.enter(never);
    entered.push(name);
    return place;
  });
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  const third = await later[0];
  assert.deepEqual(entered, ["third"]);
  second[Symbol.dispose]();
  const fourth = await later[1];
  for (const place of [third, fourth]) place?.[Symbol.dispose]();
  // All have left, so there is room for two.
  for (const place of [await line.enter(never), await line.enter(never)]) place[Symbol.dispose]();
});

test("whoever gives up leaves the line, takes nobody's turn and leaves no listener", async () => {
  const line = new Line(1);
  const inside = await line.enter(never);
  const impatient = new AbortController();
  const given = assert.rejects(line.enter(impatient.signal), { message: "enough" });
  const patient = new AbortController();
  const next = line.enter(patient.signal);
  impatient.abort(new Error("enough"));
  await given;
  inside[Symbol.dispose]();
  (await next)[Symbol.dispose]();
  assert.deepEqual(getEventListeners(patient.signal, "abort"), []);
  await assert.rejects(line.enter(impatient.signal), { message: "enough" });
});
