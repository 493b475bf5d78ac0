/** No deletion hangs: whatever is down, and whatever a phase fails on, Sandbox, World and Runtime go within a bound. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SKIP_FINALIZER } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import { captureTag } from "../snapshot/docker-commit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";
import { isKept, type Parts, rescued } from "./rescues.test-kit.ts";

const DEADLINE_MS = 600_000;

async function ready(): Promise<Parts> {
  const parts = await memoryParts({ withWorld: true });
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  parts.work("one");
  return parts;
}

/** Everything a publication needs of the registry fails. */
function loseRegistry(parts: Parts): void {
  const operation = parts.sandbox()?.status.operation?.id ?? "";
  for (const reference of [parts.genesis.digest, captureTag(operation)]) {
    parts.registry.failing.set(reference, "Unavailable");
  }
}

const isGone = (parts: Parts): boolean => parts.sandbox() === undefined && !parts.hasWorld();

async function msUntilGone(parts: Parts): Promise<number> {
  const since = parts.clock.now();
  await parts.until("both gone", () => isGone(parts));
  return parts.clock.now() - since;
}

const troubles: [name: string, cause: (parts: Parts) => void][] = [
  ["the registry is down", loseRegistry],
  ["the engine is down", (parts) => parts.silenceHost()],
  ["the Runtime is gone", (parts) => parts.dropRuntime()],
  [
    "registry and engine are down",
    (parts) => {
      loseRegistry(parts);
      parts.silenceHost();
    },
  ],
];
for (const [name, cause] of troubles) {
  test(`Sandbox and World, deleted at once while ${name}, are gone within twice the deadline`, async () => {
    const parts = await ready();
    cause(parts);
    parts.delete();
    parts.deleteWorld();
    const waited = await msUntilGone(parts);
    assert.ok(waited <= 2 * DEADLINE_MS + 60_000, `${waited} ms`);
    const keeper = parts.runtimes.peek({ name: "local" });
    if (keeper) assert.equal(keeper.status.rescues?.length, 1, "its Runtime has the work written down");
  });
}

test("an ending after a snapshot that failed is not held up by a registry that is down: it is captured and rescued", async () => {
  const parts = await ready();
  parts.ask("Snapshot", "save");
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  loseRegistry(parts);
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("captured anew", () => parts.sandbox()?.status.operation?.consistency === "Frozen");
  await parts.until("rescued", () => isKept(parts));
});

test("a discard is not held up by a registry that is down, though a failed snapshot has left something there", async () => {
  const parts = await ready();
  parts.ask("Snapshot", "save");
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  loseRegistry(parts);
  const left = captureTag(parts.sandbox()?.status.operation?.id ?? "");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, closePolicy: "Discard" } }));
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.ok(parts.registry.tags.has(left), "the registry did not give it up");
  parts.registry.failing.clear();
  await parts.until("removed by the World", () => !parts.registry.tags.has(left));
});

test("a discarding session that is deleted while its hibernation fails goes at once, container and all", async () => {
  const parts = await memoryParts({ sandbox: { spec: { closePolicy: "Discard" } } });
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  parts.work("one");
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  const since = parts.clock.now();
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.ok(parts.clock.now() - since < 60_000, `${parts.clock.now() - since} ms`);
  assert.deepEqual([...parts.host.containers.keys()], []);
  assert.equal(parts.world().status.holder, undefined);
});

const wrong: [name: string, value: string][] = [
  ["true", "true"],
  ["another object's UID", "world-uid"],
];
for (const [name, value] of wrong) {
  test(`the annotation with ${name} as its value skips nothing: a template could carry it`, async () => {
    const parts = await ready();
    loseRegistry(parts);
    parts.change((sandbox) => ({
      ...sandbox,
      metadata: { ...sandbox.metadata, annotations: { [SKIP_FINALIZER]: value } },
    }));
    parts.delete();
    for (let passes = 0; passes < 5; passes++) await parts.pass();
    assert.notEqual(parts.sandbox(), undefined);
  });
}

test("a Sandbox whose annotation names its UID goes in the next pass; its work is a rescue, and that is told", async () => {
  const parts = await ready();
  loseRegistry(parts);
  parts.delete();
  await parts.pass();
  parts.change((sandbox) => ({
    ...sandbox,
    metadata: { ...sandbox.metadata, annotations: { [SKIP_FINALIZER]: sandbox.metadata.uid } },
  }));
  await parts.pass();
  assert.equal(parts.sandbox(), undefined);
  assert.ok(isKept(parts));
  const told = parts.events.filter(({ reason }) => reason === "FinalizerSkipped").map(({ kind }) => kind);
  assert.deepEqual(told, ["Sandbox", "Runtime"]);
});

test("a World whose annotation names its UID goes in the next pass, and what is left is told", async () => {
  const parts = await rescued();
  await parts.pass();
  parts.changeWorld((world) => ({
    ...world,
    metadata: { ...world.metadata, annotations: { [SKIP_FINALIZER]: world.metadata.uid } },
  }));
  parts.deleteWorld();
  await parts.pass();
  assert.equal(parts.hasWorld(), false);
  const told = parts.events.find(({ reason }) => reason === "FinalizerSkipped");
  assert.match(told?.message ?? "", /work is kept on local\/a as aw-sandbox-uid-1 until/);
});

test("the annotation does nothing to an object that nobody deletes", async () => {
  const parts = await ready();
  parts.change((sandbox) => ({
    ...sandbox,
    metadata: { ...sandbox.metadata, annotations: { [SKIP_FINALIZER]: sandbox.metadata.uid } },
  }));
  await parts.pass();
  assert.ok(isTrue(parts.sandbox()?.status.conditions, "Ready"));
});

test("whenever the operator is killed in a deletion with everything down, both go within the bound", async () => {
  const whole = await ready();
  const begun = whole.effects.seen.length;
  const die = async (parts: Parts) => {
    loseRegistry(parts);
    parts.silenceHost();
    parts.delete();
    parts.deleteWorld();
    return msUntilGone(parts);
  };
  await die(whole);
  for (const [index, effect] of [...whole.effects.seen.entries()].slice(begun)) {
    for (const when of ["before", "after"] as const) {
      try {
        const parts = await memoryParts({ withWorld: true, kill: { index, when } });
        await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
        parts.work("one");
        const waited = await die(parts);
        assert.ok(waited <= 2 * DEADLINE_MS + 60_000, `${waited} ms`);
        assert.equal(parts.runtimes.peek({ name: "local" })?.status.rescues?.length, 1);
      } catch (error) {
        throw new Error(`killed ${when} effect ${index}, ${effect}`, { cause: error });
      }
    }
  }
});
