/** The engine behind a session's host is another one, or is called otherwise, from one moment to the next. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { findCondition } from "../reconciler/conditions.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const CONTAINER = "aw-sandbox-uid-1";

async function readyWithWork(): Promise<Parts> {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  return parts;
}

test("an engine is called otherwise under a running session: the container is believed, and the session goes on", async () => {
  const parts = await readyWithWork();
  parts.host.engine = "engine-renamed";
  await parts.pass();
  const { compute, boot } = parts.sandbox()?.status ?? {};
  assert.deepEqual([compute?.id, compute?.engine, boot], [CONTAINER, "engine-renamed", 1]);
  assert.ok(isReady(parts.sandbox()));
  assert.deepEqual([...parts.host.containers.keys()], [CONTAINER]);
});

test("an engine that is exchanged between two questions of one pass is not believed: nothing is lost by its word", async () => {
  const parts = await readyWithWork();
  const container = parts.host.containers.get(CONTAINER);
  assert.ok(container);
  parts.host.onInspect = () => {
    parts.host.engine = "engine-2";
    parts.host.containers.clear();
  };
  await parts.pass();
  assert.equal(parts.sandbox()?.status.lastEnding, undefined);
  assert.match(parts.failures.at(-1) ?? "", /another engine/);
  parts.host.onInspect = () => undefined;
  parts.host.engine = "engine-1";
  parts.host.containers.set(CONTAINER, container);
  await parts.until("Ready again", () => isReady(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.boot, 1);
});

test("an ending on an engine that is another one is told by name in the pass that finds it", async () => {
  const parts = await readyWithWork();
  const container = parts.host.containers.get(CONTAINER);
  assert.ok(container);
  parts.host.engine = "engine-2";
  parts.host.containers.clear();
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.pass();
  const shown = (type: string) => findCondition(parts.sandbox()?.status.conditions, type);
  assert.equal(shown("Ready")?.reason, "HostUnreachable");
  assert.match(shown("Ready")?.message ?? "", /another engine/);
  parts.host.engine = "engine-1";
  parts.host.containers.set(CONTAINER, container);
  await parts.until("ending", () => parts.sandbox()?.status.operation !== undefined || isAsleep(parts.sandbox()));
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one"]);
});

test("a container that is started anew by hand is found in one pass: told by name, and its work saved as after a crash", async () => {
  const parts = await readyWithWork();
  const container = parts.host.containers.get(CONTAINER);
  assert.ok(container);
  container.pid = 101;
  await parts.pass();
  assert.ok(!isReady(parts.sandbox()), "nothing of the session runs in it");
  assert.ok(parts.events.some(({ reason }) => reason === "ContainerRestarted"));
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.lastEnding?.reason, "ContainerExited");
  assert.equal(parts.world().status.versions?.at(-1)?.recovered?.reason, "ContainerExited");
  assertSaved(parts, ["one"]);
  assertClean(parts);
});

test("a container whose first process status does not know is known by it from the next pass on", async () => {
  const parts = await readyWithWork();
  parts.change(({ status: { compute, ...status }, ...rest }) => {
    assert.ok(compute);
    const { pid: _, ...known } = compute;
    return { ...rest, status: { ...status, compute: known } };
  });
  await parts.pass();
  assert.equal(parts.sandbox()?.status.compute?.pid, 100);
});
