import assert from "node:assert/strict";
import { test } from "node:test";
import type { World, WorldStatus } from "@agentworlds/crds";
import { at } from "../runtime/test-objects.test-kit.ts";
import { judgeHold, judgeReservation } from "./lineage.ts";
import { type PublishedVersion, publishedHistory, publishedVersion, putHistory } from "./published-history.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

type Parts = ReturnType<typeof worldParts>;

const genesis = { image: "busybox:1", digest: `sha256:${"9".repeat(64)}`, platform: "linux/amd64" } as const;
const backup = publishedHistory([0, 1, 2]);
const atBackup = backup[2];
assert.ok(atBackup);
const since = publishedHistory([3, 5], { parent: atBackup.digest });
const newest = since[1];
assert.ok(newest);

/** A World as etcd was restored: it knows versions 0 to 2, and the registry has 3 and 5 besides. */
function restored(more: readonly PublishedVersion[] = since, status: Partial<WorldStatus> = {}): Parts {
  const parts = worldParts({ history: backup, world: { status: { genesis, ...status } } });
  putHistory(parts.registry, more);
  return parts;
}

const annotate = (parts: Parts, value: string): void =>
  parts.change((world: World) => ({
    ...world,
    metadata: { ...world.metadata, annotations: { "agentworlds.dev/adopt-head": value } },
  }));

