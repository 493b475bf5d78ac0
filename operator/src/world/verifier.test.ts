import assert from "node:assert/strict";
import { test } from "node:test";
import type { World } from "@agentworlds/crds";
import fc from "fast-check";
import { WORLDS } from "../kube/resource-types.ts";
import { silentLog } from "../reconciler/log.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { installationRegistry } from "../registry/installation.ts";
import { memoryResource } from "../runtime/memory-resource.test-kit.ts";
import { T0, worldOf } from "../runtime/test-objects.test-kit.ts";
import { MemoryRegistry } from "../snapshot/memory-registry.test-kit.ts";
import { headOf, publishedHistory, putHistory } from "./published-history.test-kit.ts";
import { createWorldStatusWriter } from "./status-writer.ts";
import { turnOf } from "./verification.ts";
import { LineageVerifier } from "./verifier.ts";

const DAY = 86_400_000;
const REF = { namespace: "team", name: "lab" };
const REPOSITORY = "127.0.0.1:5055/worlds/install/team/lab-world-ui";
const history = publishedHistory([0, 1, 2]);
const [oldest, middle, newest] = history;
assert.ok(oldest && middle && newest);
const HEAD = headOf(REPOSITORY, newest);
const { signal } = new AbortController();

function setup() {
  const clock = createTestClock(T0);
  const registry = new MemoryRegistry();
  putHistory(registry, history);
  const worlds = memoryResource<World>(WORLDS, [
    worldOf({
      status: {
        repository: REPOSITORY,
        head: HEAD,
        versions: history.map(({ entry }) => entry),
        nextVersion: 3,
      },
    }),
  ]);
  let cached: World | undefined;
  const showCached = (world: World) => {
    cached = world;
  };
  const changed: string[] = [];
  const samples: string[] = [];
  const paced: number[] = [];
  const verifier = new LineageVerifier({
    worlds: {
      get: () => worlds.peek(REF),
      list: () => [cached ?? worlds.peek(REF)].filter((one) => one !== undefined),
    },
    writer: createWorldStatusWriter(worlds),
    registry: installationRegistry({ client: registry.client, prefix: "worlds" }),
    // Pauses take no time here; how long they were is kept.
    clock: { now: () => clock.now(), sleep: async (milliseconds) => void paced.push(milliseconds) },
    log: silentLog,
    metrics: {
      verified: ({ versions }) => samples.push(`verified ${versions}`),
      failed: () => samples.push("failed"),
      damaged: (versions) => samples.push(`damaged ${versions}`),
    },
    intervalMs: DAY,
    callsPerSecond: 20,
    onChange: (key) => changed.push(key),
  });
  const look = () => verifier.look(signal);
  return { clock, registry, worlds, verifier, changed, samples, paced, look, showCached };
}

/** A verifier that has had its first turn; the next look finds the World due. */
async function due() {
  const parts = setup();
  await parts.look();
  parts.clock.jump(DAY);
  return parts;
}

test("a World is looked at once per interval, and a start of the operator is no turn", async () => {
  const { look, samples, clock } = setup();
  await look();
  assert.deepEqual(samples, []);
  clock.jump(DAY);
  await look();
  await look();
  assert.deepEqual(samples, ["verified 3", "damaged 0"]);
  clock.jump(DAY);
  await look();
  assert.equal(samples.length, 4);
});

test("what is whole changes nothing and calls nobody; nothing is written", async () => {
  const { look, changed, worlds, registry, verifier } = await due();
  await look();
  assert.deepEqual(verifier.findingsOf("world-uid")?.damaged, []);
  assert.deepEqual([changed, worlds.writes, registry.writes], [[], [], []]);
});

test("layers that versions share are asked for once, and every call waits its turn", async () => {
  const { look, paced, registry } = await due();
  await look();
  const manifests = registry.reads.length;
  const blobs = new Set(
    history.flatMap(({ manifest }) => [manifest.config.digest, ...manifest.layers.map((l) => l.digest)]),
  );
  assert.equal(manifests, 3);
  assert.equal(paced.length, manifests + blobs.size);
  assert.ok(paced.every((pause) => pause === 50));
});

