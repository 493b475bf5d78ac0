/** What stays behind when a session comes to no regular end, and whom it holds up. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

async function readyWithWork(options: Parameters<typeof memoryParts>[0] = {}): Promise<Parts> {
  const parts = await memoryParts(options);
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  parts.work("one");
  return parts;
}

async function deletedWhileSilent(parts: Parts) {
  parts.silenceHost();
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  const onRuntime = parts.runtimes.peek({ name: "local" })?.status.rescues ?? [];
  return { onRuntime, onWorld: parts.world().status.rescues ?? [], holder: parts.world().status.holder };
}

test("unpublished work is written down on Runtime and World, which takes no new writer until it is dealt with", async () => {
  const { onRuntime, onWorld, holder } = await deletedWhileSilent(await readyWithWork());
  assert.deepEqual(
    onRuntime.map(({ computeId, reason }) => [computeId, reason]),
    [["aw-sandbox-uid-1", "SnapshotFailed"]],
  );
  assert.equal(onWorld.length, 1);
  assert.equal(holder, undefined);
});

test("that work is kept is told on its Runtime, too: the Sandbox and its Events may go with their namespace", async () => {
  const parts = await readyWithWork();
  await deletedWhileSilent(parts);
  const told = parts.events.filter(({ reason }) => reason === "Rescued");
  assert.deepEqual(
    told.map(({ kind }) => kind),
    ["Sandbox", "Runtime"],
  );
  assert.match(told[1]?.message ?? "", /unpublished work of Sandbox team\/one is kept on local\/a as aw-sandbox-uid-1/);
});

test("work that was to be discarded holds no World up: only its container is written down, on the Runtime", async () => {
  const parts = await readyWithWork({ sandbox: { spec: { closePolicy: "Discard" } } });
  const { onRuntime, onWorld, holder } = await deletedWhileSilent(parts);
  assert.deepEqual(
    onRuntime.map(({ reason }) => reason),
    ["NothingToSave"],
  );
  assert.deepEqual(onWorld, []);
  assert.equal(holder, undefined);
});

test("work that was committed before the host fell silent is no rescue: the version stands", async () => {
  const parts = await readyWithWork();
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("committed", () => parts.world().status.head?.version === 1);
  const operation = parts.world().status.versions?.at(-1)?.operation ?? "";
  // The operator ended between the commit and the release: status still says that the work is being published.
  if (parts.sandbox()?.status.compute === undefined) {
    parts.change((sandbox) => ({
      ...sandbox,
      metadata: { ...sandbox.metadata, finalizers: ["agentworlds.dev/sandbox"] },
      status: {
        ...sandbox.status,
        compute: {
          runtime: "local",
          host: "a",
          id: "aw-sandbox-uid-1",
          boot: 1,
          saves: "Versions",
          provisionedAt: "2026-01-01T00:00:00Z",
        },
        operation: {
          id: operation,
          verb: "Hibernate",
          reason: "ModeHibernated",
          stage: "Verified",
          since: "2026-01-01T00:00:00Z",
          attempts: 0,
        },
      },
    }));
  }
  const { onRuntime, onWorld } = await deletedWhileSilent(parts);
  assert.deepEqual(
    onRuntime.map(({ reason }) => reason),
    ["Published"],
  );
  assert.deepEqual(onWorld, []);
});

test("a failed hibernation that is overruled leaves nothing of itself in the operation that follows", async () => {
  const parts = await readyWithWork();
  parts.registry.failing.set(parts.sandbox()?.status.bootedFrom?.digest ?? "", "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 1);
  parts.ask("Close", "drop");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, closePolicy: "Discard" } }));
  await parts.until("Closed", () => parts.sandbox()?.status.closed !== undefined);
  assert.deepEqual([...parts.host.commits.keys()], [], "the failed capture is gone");
  assert.equal(parts.world().status.pending, undefined);
});

test("a container that vanishes after its capture, before that was recorded, is not lost: the capture is published", async () => {
  const parts = await readyWithWork();
  parts.registry.failing.set(parts.sandbox()?.status.bootedFrom?.digest ?? "", "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("captured", () => parts.host.commits.size === 1);
  // As if the operator had ended between the capture and the record of it.
  parts.change((sandbox) => {
    const { operation } = sandbox.status;
    return operation
      ? { ...sandbox, status: { ...sandbox.status, operation: { ...operation, stage: "Frozen" } } }
      : sandbox;
  });
  parts.host.containers.clear();
  parts.registry.failing.clear();
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  assert.equal(parts.sandbox()?.status.lastEnding?.outcome, "Published");
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"]);
});

test("a hold without a slot ends in the pass that finds out, also when an earlier operator took it", async () => {
  const parts = await memoryParts({});
  parts.changeWorld((world) => ({
    ...world,
    status: {
      ...world.status,
      holder: { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: "2026-01-01T00:00:00Z" },
    },
  }));
  parts.dropRuntime();
  await parts.pass();
  assert.equal(parts.world().status.holder, undefined);
});

test("a hold that the cache does not show ends with the Sandbox that has it", async () => {
  const parts = await memoryParts({});
  parts.showCached({ world: parts.world() });
  parts.changeWorld((world) => ({
    ...world,
    status: {
      ...world.status,
      holder: { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: "2026-01-01T00:00:00Z" },
    },
  }));
  parts.change((sandbox) => ({
    ...sandbox,
    metadata: { ...sandbox.metadata, finalizers: ["agentworlds.dev/sandbox"] },
  }));
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.equal(parts.world().status.holder, undefined);
});

test("a status that says committed, without a version in the World, removes nothing: the work is captured anew", async () => {
  const parts = await readyWithWork();
  parts.change((sandbox) => ({
    ...sandbox,
    status: {
      ...sandbox.status,
      operation: {
        id: "forged",
        verb: "Hibernate",
        reason: "ModeHibernated",
        stage: "Committed",
        version: 0,
        since: "2026-01-01T00:00:00Z",
        attempts: 0,
      },
    },
  }));
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"]);
});

test("a capture that somebody removed is made anew while the container is there", async () => {
  const parts = await readyWithWork();
  parts.registry.failing.set(parts.sandbox()?.status.bootedFrom?.digest ?? "", "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("captured", () => parts.host.commits.size === 1);
  parts.host.commits.clear();
  parts.registry.failing.clear();
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"]);
});

test("a retry that lies years ahead, by whatever clock, is due within five minutes", async () => {
  const parts = await readyWithWork();
  parts.registry.failing.set(parts.sandbox()?.status.bootedFrom?.digest ?? "", "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  parts.change((sandbox) => {
    const { operation } = sandbox.status;
    if (!operation) return sandbox;
    return { ...sandbox, status: { ...sandbox.status, operation: { ...operation, retryAt: "2999-01-01T00:00:00Z" } } };
  });
  parts.registry.failing.clear();
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.equal(parts.world().status.rescues, undefined, "it was published or, overdue, rescued; never stuck");
});

test("another engine at the host's address is not believed: nothing is lost by its word", async () => {
  const parts = await readyWithWork();
  parts.change((sandbox) => {
    const { compute } = sandbox.status;
    return compute
      ? { ...sandbox, status: { ...sandbox.status, compute: { ...compute, engine: "engine-0" } } }
      : sandbox;
  });
  parts.host.containers.clear();
  await parts.pass();
  assert.equal(parts.sandbox()?.status.lastEnding, undefined);
  assert.equal(parts.sandbox()?.status.compute?.boot, 1);
  assert.match(parts.failures.at(-1) ?? "", /another engine/);
});
