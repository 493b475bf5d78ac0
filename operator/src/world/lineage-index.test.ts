/** The index of lineages: each World is in it before it has a byte, and out of it only after its versions are gone. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Waiting } from "../reconciler/policy.ts";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { digestOf } from "../registry/digest.ts";
import { runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { deleting, REPOSITORY, worldParts } from "./world-parts.test-kit.ts";

type Parts = ReturnType<typeof worldParts>;

const INDEX = "worlds/install/team/lab/lineages";
const ENTRY = "world-ui";
const HOUR = 3_600_000;

const indexOf = ({ registries }: Parts) => registries.repository(INDEX);
const entriesOf = (parts: Parts): string[] => [...indexOf(parts).tags.keys()];

/** A World that has just been made. */
function made(): Parts {
  const runtime = runtimeOf({ spec: { selection: "Default" }, status: { platform: "linux/amd64" } });
  const parts = worldParts({ history: [], runtimes: [runtime], image: "Offered" });
  parts.change((world) => ({ ...world, status: { observedGeneration: -1 } }));
  return parts;
}

/** A World with versions that rests. */
async function settled(options: Parameters<typeof worldParts>[0] = {}): Promise<Parts> {
  const parts = worldParts(options);
  assert.deepEqual(await parts.pass(), {});
  return parts;
}

test("a World is in the index before the first byte goes to its repository", async () => {
  const parts = made();
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 0);
  const { writes } = parts.registries;
  const entered = writes.indexOf(`${INDEX} manifest ${ENTRY}`);
  const published = writes.findIndex((write) => write.startsWith(`${REPOSITORY} `));
  assert.ok(entered >= 0 && entered < published, writes.join("\n"));
});

test("an entry is an OCI artifact without content that names its World and repository, and no two are alike", async () => {
  const parts = made();
  await parts.pass();
  const { manifest, bytes } = await indexOf(parts).client.getManifest(INDEX, ENTRY, AbortSignal.timeout(1_000));
  const empty = { mediaType: MEDIA_TYPES.ociEmpty, digest: digestOf(new TextEncoder().encode("{}")), size: 2 };
  assert.deepEqual(JSON.parse(new TextDecoder().decode(bytes)), {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociManifest,
    artifactType: "application/vnd.agentworlds.lineage.v1",
    config: empty,
    layers: [empty],
    annotations: {
      "dev.agentworlds.world": "team/lab",
      "dev.agentworlds.world-uid": "world-uid",
      "dev.agentworlds.repository": REPOSITORY,
    },
  });
  assert.equal(manifest.kind, "image");
  assert.deepEqual([...indexOf(parts).blobs.keys()], [empty.digest]);
});

test("an operator that dies before any write of a genesis is followed by one that enters the World once", async () => {
  const whole = made();
  await whole.pass();
  for (let index = 0; index < whole.registries.writes.length; index++) {
    const parts = made();
    parts.registries.diesAt = index;
    await assert.rejects(async () => await parts.pass());
    assert.equal(parts.registries.diesAt, undefined, "it died there");
    await parts.pass();
    assert.deepEqual(entriesOf(parts), [ENTRY], `killed at write ${index}`);
    assert.equal(indexOf(parts).manifests.size, 1);
    assert.equal(parts.world()?.status.head?.digest, whole.world()?.status.head?.digest);
  }
});

for (const failing of ["tags", ENTRY]) {
  test(`while the index fails (${failing}) nothing is published: the World waits by name`, async () => {
    const parts = made();
    indexOf(parts).failing.set(failing, "Unavailable");
    const end = await parts.pass();
    assert.ok(end instanceof Waiting && end.reason === "RegistryUnavailable");
    assert.equal(parts.registry.manifests.size, 0);
    indexOf(parts).failing.clear();
    await parts.pass();
    assert.deepEqual(entriesOf(parts), [ENTRY]);
  });
}

test("a World that is older than the index is entered by its next pass, and asks no more after that", async () => {
  const parts = await settled();
  assert.deepEqual(entriesOf(parts), [ENTRY]);
  const { listings } = indexOf(parts);
  const writes = parts.worlds.writes.length;
  await parts.pass();
  await parts.clock.advance(23 * HOUR);
  await parts.pass();
  assert.equal(indexOf(parts).listings, listings);
  assert.equal(parts.worlds.writes.length, writes);
});