const damages: [name: string, harm: (registry: MemoryRegistry) => void, versions: number[], because: RegExp][] = [
  ["a manifest that is gone", (r) => void r.manifests.delete(middle.digest), [1], /^manifest sha256:.* is not there/],
  ["a manifest with other bytes", (r) => void r.failing.set(middle.digest, "DigestMismatch"), [1], /^manifest sha256:/],
  [
    "a config that is gone",
    (r) => void r.blobs.delete(middle.manifest.config.digest),
    [1],
    /^config sha256:.* is not there/,
  ],
  [
    "a layer that is cut short",
    (r) => void r.blobs.set(newest.manifest.layers[2]?.digest ?? "", new Uint8Array(3)),
    [2],
    /^layer sha256:.* not whole/,
  ],
  [
    "a layer that three versions share",
    (r) => void r.blobs.delete(oldest.manifest.layers[0]?.digest ?? ""),
    [2, 1, 0],
    /^layer sha256:/,
  ],
];
for (const [name, harm, versions, because] of damages) {
  test(`${name} is found, named, counted, and told to the World`, async () => {
    const { look, registry, verifier, changed, samples } = await due();
    harm(registry);
    await look();
    const damaged = verifier.findingsOf("world-uid")?.damaged ?? [];
    assert.deepEqual(
      damaged.map(({ version }) => version),
      versions,
    );
    for (const one of damaged) assert.match(one.because, because);
    assert.deepEqual(changed, ["team/lab"]);
    assert.ok(samples.includes(`damaged ${versions.length}`));
  });
}

test("a World with damage is looked at again in ten minutes, and told when it is whole again", async () => {
  const { look, registry, verifier, changed, clock } = await due();
  const bytes = registry.manifests.get(middle.digest);
  assert.ok(bytes);
  registry.manifests.delete(middle.digest);
  await look();
  registry.manifests.set(middle.digest, bytes);
  clock.jump(599_000);
  await look();
  assert.equal(changed.length, 1);
  clock.jump(1_000);
  await look();
  assert.deepEqual(verifier.findingsOf("world-uid")?.damaged, []);
  assert.equal(changed.length, 2);
});

test("a registry that does not answer is no damage: it is counted and tried again in the next round", async () => {
  const { look, registry, verifier, samples } = await due();
  registry.failing.set(middle.digest, "Unavailable");
  await look();
  assert.equal(verifier.findingsOf("world-uid"), undefined);
  assert.deepEqual(samples, ["failed"]);
  registry.failing.clear();
  await look();
  assert.deepEqual(samples, ["failed", "verified 3", "damaged 0"]);
});

test("a version that retention deletes while it is looked at is no damage", async () => {
  const { look, registry, verifier, worlds, showCached } = await due();
  registry.manifests.delete(oldest.digest);
  const stale = worlds.peek(REF);
  assert.ok(stale);
  showCached(stale);
  worlds.put({ ...stale, status: { ...stale.status, versions: stale.status.versions?.slice(1) ?? [] } });
  await look();
  assert.deepEqual(verifier.findingsOf("world-uid")?.damaged, []);
});

test("a registry that is ahead of head is told to the World", async () => {
  const { look, registry, changed } = await due();
  putHistory(registry, publishedHistory([3], { parent: newest.digest }));
  await look();
  assert.deepEqual(changed, ["team/lab"]);
});

test("a World that is gone is forgotten, and its damage is no longer measured", async () => {
  const { look, registry, verifier, worlds, samples } = await due();
  registry.manifests.delete(middle.digest);
  await look();
  worlds.drop(REF);
  await look();
  assert.equal(verifier.findingsOf("world-uid"), undefined);
  assert.deepEqual(samples, ["verified 3", "damaged 1", "damaged 0"]);
});

test("turns come once per interval and are spread over it", () => {
  fc.assert(
    fc.property(fc.uuid(), fc.integer({ min: 1, max: DAY }), fc.nat(2 ** 40), (uid, intervalMs, now) => {
      const turn = turnOf(uid, { now, intervalMs });
      assert.equal(turnOf(uid, { now: now + intervalMs, intervalMs }), turn + 1);
    }),
  );
  const minutes = 24 * 60;
  const begins = Array.from({ length: 1_000 }, (_, index) => {
    const uid = `0b6ff8a2-0000-4000-8000-${index.toString(16).padStart(12, "0")}`;
    const first = turnOf(uid, { now: T0, intervalMs: DAY });
    for (let minute = 1; minute < minutes; minute++) {
      if (turnOf(uid, { now: T0 + minute * 60_000, intervalMs: DAY }) !== first) return minute;
    }
    return minutes;
  });
  for (let quarter = 0; quarter < 4; quarter++) {
    const share = begins.filter((minute) => Math.floor((minute * 4) / (minutes + 1)) === quarter).length;
    assert.ok(share > 200 && share < 300, `${share} of 1000 in quarter ${quarter}`);
  }
});
