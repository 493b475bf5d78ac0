import assert from "node:assert/strict";
import { test } from "node:test";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { worldRepository } from "../registry/installation.ts";
import { runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { type PublishedVersion, publishedHistory, putHistory } from "./published-history.test-kit.ts";
import { REPOSITORY, worldParts } from "./world-parts.test-kit.ts";

type Parts = ReturnType<typeof worldParts>;

const OLD = worldRepository("worlds", {
  installation: "install",
  namespace: "team",
  world: "lab",
  uid: "0a1b2c3d-old",
});
const INDEX = "worlds/install/team/lab/lineages";
const history = publishedHistory([0, 1, 3], { uid: "0a1b2c3d-old" });
const newest = history[2];
assert.ok(newest);
const oldest = history[0];
assert.ok(oldest);

/** A World that is to adopt what an earlier one left. */
function adopting(
  options: { name?: string; left?: readonly PublishedVersion[]; runtimes?: Parameters<typeof runtimeOf>[0][] } = {},
): Parts {
  const parts = worldParts({
    history: [],
    runtimes: (options.runtimes ?? []).map(runtimeOf),
    world: { spec: { from: { repository: { name: options.name ?? `127.0.0.1:5055/${OLD}` } } } },
  });
  parts.change((world) => ({ ...world, status: { observedGeneration: -1 } }));
  putHistory(parts.registries.repository(OLD), options.left ?? history);
  return parts;
}

const tagsOf = (parts: Parts, repository = REPOSITORY) =>
  Object.fromEntries([...parts.registries.repository(repository).tags].sort());
const TAGS = { latest: newest.digest, v0: oldest.digest, v1: history[1]?.digest, v3: newest.digest };

test("the versions are in the own repository under the same numbers and digests, and the newest is head", async () => {
  const parts = adopting();
  await parts.pass();
  const { status } = parts.world() ?? {};
  assert.deepEqual(
    status?.versions,
    history.map(({ entry }) => entry),
  );
  assert.deepEqual(status?.head, {
    version: 3,
    digest: newest.digest,
    image: `127.0.0.1:5055/${REPOSITORY}@${newest.digest}`,
  });
  assert.equal(status?.nextVersion, 4);
  assert.deepEqual(status?.genesis, {
    image: "busybox:1",
    digest: `sha256:${"9".repeat(64)}`,
    platform: "linux/amd64",
  });
  assert.deepEqual(tagsOf(parts), TAGS);
  assert.equal(parts.condition("Ready")?.status, "True");
  assert.ok(parts.reasons().includes("LineageAdopted"));
  assert.ok(
    parts.registries.writes.every((write) => write.startsWith(`${REPOSITORY} `) || write.startsWith(`${INDEX} `)),
    "the old one stays as it is",
  );
});

test("blobs are mounted; where the registry would not, they are copied", async () => {
  const mounted = adopting();
  await mounted.pass();
  assert.ok(mounted.registries.writes.some((write) => write.includes(" mount ")));
  assert.ok(mounted.registries.writes.every((write) => !write.startsWith(`${REPOSITORY} blob `)));
  const copied = adopting();
  copied.registries.mounts = "Refused";
  await copied.pass();
  assert.ok(copied.registries.writes.every((write) => !write.includes(" mount ")));
  assert.deepEqual([...copied.registry.blobs.keys()].sort(), [...mounted.registry.blobs.keys()].sort());
});

test("an adoption enters the World in the index before it copies, and leaves the earlier one's entry", async () => {
  const parts = adopting();
  await parts.pass();
  const { writes } = parts.registries;
  const entered = writes.indexOf(`${INDEX} manifest ${REPOSITORY.slice(-8)}`);
  const copied = writes.findIndex((write) => write.startsWith(`${REPOSITORY} `));
  assert.ok(entered >= 0 && entered < copied, writes.join("\n"));
});

test("the registry's host may be left out of the name", async () => {
  const parts = adopting({ name: OLD });
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 3);
});

const refused: [name: string, repository: string][] = [
  ["another namespace", OLD.replace("/team/", "/other/")],
  ["another installation", OLD.replace("/install/", "/another/")],
  ["another prefix", OLD.replace("worlds/", "images/")],
  ["another registry", `elsewhere.example/${OLD}`],
  ["something deeper", `${OLD}/deeper`],
  ["the index of lineages", INDEX],
  ["the namespace itself", "worlds/install/team"],
  ["the World's own repository", REPOSITORY],
];
for (const [name, repository] of refused) {
  test(`${name} is refused by name, and nothing is read there`, async () => {
    const parts = adopting({ name: repository });
    const end = await parts.pass();
    assert.ok(end instanceof Terminal);
    assert.equal(end.reason, "RepositoryNotAllowed");
    assert.deepEqual(parts.registries.repository(OLD).reads, []);
    assert.equal(parts.condition("Stalled")?.reason, "RepositoryNotAllowed");
  });
}

