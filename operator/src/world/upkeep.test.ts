import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxStatus, WorldRescue } from "@agentworlds/crds";
import { at, runtimeOf, versionOf } from "../runtime/test-objects.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

/** Passes until the World rests, so that a test begins with a settled one. */
async function settled(options: Parameters<typeof worldParts>[0] = {}) {
  const parts = worldParts(options);
  assert.deepEqual(await parts.pass(), {});
  parts.registry.writes.length = 0;
  parts.registry.reads.length = 0;
  parts.events.length = 0;
  return parts;
}

test("every listed version gets its tag, not only head: one that was missed before the next commit is made up for", async () => {
  const parts = worldParts();
  await parts.pass();
  assert.deepEqual(parts.registry.writes, ["tag v0", "tag v1", "tag v2", "tag latest"]);
  for (const { version, digest } of parts.versions) assert.equal(parts.registry.tags.get(`v${version}`), digest);
});

test("a settled World costs one listing and two reads, and no write", async () => {
  const parts = await settled({ newest: 9 });
  const writes = parts.worlds.writes.length;
  assert.deepEqual(await parts.pass(), {});
  assert.deepEqual(parts.registry.reads, ["v9", "latest"]);
  assert.deepEqual(parts.registry.writes, []);
  assert.equal(parts.worlds.writes.length, writes);
});

test("a listing that fails is not read as empty: nothing is tagged, and the World stays Ready", async () => {
  const parts = worldParts();
  parts.registry.failing.set("tags", "Unavailable");
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 60_000 });
  assert.deepEqual(parts.registry.writes, []);
  assert.equal(parts.condition("TagsNotRepaired")?.reason, "RegistryUnavailable");
  assert.equal(parts.condition("Ready")?.status, "True");
  assert.equal(parts.condition("HeadAvailable")?.status, "True", "head was read");
});

test("a tag that names another digest is never overwritten: it becomes a condition and an Event, and latest does not move", async () => {
  const parts = worldParts();
  const theirs = parts.versions[0]?.digest;
  assert.ok(theirs);
  parts.registry.tags.set("v2", theirs);
  await parts.pass();
  assert.equal(parts.registry.tags.get("v2"), theirs);
  assert.equal(parts.registry.tags.get("latest"), undefined);
  assert.match(parts.condition("TagTaken")?.message ?? "", /tag v2 names sha256:.* not overwritten/);
  assert.equal(parts.condition("HeadAvailable")?.status, "True", "the manifest is there all the same");
  assert.deepEqual(parts.reasons(), ["TagTaken"]);
});

test("a stale pass never moves latest back: head is read afresh right before", async () => {
  const parts = await settled();
  const stale = parts.world();
  assert.ok(stale);
  const newer = versionOf(3, { digest: parts.head.digest.replace(/.$/, "0") as typeof parts.head.digest });
  parts.change((world) => ({
    ...world,
    status: { ...world.status, head: { version: 3, digest: newer.digest, image: "x" }, nextVersion: 4 },
  }));
  const bytes = new TextEncoder().encode('{"mediaType":"application/vnd.oci.image.manifest.v1+json","number":3}');
  await parts.registry.client.putManifest(
    "",
    { reference: "latest", mediaType: "", bytes },
    new AbortController().signal,
  );
  const latest = parts.registry.tags.get("latest");
  parts.registry.writes.length = 0;
  parts.showCached({ world: stale });
  await parts.pass();
  assert.deepEqual(parts.registry.writes, []);
  assert.equal(parts.registry.tags.get("latest"), latest);
});

test("a head that the registry does not have: HeadAvailable and Ready are False, with an Event, and they heal", async () => {
  const parts = await settled();
  const bytes = parts.registry.manifests.get(parts.head.digest);
  assert.ok(bytes);
  await parts.registry.client.deleteManifest("", parts.head.digest, new AbortController().signal);
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 60_000 });
  assert.equal(parts.condition("HeadAvailable")?.reason, "HeadNotFound");
  assert.equal(parts.condition("Ready")?.status, "False");
  assert.deepEqual(parts.reasons(), ["HeadNotFound"]);
  parts.registry.manifests.set(parts.head.digest, bytes);
  assert.deepEqual(await parts.pass(), {});
  assert.equal(parts.condition("Ready")?.status, "True");
  assert.deepEqual(parts.reasons(), ["HeadNotFound", "HeadAvailable"]);
});

test("a registry that does not answer leaves the World Ready: HeadAvailable is Unknown", async () => {
  const parts = await settled();
  parts.registry.failing.set("v2", "Unavailable");
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 60_000 });
  assert.equal(parts.condition("HeadAvailable")?.status, "Unknown");
  assert.equal(parts.condition("Ready")?.status, "True");
  assert.deepEqual(parts.reasons(), ["RegistryUnavailable"]);
  const writes = parts.worlds.writes.length;
  await parts.pass();
  assert.equal(parts.worlds.writes.length, writes, "the same finding is not written again");
});

const keepOne = { spec: { retention: { keepVersions: 1 } } };

