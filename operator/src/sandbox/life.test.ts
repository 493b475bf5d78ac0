import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Life, type Parts, testLife } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const lives: Record<string, Life> = {
  "deadline, wake by touch, delete": {
    async live(parts) {
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
      assertSaved(parts, ["one"]);
      assertClean(parts);
      parts.ask("Touch", "wake");
      await parts.until("Ready again", () => isReady(parts.sandbox()));
      parts.work("two");
      parts.delete();
      await parts.until("gone", () => parts.sandbox() === undefined);
      assertSaved(parts, ["one", "two"]);
      assertClean(parts);
    },
  },
  "snapshot of the running session, close": {
    async live(parts) {
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      parts.ask("Snapshot", "save");
      const result = (id: string) => parts.sandbox()?.status.requests?.find((request) => request.id === id)?.result;
      await parts.until("answered", () => result("save") !== undefined && isReady(parts.sandbox()));
      assert.equal(result("save")?.outcome, "Succeeded");
      assertSaved(parts, ["one"]);
      parts.work("two");
      parts.ask("Close", "end");
      await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
      assertSaved(parts, ["one", "two"]);
      assert.equal(parts.sandbox()?.status.closed?.digest, parts.world().status.head?.digest);
      assert.equal(result("end")?.digest, parts.world().status.head?.digest);
      await parts.until("let go", () => (parts.sandbox()?.metadata.finalizers ?? []).length === 0);
      assertClean(parts);
    },
  },
  "mode turned to Hibernated and back": {
    async live(parts) {
      const mode = (value: "Running" | "Hibernated") =>
        parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: value } }));
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      mode("Hibernated");
      await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
      assertSaved(parts, ["one"]);
      assertClean(parts);
      mode("Running");
      await parts.until("Ready again", () => isReady(parts.sandbox()));
      assert.equal(parts.sandbox()?.status.boot, 2);
    },
  },
  "the container is killed from outside": {
    async live(parts) {
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      for (const container of parts.host.containers.values()) container.state = "Exited";
      await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
      assertSaved(parts, ["one"]);
      assert.equal(parts.world().status.versions?.at(-1)?.reason, "Crash");
      assertClean(parts);
    },
  },
  "a throwaway image": {
    sandbox: { spec: { image: "busybox:1" } },
    async live(parts) {
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      parts.ask("Snapshot", "save");
      await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
      const [request] = parts.sandbox()?.status.requests ?? [];
      assert.equal(request?.result?.outcome, "Refused");
      assert.equal(parts.world().status.head?.version, 0);
      assertClean(parts);
    },
  },
};

for (const [name, life] of Object.entries(lives)) testLife(name, life);

/** A session that works, is asked for a version, and then runs into its deadline: long enough to meet trouble anywhere. */
async function workOn(parts: Parts): Promise<void> {
  await parts.until("Ready", () => isReady(parts.sandbox()) || parts.wasKilled());
  if (parts.wasKilled()) return;
  parts.work("one");
  parts.ask("Snapshot", "save");
  await parts.until("asleep", () => isAsleep(parts.sandbox()) || parts.wasKilled());
}

/** Somebody worked in the container, and head does not have it. */
function hasUnpublishedWork(parts: Parts, id: string): boolean {
  const saved = new Set(parts.host.worked(parts.world().status.head?.digest ?? ""));
  return (parts.host.containers.get(id)?.work ?? []).some((entry) => !saved.has(entry));
}

/** Where no host could be asked what is left, the hold is not let go: the World's own controller ends it, on proof. */
function assertNotHeldForNothing(parts: Parts): void {
  const isUnknown = parts.events.some(({ reason, action }) => reason === "HostsNotAsked" && action === "Delete");
  if (!isUnknown) assert.equal(parts.world().status.holder, undefined);
}

