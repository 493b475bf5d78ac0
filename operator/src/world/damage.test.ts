import assert from "node:assert/strict";
import { test } from "node:test";
import { publishedHistory } from "./published-history.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

const genesis = { image: "busybox:1", digest: `sha256:${"9".repeat(64)}`, platform: "linux/amd64" } as const;
const history = publishedHistory([0, 1, 2]);
const head = history[2];
const middle = history[1];
assert.ok(head && middle);
const lostLayer = head.manifest.layers.at(-1)?.digest ?? "sha256:";

async function settled() {
  const parts = worldParts({ history, world: { status: { genesis } } });
  await parts.pass();
  await parts.pass();
  parts.events.length = 0;
  return parts;
}

const damageOf = (version: { number: number; digest: `sha256:${string}` }, because = "layer x is not there") => ({
  version: version.number,
  digest: version.digest,
  because,
});

test("a head that lost a layer: HeadAvailable and Ready are False and name it, and it heals when the layer is back", async () => {
  const parts = await settled();
  const bytes = parts.registry.blobs.get(lostLayer);
  assert.ok(bytes);
  parts.registry.blobs.delete(lostLayer);
  parts.find([damageOf(head)]);
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 60_000 });
  assert.equal(parts.condition("HeadAvailable")?.reason, "HeadDamaged");
  assert.ok(parts.condition("HeadAvailable")?.message.includes(lostLayer), parts.condition("HeadAvailable")?.message);
  assert.equal(parts.condition("Ready")?.reason, "HeadDamaged");
  assert.deepEqual(parts.reasons(), ["HeadDamaged"]);
  parts.registry.blobs.set(lostLayer, bytes);
  await parts.pass();
  assert.equal(parts.condition("Ready")?.status, "True");
  assert.equal(parts.condition("HeadAvailable")?.reason, "HeadAvailable");
});

test("a damaged World that nobody restores is written once", async () => {
  const parts = await settled();
  parts.registry.blobs.delete(lostLayer);
  parts.find([damageOf(head), damageOf(middle)]);
  await parts.pass();
  const writes = parts.worlds.writes.length;
  await parts.pass();
  await parts.pass();
  assert.equal(parts.worlds.writes.length, writes);
});

test("what an earlier process found of head stands in a new one, until the registry shows otherwise", async () => {
  const parts = await settled();
  parts.registry.blobs.delete(lostLayer);
  parts.change((world) => ({
    ...world,
    status: {
      ...world.status,
      conditions: [
        {
          type: "HeadAvailable",
          status: "False",
          reason: "HeadDamaged",
          message: `version 2 (${head.digest}) is not whole`,
          lastTransitionTime: "2026-01-01T00:00:00Z",
        },
      ],
    },
  }));
  await parts.pass();
  assert.equal(parts.condition("HeadAvailable")?.reason, "HeadDamaged");
  parts.registry.failing.set(lostLayer, "Unavailable");
  await parts.pass();
  assert.equal(parts.condition("HeadAvailable")?.reason, "HeadDamaged", "an outage takes nothing back");
});

test("older versions that are damaged are named, and sessions go on", async () => {
  const parts = await settled();
  parts.find([damageOf(middle, "layer y is not there")]);
  assert.deepEqual(await parts.pass(), {});
  assert.match(parts.condition("VersionsDamaged")?.message ?? "", /version 1: layer y is not there/);
  assert.equal(parts.condition("Ready")?.status, "True");
  assert.deepEqual(parts.reasons(), ["VersionsDamaged"]);
  parts.find([]);
  await parts.pass();
  assert.equal(parts.condition("VersionsDamaged"), undefined);
});

test("a version that retention has taken off the list is no damage", async () => {
  const parts = await settled();
  parts.find([{ version: 9, digest: `sha256:${"a".repeat(64)}`, because: "manifest is not there" }]);
  await parts.pass();
  assert.equal(parts.condition("VersionsDamaged"), undefined);
});