test("versions beyond the limit leave, and the Event says which stay beyond it and why", async () => {
  const parts = worldParts({ newest: 3, world: { spec: { retention: { keepVersions: 1, pinned: [1] } } } });
  await parts.pass();
  const { versions, prunedVersions } = parts.world()?.status ?? {};
  assert.deepEqual(
    versions?.map(({ version }) => version),
    [1, 3],
  );
  assert.deepEqual(
    prunedVersions?.map(({ version, deletedAt }) => [version, deletedAt]),
    [
      [0, at(0)],
      [2, at(0)],
    ],
  );
  assert.equal(
    parts.events.find(({ reason }) => reason === "Pruned")?.message,
    "versions 0, 2 go: spec.retention.keepVersions is 1; kept beyond it: 1 (Pinned)",
  );
});

test("one version that goes is told as one", async () => {
  const parts = worldParts({ newest: 1, world: keepOne });
  await parts.pass();
  assert.equal(
    parts.events.find(({ reason }) => reason === "Pruned")?.message,
    "version 0 goes: spec.retention.keepVersions is 1",
  );
});

test("a boot that the cache does not show yet protects its version", async () => {
  const parts = worldParts({
    newest: 3,
    world: keepOne,
    sandboxes: [{ spec: { world: { name: "lab" } } }],
  });
  const [, booted] = parts.versions;
  assert.ok(booted);
  const found = parts.sandboxes.peek({ namespace: "team", name: "one" });
  assert.ok(found);
  parts.showCached({ sandboxes: [found] });
  const from = { version: 1, digest: booted.digest };
  const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
  parts.sandboxes.put({ ...found, status: { ...found.status, boot: 1, compute, bootedFrom: from, base: from } });
  await parts.pass();
  assert.deepEqual(
    parts.world()?.status.versions?.map(({ version }) => version),
    [1, 3],
  );
  assert.ok(parts.registry.manifests.has(booted.digest));
});

test("a holder that has not recorded what it boots from: nothing leaves", async () => {
  const holder = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };
  const parts = worldParts({ newest: 3, world: { ...keepOne, status: { holder } }, sandboxes: [{}] });
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 30_000 });
  assert.equal(parts.world()?.status.versions?.length, 4);
});

test("a version that a waiting Sandbox names stays until it has booted", async () => {
  const parts = worldParts({
    newest: 3,
    world: keepOne,
    sandboxes: [{ spec: { world: { name: "lab", version: 1 }, closePolicy: "Discard" } }],
  });
  await parts.pass();
  assert.deepEqual(
    parts.world()?.status.versions?.map(({ version }) => version),
    [1, 3],
  );
});

test("a pruned digest that is still in use is not deleted and not said to be", async () => {
  const parts = worldParts({ newest: 2, sandboxes: [{ spec: { world: { name: "lab" } } }] });
  const [oldest, ...listed] = parts.versions;
  assert.ok(oldest);
  const from = { version: 0, digest: oldest.digest };
  const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
  const found = parts.sandboxes.peek({ namespace: "team", name: "one" });
  assert.ok(found);
  parts.sandboxes.put({ ...found, status: { ...found.status, boot: 1, compute, bootedFrom: from } });
  const pruned = { ...from, prunedAt: at(1), reason: "BeyondKeepVersions" };
  parts.change((world) => ({ ...world, status: { ...world.status, versions: listed, prunedVersions: [pruned] } }));
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 600_000 });
  assert.equal(parts.world()?.status.prunedVersions?.[0]?.deletedAt, undefined);
  assert.ok(parts.registry.manifests.has(oldest.digest));
  parts.sandboxes.drop({ namespace: "team", name: "one" });
  await parts.pass();
  assert.equal(parts.world()?.status.prunedVersions?.[0]?.deletedAt, at(0));
  assert.ok(!parts.registry.manifests.has(oldest.digest));
});

test("with keepVersions 0 the list holds the newest 64; what leaves it stays in the registry under its tag", async () => {
  const parts = worldParts({ newest: 65, world: { spec: { retention: { keepVersions: 0 } } } });
  await parts.pass();
  assert.equal(parts.world()?.status.versions?.length, 66, "their tags have not been seen yet");
  await parts.pass();
  const { versions, prunedVersions = [] } = parts.world()?.status ?? {};
  assert.equal(versions?.length, 64);
  assert.equal(versions?.[0]?.version, 2);
  assert.deepEqual(prunedVersions, []);
  const [oldest] = parts.versions;
  assert.ok(oldest && parts.registry.manifests.has(oldest.digest));
  assert.equal(parts.registry.tags.get("v0"), oldest.digest);
  assert.equal(
    parts.events.find(({ reason }) => reason === "Unlisted")?.message,
    "versions 0, 1 are in the registry only: status.versions lists the newest 64 and those that are pinned or in use",
  );
});

