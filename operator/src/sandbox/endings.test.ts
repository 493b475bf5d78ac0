/** Sessions that end by themselves, from outside or with their host: each ends in a version that says how, or in a condition. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertClean, assertSaved, isAsleep, isReady, type Parts, testLife } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

/** The container of the session ends by itself. */
function end(parts: Parts, ended: { exitCode: number; outOfMemory: boolean }): void {
  for (const container of parts.host.containers.values()) {
    container.state = "Exited";
    container.ended = ended;
  }
}

const annotationsOfHead = (parts: Parts): Record<string, string> => {
  const manifest = parts.registry.manifests.get(parts.world().status.head?.digest ?? "");
  return JSON.parse(new TextDecoder().decode(manifest)).annotations;
};

const deaths = [
  { exitCode: 0, outOfMemory: false, reason: "ContainerExited" },
  { exitCode: 1, outOfMemory: false, reason: "ContainerExited" },
  { exitCode: 255, outOfMemory: false, reason: "ContainerExited" },
  { exitCode: 137, outOfMemory: true, reason: "OutOfMemory" },
] as const;

for (const { reason, ...ended } of deaths) {
  const { exitCode } = ended;
  testLife(`the container ends with ${exitCode} (${reason}): saved from what is left of it, and so marked`, {
    async live(parts) {
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      end(parts, ended);
      await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
      assertSaved(parts, ["one"]);
      assertClean(parts);
      const version = parts.world().status.versions?.at(-1);
      assert.equal(version?.reason, "Crash", "exit 0 is no end in order either");
      assert.equal(version?.consistency, "Crash");
      assert.deepEqual(version?.recovered, { reason, exitCode });
      const annotations = annotationsOfHead(parts);
      assert.deepEqual(JSON.parse(annotations["dev.agentworlds.recovered"] ?? ""), { reason, exitCode });
      assert.equal(parts.sandbox()?.status.lastEnding?.reason, reason);
    },
  });
}

test("a container that is dead when its session is deleted: the version says both", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  end(parts, { exitCode: 137, outOfMemory: true });
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assertSaved(parts, ["one"]);
  const version = parts.world().status.versions?.at(-1);
  assert.equal(version?.reason, "Delete");
  assert.deepEqual(version?.recovered, { reason: "OutOfMemory", exitCode: 137 });
});

test("a container that ends between the look and the freeze is captured dead, without a failed attempt", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.effects.beforeNext("freeze", () => end(parts, { exitCode: 0, outOfMemory: false }));
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one"]);
  const version = parts.world().status.versions?.at(-1);
  assert.equal(version?.reason, "Deadline");
  assert.equal(version?.consistency, "Crash");
  assert.deepEqual(version?.recovered, { reason: "ContainerExited", exitCode: 0 });
  assert.deepEqual(parts.failures, []);
});

test("a version of a session that ended in order is not called recovered", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  const version = parts.world().status.versions?.at(-1);
  assert.equal(version?.consistency, "Frozen");
  assert.equal(version?.recovered, undefined);
  assert.equal(annotationsOfHead(parts)["dev.agentworlds.recovered"], undefined);
});
