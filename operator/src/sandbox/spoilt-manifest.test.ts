/** A registry that was full keeps half a manifest under its digest for ever: the work becomes a version all the same, under another digest. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { assertClean, assertSaved, isAsleep, isReady } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";
import {
  assertNothingLeft,
  assertPublishedOnce,
  isKept,
  isResolved,
  regainRegistry,
  rescued,
} from "./rescues.test-kit.ts";

const SPOILT = {
  "what the engine pushed": (reference: string) => reference.startsWith("capture-"),
  "the version's manifest": (reference: string) => reference.startsWith("sha256:"),
} as const;

for (const [what, isIt] of Object.entries(SPOILT)) {
  test(`${what} is spoilt at an ending: another attempt publishes the work, and nothing is left over`, async () => {
    const parts = await memoryParts({});
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.registry.spoilNext = isIt;
    parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one"]);
    assertClean(parts);
    assert.deepEqual(parts.runtimes.peek({ name: "local" })?.status.rescues ?? [], [], "it was no rescue");
  });

  test(`${what} is spoilt at a snapshot: another attempt answers it`, async () => {
    const parts = await memoryParts({});
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.registry.spoilNext = isIt;
    parts.ask("Snapshot", "save");
    await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result !== undefined);
    assert.equal(parts.sandbox()?.status.requests?.[0]?.result?.outcome, "Succeeded");
    assertSaved(parts, ["one"]);
  });

  test(`${what} is spoilt when a rescue is published: it is tried again with other bytes, and does not expire`, async () => {
    const parts = await rescued();
    regainRegistry(parts);
    parts.registry.spoilNext = isIt;
    await parts.until("published", () => isResolved(parts) && !isKept(parts));
    assert.equal(parts.sandbox()?.status.lastEnding?.outcome, "Published");
    assertPublishedOnce(parts, ["one"]);
    assertNothingLeft(parts);
  });
}

test("a capture whose container is gone is the only copy: however spoilt its push, it stays", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.registry.spoilNext = SPOILT["what the engine pushed"];
  parts.effects.beforeNext("push", () => parts.host.containers.clear());
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("tried again", () => (parts.sandbox()?.status.operation?.attempts ?? 0) >= 3);
  assert.equal(parts.host.commits.size, 1);
  assert.ok(isTrue(parts.sandbox()?.status.conditions, "SnapshotFailed"));
});

test("a registry that is away when a push is read back costs no capture", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  const commits = () => parts.effects.seen.filter((effect) => effect === "commit").length;
  parts.registry.spoilNext = SPOILT["what the engine pushed"];
  parts.registry.failing.set("tags", "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("tried again", () => (parts.sandbox()?.status.operation?.attempts ?? 0) >= 3);
  assert.equal(commits(), 1);
});