test("a registry that refuses every deletion fills no list", async () => {
  const pruned = Array.from({ length: 64 }, (_, number) => ({
    version: number,
    digest: versionOf(number).digest,
    prunedAt: at(0),
    reason: "BeyondKeepVersions",
  }));
  const parts = worldParts({ newest: 65, world: keepOne });
  for (const { digest } of pruned) parts.registry.failing.set(`delete ${digest}`, "Refused");
  parts.change((world) => ({ ...world, status: { ...world.status, prunedVersions: pruned } }));
  await parts.pass();
  await parts.pass();
  assert.equal(parts.world()?.status.versions?.length, 64);
  assert.equal(parts.condition("PrunedNotDeleted")?.reason, "RegistryRefused");
});

const gaveUp = { reason: "BootTimedOut", outcome: "Discarded", message: "not Ready in time", at: at(900) } as const;
const wanting: [name: string, status: Partial<SandboxStatus>, stays: boolean][] = [
  ["has not booted yet", {}, true],
  ["has been given up and is tried again", { boot: 2, failedBoots: 2, lastEnding: { ...gaveUp, boot: 2 } }, true],
  ["was Ready once: a wake boots from head", { boot: 1, lastEnding: { ...gaveUp, boot: 1 } }, false],
  ["is closed", { closed: { at: at(1) } }, false],
];
for (const [name, status, stays] of wanting) {
  test(`the version that a session wants by number ${stays ? "stays" : "goes"}: it ${name}`, async () => {
    const spec = { world: { name: "lab", version: 1 } };
    const parts = worldParts({ newest: 3, world: keepOne, sandboxes: [{ spec, status }] });
    await parts.pass();
    assert.deepEqual(
      parts.world()?.status.versions?.map(({ version }) => version),
      stays ? [1, 3] : [3],
    );
  });
}

test("a version that a rescue has become stays listed until the rescue is over: its work would count as unpublished", async () => {
  const parts = worldParts({ newest: 3, world: keepOne });
  const kept: WorldRescue = { ...rescue, operation: "operation-1" };
  parts.change((world) => ({ ...world, status: { ...world.status, rescues: [kept] } }));
  await parts.pass();
  assert.deepEqual(
    parts.world()?.status.versions?.map(({ version }) => version),
    [1, 3],
  );
});

const rescue: WorldRescue = {
  operation: "publish-1",
  sandbox: { name: "one", uid: "sandbox-uid" },
  runtime: "local",
  host: "a",
  computeId: "aw-sandbox-uid-1",
  reason: "SnapshotFailed",
  message: "the registry did not answer",
  since: at(1),
};

test("the version that rescued work was booted from stays, although its session has no compute any more", async () => {
  const parts = worldParts({ newest: 3, world: keepOne, sandboxes: [{ status: { boot: 1 } }] });
  const [, booted] = parts.versions;
  assert.ok(booted);
  const kept = { ...rescue, base: parts.head.digest, bootedFrom: booted.digest };
  parts.change((world) => ({ ...world, status: { ...world.status, rescues: [kept] } }));
  await parts.pass();
  assert.deepEqual(
    parts.world()?.status.versions?.map(({ version }) => version),
    [1, 3],
  );
  assert.ok(parts.registry.manifests.has(booted.digest));
});

test("a version that work is based on which only a Runtime has a record of stays, too", async () => {
  const [, booted] = worldParts({ newest: 3 }).versions;
  assert.ok(booted);
  const { runtime, ...record } = rescue;
  const kept = { ...record, namespace: "team", world: "lab", base: booted.digest };
  const keeper = runtimeOf({ metadata: { name: runtime }, status: { rescues: [kept] } });
  const parts = worldParts({ newest: 3, world: keepOne, runtimes: [keeper] });
  await parts.pass();
  assert.deepEqual(
    parts.world()?.status.versions?.map(({ version }) => version),
    [1, 3],
  );
});

test("a session that has just ended as a rescue, which the cache does not show yet: its version is not deleted", async () => {
  const parts = await settled({ newest: 2, sandboxes: [{ status: { boot: 1 } }] });
  const [oldest, ...listed] = parts.versions;
  assert.ok(oldest);
  const pruned = { version: 0, digest: oldest.digest, prunedAt: at(1), reason: "BeyondKeepVersions" };
  parts.change((world) => ({ ...world, status: { ...world.status, versions: listed, prunedVersions: [pruned] } }));
  const before = parts.world();
  assert.ok(before);
  parts.showCached({ world: before });
  const kept = { ...rescue, base: parts.head.digest, bootedFrom: oldest.digest };
  parts.change((world) => ({ ...world, status: { ...world.status, rescues: [kept] } }));
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 30_000 });
  assert.ok(parts.registry.manifests.has(oldest.digest));
});

test("a registry that refuses to delete is told, and what was deleted before it is recorded", async () => {
  const parts = worldParts({ newest: 3, world: keepOne });
  parts.registry.failing.set(`delete ${parts.versions[1]?.digest}`, "Refused");
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 60_000 });
  assert.equal(parts.condition("PrunedNotDeleted")?.reason, "RegistryRefused");
  assert.deepEqual(
    parts.world()?.status.prunedVersions?.map(({ deletedAt }) => deletedAt),
    [at(0), undefined, undefined],
  );
});