test("an entry that was lost is made anew within a day", async () => {
  const parts = await settled();
  indexOf(parts).tags.clear();
  await parts.clock.advance(24 * HOUR);
  assert.deepEqual(await parts.pass(), {});
  assert.deepEqual(entriesOf(parts), [ENTRY]);
});

test("an entry that is there is left as it is, whatever it says", async () => {
  const parts = worldParts();
  const other = digestOf(new TextEncoder().encode("of a later operator"));
  indexOf(parts).tags.set(ENTRY, other);
  await parts.pass();
  assert.equal(indexOf(parts).tags.get(ENTRY), other);
  assert.deepEqual(indexOf(parts).writes, []);
});

test("an index that refuses a World with versions is a condition: the World stays Ready, and is entered when it can be", async () => {
  const parts = worldParts();
  indexOf(parts).failing.set(ENTRY, "Refused");
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 60_000 });
  assert.equal(parts.condition("LineageNotIndexed")?.reason, "RegistryRefused");
  assert.equal(parts.condition("Ready")?.status, "True");
  indexOf(parts).failing.clear();
  assert.deepEqual(await parts.pass(), {});
  assert.equal(parts.condition("LineageNotIndexed"), undefined);
  assert.deepEqual(entriesOf(parts), [ENTRY]);
});

test("a World made again under its name is another one: it is entered though the operator has seen the first", async () => {
  const parts = await settled();
  indexOf(parts).tags.clear();
  parts.change((world) => ({ ...world, metadata: { ...world.metadata, uid: "99999999-new" } }));
  parts.change((world) => ({ ...world, status: { ...world.status, repository: `127.0.0.1:5055/${NEW}` } }));
  await parts.pass();
  assert.deepEqual(entriesOf(parts), ["99999999"]);
});
const NEW = REPOSITORY.replace(ENTRY, "99999999");

test("deletionPolicy Delete: the entry goes after the last version, and other Worlds' entries stay", async () => {
  const parts = await settled();
  const other = digestOf(new TextEncoder().encode("other"));
  indexOf(parts).tags.set("0a1b2c3d", other);
  parts.change((world) => ({
    ...world,
    spec: { ...world.spec, deletionPolicy: "Delete" },
    metadata: { ...world.metadata, ...deleting },
  }));
  const before = parts.registries.writes.length;
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.deepEqual(entriesOf(parts), ["0a1b2c3d"]);
  const deletions = parts.registries.writes.slice(before).map((write) => write.split(" ")[0]);
  assert.deepEqual(deletions, [REPOSITORY, REPOSITORY, REPOSITORY, INDEX]);
});

test("deletionPolicy Delete: an entry with other bytes than this operator writes goes as well", async () => {
  const parts = worldParts({ world: { metadata: deleting, spec: { deletionPolicy: "Delete" } } });
  const bytes = new TextEncoder().encode("{}");
  await indexOf(parts).client.putManifest(
    INDEX,
    { reference: ENTRY, mediaType: MEDIA_TYPES.ociManifest, bytes },
    AbortSignal.timeout(1_000),
  );
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.deepEqual(entriesOf(parts), []);
});

test("while a version cannot be deleted the entry stays: what is there is found by the next World of the name", async () => {
  const parts = await settled({ world: { spec: { deletionPolicy: "Delete" } } });
  parts.registry.failing.set(`delete ${parts.head.digest}`, "Unavailable");
  parts.change((world) => ({ ...world, metadata: { ...world.metadata, ...deleting } }));
  assert.ok((await parts.pass()) instanceof Waiting);
  assert.deepEqual(entriesOf(parts), [ENTRY]);
});

test("deletionPolicy Retain keeps the entry with the versions", async () => {
  const parts = await settled();
  parts.change((world) => ({ ...world, metadata: { ...world.metadata, ...deleting } }));
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.deepEqual(entriesOf(parts), [ENTRY]);
});