test("an operator that dies before any write is followed by one that adopts the same", async () => {
  const whole = adopting();
  whole.registries.mounts = "Refused";
  await whole.pass();
  const writes = whole.registries.writes.length;
  assert.ok(writes >= 10, `${writes} writes`);
  for (let index = 0; index < writes; index++) {
    const parts = adopting();
    parts.registries.mounts = "Refused";
    parts.registries.diesAt = index;
    await assert.rejects(async () => await parts.pass(), /died before/);
    assert.equal(parts.world()?.status.head, undefined, "nothing is head before everything is there");
    await parts.pass();
    assert.deepEqual(parts.world()?.status.versions, whole.world()?.status.versions, `killed at write ${index}`);
    assert.deepEqual(parts.world()?.status.head, whole.world()?.status.head);
    assert.deepEqual(tagsOf(parts), TAGS);
  }
});

for (const written of [true, false]) {
  test(`an operator that dies at the committing write (${written ? "after" : "before"} it) leaves one lineage`, async () => {
    const parts = adopting();
    parts.worlds.interfere(
      () => undefined,
      () => parts.worlds.loseNextAnswer(written),
    );
    await assert.rejects(async () => {
      const end = await parts.pass();
      if (end instanceof Error) throw end;
    });
    await parts.pass();
    assert.deepEqual(
      parts.world()?.status.versions,
      history.map(({ entry }) => entry),
    );
    assert.equal(parts.world()?.status.nextVersion, 4);
  });
}

test("an adopted World that loses its status is rebuilt from its own repository, also when the old one is gone", async () => {
  const parts = adopting();
  await parts.pass();
  const before = parts.world()?.status;
  parts.registries.repository(OLD).tags.clear();
  parts.registries.repository(OLD).manifests.clear();
  parts.change((world) => ({ ...world, status: { observedGeneration: -1 } }));
  await parts.pass();
  const after = parts.world()?.status;
  assert.deepEqual([after?.versions, after?.head, after?.genesis], [before?.versions, before?.head, before?.genesis]);
});

test("a newest version that is not whole is not adopted, and no older one in its place; what is missing is named", async () => {
  const parts = adopting();
  const lost = newest.manifest.layers.at(-1)?.digest ?? "";
  parts.registries.repository(OLD).blobs.delete(lost);
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "HeadDamaged");
  assert.ok(end.message.includes(lost), end.message);
  assert.equal(parts.world()?.status.head, undefined);
  assert.equal(tagsOf(parts)["latest"], undefined);
});

test("an older version that is not whole stays behind and is named", async () => {
  const parts = adopting();
  const middle = history[1];
  assert.ok(middle);
  parts.registries.repository(OLD).blobs.delete(middle.manifest.config.digest);
  await parts.pass();
  assert.deepEqual(
    parts.world()?.status.versions?.map(({ version }) => version),
    [0, 3],
  );
  const told = parts.events.find(({ reason }) => reason === "LineageAdopted");
  assert.ok(told?.message.includes(middle.digest), told?.message);
  assert.equal(told?.type, "Warning");
});

test("a repository without versions is waited for: a registry may be restored", async () => {
  const parts = adopting({ left: [] });
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "LineageNotFound");
});

test("a chain that contradicts itself is not adopted", async () => {
  const fork = publishedHistory([4], { uid: "0a1b2c3d-old", parent: oldest.digest });
  const end = await adopting({ left: [...history, ...fork] }).pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "LineageBroken");
});

test("somebody else's image under a version's tag is not overwritten", async () => {
  const parts = adopting();
  const stranger = publishedHistory([1], { uid: "stranger" });
  putHistory(parts.registry, stranger);
  parts.registry.tags.delete("latest");
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "TagTaken");
  assert.equal(parts.registry.tags.get("v1"), stranger[0]?.digest);
  assert.equal(parts.world()?.status.head, undefined);
});

test("work of the earlier World that a host still keeps is a rescue of this one: nothing boots over it unasked", async () => {
  const rescue = {
    operation: "op",
    namespace: "team",
    world: "lab",
    sandbox: { name: "one", uid: "one-uid" },
    host: "a",
    computeId: "aw-one-uid-1",
    reason: "SnapshotFailed",
    message: "the registry was down",
    since: "2026-01-01T00:00:00.000Z",
  };
  const parts = adopting({ runtimes: [{ status: { rescues: [rescue] } }] });
  await parts.pass();
  assert.deepEqual(
    parts.world()?.status.rescues?.map(({ computeId }) => computeId),
    ["aw-one-uid-1"],
  );
});

for (const failing of ["tags", "v3"]) {
  test(`a registry that does not answer for ${failing} is waited for`, async () => {
    const parts = adopting();
    parts.registries.repository(OLD).failing.set(failing, "Unavailable");
    const end = await parts.pass();
    assert.ok(end instanceof Waiting);
    assert.equal(end.reason, "RegistryUnavailable");
    parts.registries.repository(OLD).failing.clear();
    await parts.pass();
    assert.equal(parts.world()?.status.head?.version, 3);
  });
}