const troubles: Record<string, (parts: Parts) => Promise<void>> = {
  "the Sandbox is deleted": async (parts) => {
    parts.delete();
    await parts.until("gone", () => parts.sandbox() === undefined);
    assertClean(parts);
  },
  "mode is turned to Hibernated": async (parts) => {
    parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
    await parts.until("asleep", () => isAsleep(parts.sandbox()));
    await parts.pass();
    assertClean(parts);
  },
  "it is closed": async (parts) => {
    parts.ask("Close", "end");
    await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
    await parts.pass();
    assertClean(parts);
  },
  "it is deleted while its host is silent: the work is written down, and the deletion ends": async (parts) => {
    parts.silenceHost();
    parts.delete();
    await parts.until("gone", () => parts.sandbox() === undefined);
    const { rescues = [], pending } = parts.world().status;
    assertNotHeldForNothing(parts);
    assert.equal(pending, undefined);
    const recorded = parts.runtimes.peek({ name: "local" })?.status.rescues ?? [];
    for (const id of parts.host.containers.keys()) {
      assert.ok(
        recorded.some(({ computeId }) => computeId === id),
        `${id} is not written down on the Runtime`,
      );
      assert.ok(
        rescues.some(({ computeId }) => computeId === id) || !hasUnpublishedWork(parts, id),
        `the World is kept from new writers while ${id} holds unpublished work`,
      );
    }
  },
  "its World is torn away and it is deleted: the deletion ends": async (parts) => {
    parts.dropWorld();
    parts.delete();
    await parts.until("gone", () => parts.sandbox() === undefined);
    const recorded = parts.runtimes.peek({ name: "local" })?.status.rescues ?? [];
    for (const id of parts.host.containers.keys()) {
      assert.ok(
        recorded.some(({ computeId }) => computeId === id),
        `${id} is not written down`,
      );
    }
  },
  "its Runtime is torn away and it is deleted: the deletion ends": async (parts) => {
    parts.dropRuntime();
    parts.delete();
    await parts.until("gone", () => parts.sandbox() === undefined);
    const { rescues = [] } = parts.world().status;
    assertNotHeldForNothing(parts);
    for (const id of parts.host.containers.keys()) {
      assert.ok(
        rescues.some(({ computeId }) => computeId === id) || !hasUnpublishedWork(parts, id),
        `${id} holds unpublished work and is not written down`,
      );
    }
  },
};

for (const [name, meet] of Object.entries(troubles)) {
  test(`whenever the operator is killed, and meanwhile ${name}`, async () => {
    const whole = await memoryParts({});
    await workOn(whole);
    for (const [index, effect] of whole.effects.seen.entries()) {
      for (const when of ["before", "after"] as const) {
        const parts = await memoryParts({ kill: { index, when } });
        try {
          await workOn(parts);
          assert.ok(parts.wasKilled());
          await meet(parts);
        } catch (error) {
          throw new Error(`killed ${when} effect ${index}, ${effect}`, { cause: error });
        }
      }
    }
  });
}

test("a version is saved although its tags cannot be written: those are repaired later", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.registry.failing.set("latest", "Unavailable");
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assert.equal(parts.world().status.head?.version, 1);
  assertClean(parts);
});

test("a snapshot that failed, then committed as the operator was killed, is what the session's end builds on", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.registry.failing.set("v1", "Unavailable");
  parts.ask("Snapshot", "save");
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  parts.registry.failing.clear();
  // The number is reserved already, so the next write of the World is the commit.
  parts.effects.killAfter("patch World status");
  await parts.until("killed", () => parts.wasKilled());
  assert.equal(parts.world().status.head?.version, 1);
  parts.work("two");
  parts.ask("Close", "end");
  await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
  assertSaved(parts, ["one", "two"]);
  assertClean(parts);
  const results = parts.sandbox()?.status.requests?.map(({ id, result }) => [id, result?.outcome, result?.version]);
  assert.deepEqual(results, [
    ["save", "Succeeded", 1],
    ["end", "Succeeded", 2],
  ]);
});

test("a session that has a version and is closed before its next boot is Ready ends in that version", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  parts.ask("Touch", "wake");
  parts.effects.killAfter("patch Sandbox status");
  await parts.until("killed", () => parts.wasKilled());
  const compute = parts.sandbox()?.status.compute;
  assert.equal(compute?.boot, 2);
  assert.equal(compute?.provisionedAt, undefined);
  parts.ask("Close", "end");
  await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
  assert.equal(parts.sandbox()?.status.closed?.version, 1);
  assertSaved(parts, ["one"]);
  assertClean(parts);
});