test("the World says which version the registry has, and how to adopt it; nothing boots and nothing is published", async () => {
  const parts = restored();
  await parts.pass();
  const { status } = parts.world() ?? {};
  assert.ok(status);
  assert.deepEqual(status.registryHead, { version: 5, digest: newest.digest });
  assert.equal(parts.condition("Ready")?.reason, "HeadBehindRegistry");
  const condition = parts.condition("HeadBehindRegistry");
  assert.ok(condition?.message.includes(`agentworlds.dev/adopt-head=${newest.digest}`), condition?.message);
  assert.deepEqual(parts.reasons(), ["HeadBehindRegistry"]);
  const claim = { sandbox: "one", uid: "one-uid", causedBy: { user: "ada" }, at: at(9) };
  assert.deepEqual(judgeHold(status, claim).kind, "refused");
  const request = { operation: "op", sandbox: { name: "one", uid: "one-uid" }, base: atBackup.digest, at: at(9) };
  const holder = { sandbox: "one", uid: "one-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };
  const verdict = judgeReservation({ ...status, holder }, request);
  assert.equal(verdict.kind === "refused" && verdict.reason, "HeadBehindRegistry");
});

test("neither tags nor versions are touched while it is open which version is head, and the World rests", async () => {
  const parts = restored();
  parts.change((world) => ({ ...world, spec: { ...world.spec, retention: { keepVersions: 1 } } }));
  await parts.pass();
  assert.deepEqual(parts.registry.writes, []);
  assert.equal(parts.registry.tags.get("latest"), newest.digest);
  const writes = parts.worlds.writes.length;
  const end = await parts.pass();
  assert.equal(parts.worlds.writes.length, writes);
  assert.deepEqual(end, { requeueAfterMs: 300_000 });
});

test("the annotation that names the newest version adopts it: the missing versions are listed, and head is the newest", async () => {
  const pending = { operation: "op", version: 3, base: atBackup.digest, since: at(9) };
  const parts = restored(since, { pending });
  await parts.pass();
  annotate(parts, newest.digest);
  await parts.pass();
  const { status } = parts.world() ?? {};
  assert.deepEqual(
    status?.versions,
    [...backup, ...since].map(({ entry }) => entry),
  );
  assert.deepEqual([status?.head?.digest, status?.nextVersion, status?.registryHead], [newest.digest, 6, undefined]);
  assert.equal(status?.pending, undefined, "a reservation on the old head is void");
  assert.equal(parts.condition("Ready")?.status, "True");
  assert.equal(parts.condition("HeadBehindRegistry"), undefined);
  assert.ok(parts.reasons().includes("HeadAdopted"));
});

for (const [name, value] of [
  ["head", atBackup.digest],
  ["a version that is not the newest", since[0]?.digest ?? ""],
  ["no digest", "newest"],
] as const) {
  test(`an annotation that names ${name} adopts nothing`, async () => {
    const parts = restored();
    annotate(parts, value);
    await parts.pass();
    assert.equal(parts.world()?.status.head?.version, 2);
    assert.equal(parts.world()?.status.registryHead?.version, 5);
  });
}

test("the annotation of an adoption that is done changes nothing later", async () => {
  const parts = restored();
  annotate(parts, newest.digest);
  await parts.pass();
  const writes = parts.worlds.writes.length;
  await parts.pass();
  assert.equal(parts.worlds.writes.length, writes);
});

for (const written of [true, false]) {
  test(`an operator that dies at the adopting write (${written ? "after" : "before"} it) is followed by one that adopts once`, async () => {
    const parts = restored();
    await parts.pass();
    annotate(parts, newest.digest);
    parts.worlds.loseNextAnswer(written);
    await assert.rejects(async () => {
      const end = await parts.pass();
      if (end instanceof Error) throw end;
    });
    await parts.pass();
    const { status } = parts.world() ?? {};
    assert.deepEqual(
      status?.versions?.map(({ version }) => version),
      [0, 1, 2, 3, 5],
    );
    assert.equal(status?.head?.version, 5);
  });
}

test("a commit that the cache does not show yet is no newer version", async () => {
  const parts = restored();
  const stale = parts.world();
  assert.ok(stale);
  parts.change((world) => ({
    ...world,
    status: { ...world.status, head: { version: 5, digest: newest.digest, image: "x" }, nextVersion: 6 },
  }));
  parts.showCached({ world: stale });
  await parts.pass();
  assert.equal(parts.world()?.status.registryHead, undefined);
});

test("somebody else's images under newer tags are not newer versions", async () => {
  const parts = restored(publishedHistory([7, 8], { uid: "stranger" }));
  await parts.pass();
  assert.equal(parts.world()?.status.registryHead, undefined);
  assert.equal(parts.condition("Ready")?.status, "True");
});

const contradictions: [name: string, more: readonly PublishedVersion[]][] = [
  ["derives from an older version than head", [publishedVersion(3, { parent: backup[1]?.digest })]],
  ["derives from an older version, a number later", [publishedVersion(4, { parent: backup[1]?.digest })]],
  ["derives from nothing", [publishedVersion(3)]],
];
for (const [name, more] of contradictions) {
  test(`a newer version that ${name} cannot be adopted: nothing boots until the registry is put right`, async () => {
    const parts = restored(more);
    annotate(parts, more[0]?.digest ?? "");
    await parts.pass();
    assert.deepEqual(parts.world()?.status.registryHead, { version: more[0]?.number });
    assert.equal(parts.world()?.status.head?.version, 2);
    assert.equal(parts.condition("Ready")?.status, "False");
  });
}

test("a newer tag whose manifest is lost: nothing boots, for it may have been head", async () => {
  const parts = restored();
  parts.registry.manifests.delete(newest.digest);
  await parts.pass();
  assert.deepEqual(parts.world()?.status.registryHead, { version: 5 });
});

test("a version that is newer stays newer when only its tag is gone; when its manifest is gone too, head is the newest again", async () => {
  const parts = restored();
  await parts.pass();
  for (const { number } of since) parts.registry.tags.delete(`v${number}`);
  await parts.pass();
  assert.equal(parts.world()?.status.registryHead?.version, 5);
  parts.registry.manifests.delete(newest.digest);
  await parts.pass();
  assert.equal(parts.world()?.status.registryHead, undefined);
  assert.equal(parts.condition("Ready")?.status, "True");
});

test("a registry that stops answering takes nothing back of what was seen", async () => {
  const parts = restored();
  await parts.pass();
  parts.registry.failing.set("tags", "Unavailable");
  await parts.pass();
  assert.equal(parts.world()?.status.registryHead?.version, 5);
  assert.equal(parts.condition("HeadBehindRegistry")?.status, "True");
});

test("a newest version that turns out to be another keeps no digest of the one before", async () => {
  const parts = restored();
  await parts.pass();
  parts.registry.manifests.delete(newest.digest);
  await parts.pass();
  assert.deepEqual(parts.world()?.status.registryHead, { version: 5 });
});
