/** Causes that come late, twice, or all at the same moment, and clocks that jump: one ending, one version, nothing lost. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Parts, testLife } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const versions = (parts: Parts) => parts.world().status.versions?.map(({ reason }) => reason);

testLife("deadline, close, deletion and the end of the container at the same moment: one version, by the deletion", {
  async live(parts) {
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.clock.jump(600_000);
    parts.ask("Close", "end");
    for (const container of parts.host.containers.values()) container.state = "Exited";
    parts.delete();
    await parts.until("gone", () => parts.sandbox() === undefined);
    assert.deepEqual(versions(parts), ["Genesis", "Delete"]);
    assert.deepEqual(parts.world().status.versions?.at(-1)?.recovered?.reason, "ContainerExited");
    assertSaved(parts, ["one"]);
    assertClean(parts);
  },
});

testLife("a close and a deletion while the deadline's hibernation is under way: its version is the end", {
  async live(parts) {
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.clock.jump(600_000);
    await parts.until("begun", () => parts.sandbox()?.status.operation !== undefined || isAsleep(parts.sandbox()));
    parts.ask("Close", "end");
    await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
    parts.delete();
    await parts.until("gone", () => parts.sandbox() === undefined);
    assert.deepEqual(versions(parts), ["Genesis", "Deadline"]);
    assertSaved(parts, ["one"]);
    assertClean(parts);
  },
});

/** Where a cause can come late: before each of these effects of a hibernation. */
const MOMENTS = ["sync", "freeze", "commit", "push", "put manifest", "tag v1", "remove"] as const;

for (const moment of MOMENTS) {
  test(`a touch that comes right before ${moment} is a wake: the session ends in a version and boots from it`, async () => {
    const parts = await memoryParts({});
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.effects.beforeNext(moment, () => parts.ask("Touch", "late"));
    await parts.until("awake", () => parts.sandbox()?.status.boot === 2 && isReady(parts.sandbox()));
    assertSaved(parts, ["one"]);
    assert.equal(parts.sandbox()?.status.bootedFrom?.version, 1);
    assert.deepEqual(versions(parts), ["Genesis", "Deadline"]);
    const [touch] = parts.sandbox()?.status.requests ?? [];
    assert.equal(touch?.result?.outcome, "Succeeded");
  });

  for (const [what, jumpMs] of [
    ["ahead", 3_600_000],
    ["back", -3_600_000],
  ] as const) {
    test(`a clock that jumps an hour ${what} right before ${moment}: one version, nothing lost, nothing comes alive`, async () => {
      const parts = await memoryParts({});
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      parts.effects.beforeNext(moment, () => parts.clock.jump(jumpMs));
      await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
      for (let passes = 0; passes < 10; passes++) await parts.pass();
      assert.ok(isAsleep(parts.sandbox()));
      assert.deepEqual(versions(parts), ["Genesis", "Deadline"]);
      assertSaved(parts, ["one"]);
      assertClean(parts);
    });
  }
}

test("a clock that is set back an hour while a session runs: its deadline stands, and it hibernates when that comes", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  const { expiresAt = "" } = parts.sandbox()?.status ?? {};
  parts.clock.jump(-3_600_000);
  await parts.pass();
  assert.equal(parts.sandbox()?.status.expiresAt, expiresAt);
  assert.ok(isReady(parts.sandbox()));
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assert.ok(parts.clock.now() >= Date.parse(expiresAt));
});
