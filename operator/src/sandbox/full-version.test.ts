/** A version with as many layers as an engine boots: a session may look at it, and nothing of that becomes a version. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { findCondition } from "../reconciler/conditions.ts";
import { MOST_LAYERS } from "../registry/layer-limit.ts";
import { assertClean, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

async function atFullHead(options: Parameters<typeof memoryParts>[0] = {}): Promise<Parts> {
  const parts = await memoryParts({ sandbox: { spec: { closePolicy: "Discard" } }, ...options });
  parts.changeWorld((world) => ({
    ...world,
    status: {
      ...world.status,
      versions: (world.status.versions ?? []).map((version) => ({ ...version, layers: MOST_LAYERS })),
    },
  }));
  return parts;
}

async function working(parts: Parts): Promise<Parts> {
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  return parts;
}

/** It ended, and no attempt to publish was ever made: an attempt would fail for ten minutes and leave a rescue behind. */
async function assertEndsUnsaved(parts: Parts): Promise<void> {
  const head = parts.genesis.digest;
  await parts.until("ended", () => parts.sandbox()?.status.compute === undefined);
  const { status } = parts.world();
  assert.equal(status.head?.digest, head);
  assert.deepEqual(status.rescues ?? [], []);
  assert.equal(status.nextVersion, 1, "no number was reserved");
  assert.ok(!parts.effects.seen.includes("commit"), "nothing was captured");
  assertClean(parts);
}

test("a session that would save its work is refused by name", async () => {
  const parts = await atFullHead({ sandbox: { spec: { closePolicy: "Snapshot" } } });
  await assert.rejects(parts.pass());
  const stalled = findCondition(parts.sandbox()?.status.conditions, "Stalled");
  assert.equal(stalled?.reason, "TooManyLayers");
});

const endings: Record<string, (parts: Parts) => void> = {
  "its deadline passes": () => undefined,
  "its mode is turned": (parts) => parts.change((one) => ({ ...one, spec: { ...one.spec, mode: "Hibernated" } })),
  "its container ends": (parts) => {
    for (const container of parts.host.containers.values()) container.state = "Exited";
  },
  "it is closed": (parts) => parts.ask("Close", "end"),
  "it is deleted": (parts) => parts.delete(),
  "its policy is changed before its deadline": (parts) =>
    parts.change((one) => ({ ...one, spec: { ...one.spec, closePolicy: "Snapshot" } })),
};
for (const [what, end] of Object.entries(endings)) {
  test(`${what}: it ends without a version, at once`, async () => {
    const parts = await working(await atFullHead());
    assert.equal(parts.sandbox()?.status.compute?.saves, "Nothing");
    end(parts);
    await assertEndsUnsaved(parts);
  });
}

test("one that names the version, which is head, saves nothing either", async () => {
  const spec = { world: { name: "lab", version: 0 }, closePolicy: "Discard" as const };
  await assertEndsUnsaved(await working(await atFullHead({ sandbox: { spec } })));
});

test("the cache does not show the version yet: the World is asked afresh", async () => {
  const parts = await working(await atFullHead());
  const world = parts.world();
  parts.showCached({ world: { ...world, status: { ...world.status, versions: [] } } });
  await assertEndsUnsaved(parts);
});

test("its container is forgotten by status and found again: as before", async () => {
  const parts = await working(await atFullHead());
  parts.change(({ status: { compute: _, ...status }, ...sandbox }) => ({ ...sandbox, status }));
  await parts.until("found", () => parts.sandbox()?.status.compute !== undefined);
  assert.equal(parts.sandbox()?.status.compute?.saves, "Nothing");
  await assertEndsUnsaved(parts);
});

test("a snapshot is refused", async () => {
  const parts = await working(await atFullHead());
  parts.ask("Snapshot", "save");
  const result = () => parts.sandbox()?.status.requests?.find(({ id }) => id === "save")?.result;
  await parts.until("answered", () => result() !== undefined);
  assert.equal(result()?.outcome, "Refused");
  assert.match(result()?.message ?? "", /layers/);
});
