import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type Descriptor,
  type Digest,
  type ImageManifest,
  MEDIA_TYPES,
  type RegistryClient,
} from "../registry/contract.ts";
import type { RegistryErrorCode } from "../registry/errors.ts";
import { MOST_LAYERS } from "../registry/layer-limit.ts";
import { digestOf } from "./image-config.ts";
import { MemoryRegistry } from "./memory-registry.test-kit.ts";
import {
  describedByParent,
  manifestOfVersion,
  ownerOfTag,
  putVersion,
  readBackVersion,
  repairTags,
  versionTag,
} from "./publish.ts";
import type { VersionFacts } from "./version-annotations.ts";

const { signal } = new AbortController();
const REPOSITORY = "worlds/install/team/lab-12345678";

const facts: VersionFacts = {
  operation: "publish-1",
  world: { namespace: "team", name: "lab", uid: "world-uid" },
  version: 7,
  parent: "sha256:parent",
  reason: "Deadline",
  consistency: "Frozen",
  description: 'a "tool"\nand prose',
  createdBy: { user: "ada" },
  causedBy: { user: "bob", agent: "coder", conversation: "c-1" },
  createdAt: "2026-01-01T00:00:00.000Z",
  genesis: { image: "busybox:1", digest: "sha256:genesis" },
};
const config = new TextEncoder().encode('{"config":"of the version"}');
const layerOf = (name: string, mediaType: string = MEDIA_TYPES.ociLayerGzip): Descriptor => {
  const bytes = new TextEncoder().encode(`layer ${name}`);
  return { mediaType, digest: digestOf(bytes), size: bytes.byteLength };
};
const read = (bytes: Uint8Array): ImageManifest => JSON.parse(new TextDecoder().decode(bytes));

test("a manifest carries who, why, when and from what, under the frozen names", () => {
  assert.deepEqual(read(manifestOfVersion(facts, { config, layers: [layerOf("a")] })), {
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: {
      mediaType: "application/vnd.oci.image.config.v1+json",
      digest: digestOf(config),
      size: config.byteLength,
    },
    layers: [layerOf("a")],
    annotations: {
      "dev.agentworlds.operation": "publish-1",
      "dev.agentworlds.world": "team/lab",
      "dev.agentworlds.world-uid": "world-uid",
      "dev.agentworlds.version": "7",
      "dev.agentworlds.parent": "sha256:parent",
      "dev.agentworlds.reason": "Deadline",
      "dev.agentworlds.created-by": '{"user":"ada"}',
      "dev.agentworlds.caused-by": '{"user":"bob","agent":"coder","conversation":"c-1"}',
      "dev.agentworlds.consistency": "Frozen",
      "dev.agentworlds.description": 'a "tool"\nand prose',
      "org.opencontainers.image.created": "2026-01-01T00:00:00.000Z",
      "org.opencontainers.image.base.name": "busybox:1",
      "org.opencontainers.image.base.digest": "sha256:genesis",
    },
  });
});

test("a genesis has no parent", () => {
  const { parent: _, ...genesis } = facts;
  const { annotations } = read(manifestOfVersion(genesis, { config, layers: [] }));
  assert.ok(annotations && !("dev.agentworlds.parent" in annotations));
});

const mediaTypes: [from: string, to: string | undefined][] = [
  [MEDIA_TYPES.dockerLayerGzip, MEDIA_TYPES.ociLayerGzip],
  [MEDIA_TYPES.ociLayerGzip, MEDIA_TYPES.ociLayerGzip],
  [MEDIA_TYPES.ociLayer, MEDIA_TYPES.ociLayer],
  [MEDIA_TYPES.ociLayerZstd, MEDIA_TYPES.ociLayerZstd],
  [MEDIA_TYPES.dockerConfig, undefined],
  ["application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", undefined],
  ["text/html", undefined],
];
for (const [from, to] of mediaTypes) {
  test(`a layer of type ${from} ${to === undefined ? "is refused" : `is published as ${to}`}`, () => {
    const make = () => manifestOfVersion(facts, { config, layers: [layerOf("a", from)] });
    if (to === undefined) assert.throws(make, { name: "PublicationError", code: "CaptureMalformed" });
    else assert.equal(read(make()).layers[0]?.mediaType, to);
  });
}

test("only what a layer is goes into the manifest: foreign urls and annotations stay out", () => {
  const layer = { ...layerOf("a"), urls: ["https://internal/"], annotations: { token: "secret" } };
  assert.deepEqual(read(manifestOfVersion(facts, { config, layers: [layer] })).layers, [layerOf("a")]);
});

test("a layer that was there before keeps its own media type: an engine calls all of them gzip", () => {
  const parent = [layerOf("plain", MEDIA_TYPES.ociLayer), layerOf("zstd", MEDIA_TYPES.ociLayerZstd), layerOf("gzip")];
  const pushed = [...parent.map((layer) => ({ ...layer, mediaType: MEDIA_TYPES.dockerLayerGzip })), layerOf("new")];
  const { layers } = read(manifestOfVersion(facts, { config, layers: describedByParent(pushed, parent) }));
  assert.deepEqual(layers, [...parent, layerOf("new")]);
});

test("as many layers as an engine boots are published, one more is refused", () => {
  const layers = Array.from({ length: MOST_LAYERS }, (_, index) => layerOf(String(index)));
  assert.equal(read(manifestOfVersion(facts, { config, layers })).layers.length, MOST_LAYERS);
  assert.throws(() => manifestOfVersion(facts, { config, layers: [...layers, layerOf("more")] }), {
    name: "PublicationError",
    code: "TooManyLayers",
  });
});

test("the same facts make the same bytes, so a retry makes the same digest; another number makes another", () => {
  const arbitrary = fc.record({
    version: fc.nat(1_000),
    description: fc.string({ unit: "grapheme", maxLength: 40 }),
    user: fc.string({ maxLength: 10 }),
    layers: fc.array(fc.string({ maxLength: 4 }), { maxLength: 5 }),
  });
  fc.assert(
    fc.property(arbitrary, ({ version, description, user, layers }) => {
      const make = (number: number) =>
        manifestOfVersion(
          { ...facts, version: number, description, causedBy: { user } },
          { config: Uint8Array.from(config), layers: layers.map((name) => layerOf(name)) },
        );
      assert.deepEqual(make(version), make(version));
      assert.notEqual(digestOf(make(version)), digestOf(make(version + 1)));
      assert.equal(read(make(version)).annotations?.["dev.agentworlds.description"], description);
    }),
  );
});

async function published(version = 7): Promise<{ registry: MemoryRegistry; client: RegistryClient; digest: Digest }> {
  const registry = new MemoryRegistry();
  const client = registry.client;
  const layers = [layerOf("a"), layerOf("b")];
  for (const name of ["a", "b"]) {
    await client.putBlob(REPOSITORY, new TextEncoder().encode(`layer ${name}`), signal);
  }
  const manifest = manifestOfVersion({ ...facts, version }, { config, layers });
  registry.writes.length = 0;
  const digest = await putVersion({ client, repository: REPOSITORY }, { manifest, config }, signal);
  return { registry, client, digest };
}

test("a version is put as config first, then manifest by digest, and under no tag", async () => {
  const { registry, digest } = await published();
  assert.deepEqual(registry.writes, [`blob ${digestOf(config)}`, `manifest ${digest}`]);
  assert.equal(registry.tags.size, 0);
});

test("a version that is whole reads back as its manifest", async () => {
  const { client, digest } = await published();
  assert.equal(
    (await readBackVersion({ client, repository: REPOSITORY }, digest, signal)).config.digest,
    digestOf(config),
  );
});

const broken: [name: string, damage: (registry: MemoryRegistry, digest: Digest) => void, want: object][] = [
  [
    "manifest is gone",
    (registry, digest) => registry.manifests.delete(digest),
    { name: "RegistryError", code: "NotFound" },
  ],
  [
    "manifest has other bytes",
    (registry, digest) => registry.manifests.set(digest, new TextEncoder().encode('{"mediaType":"x"}')),
    { code: "ReadBackFailed" },
  ],
  [
    "manifest is an index",
    (registry, digest) =>
      registry.manifests.set(digest, new TextEncoder().encode(`{"mediaType":"${MEDIA_TYPES.ociIndex}"}`)),
    { code: "ReadBackFailed" },
  ],
  [
    "config is gone",
    (registry) => registry.blobs.delete(digestOf(config)),
    { name: "RegistryError", code: "NotFound" },
  ],
  [
    "config has other bytes",
    (registry) => registry.blobs.set(digestOf(config), new Uint8Array()),
    { code: "DigestMismatch" },
  ],
  ["last layer is gone", (registry) => registry.blobs.delete(layerOf("b").digest), { code: "ReadBackFailed" }],
  [
    "first layer is cut",
    (registry) => registry.blobs.set(layerOf("a").digest, new Uint8Array(1)),
    { code: "ReadBackFailed" },
  ],
  [
    "registry does not answer",
    (registry) => registry.failing.set(layerOf("a").digest, "Unavailable"),
    { code: "Unavailable" },
  ],
];
for (const [name, damage, want] of broken) {
  test(`a version whose ${name} is not proven`, async () => {
    const { registry, client, digest } = await published();
    damage(registry, digest);
    await assert.rejects(readBackVersion({ client, repository: REPOSITORY }, digest, signal), want);
  });
}

const OTHER: Digest = `sha256:${"0".repeat(64)}`;
const plant = (registry: MemoryRegistry, tag: string): Digest => {
  const bytes = new TextEncoder().encode(`{"mediaType":"${MEDIA_TYPES.ociManifest}","of":"${tag}"}`);
  registry.manifests.set(digestOf(bytes), bytes);
  registry.tags.set(tag, digestOf(bytes));
  return digestOf(bytes);
};

test("a tag is free when nothing has it, or when it is ours already", async () => {
  const { registry, client, digest } = await published();
  const owner = (tag: { digest: Digest }) =>
    ownerOfTag({ client, repository: REPOSITORY }, { version: 7, worldUid: "world-uid", ...tag }, signal);
  assert.equal(await owner({ digest }), "Free");
  registry.tags.set("v7", digest);
  assert.equal(await owner({ digest }), "Free");
});

test("another version of this World under the tag is newer than the status; any other image has only taken the tag", async () => {
  const { registry, client, digest } = await published();
  registry.tags.set("v7", digest);
  const owner = (worldUid: string) =>
    ownerOfTag({ client, repository: REPOSITORY }, { version: 7, worldUid, digest: OTHER }, signal);
  assert.equal(await owner("world-uid"), "Newer");
  assert.equal(await owner("another-uid"), "Taken");
  registry.manifests.set(digest, new TextEncoder().encode('{"mediaType":"","layers":[]}'));
  assert.equal(await owner("world-uid"), "Taken");
});

const failures: RegistryErrorCode[] = ["Unavailable", "Unauthorized", "Malformed", "DigestMismatch", "Refused"];
for (const code of failures) {
  test(`a tag that cannot be read (${code}) is not free, and nothing is written`, async () => {
    const { registry, client, digest } = await published();
    registry.failing.set("v7", code);
    registry.writes.length = 0;
    const tag = { version: 7, digest, worldUid: "world-uid" };
    await assert.rejects(ownerOfTag({ client, repository: REPOSITORY }, tag, signal), { code });
    await assert.rejects(repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal), { code });
    assert.deepEqual(registry.writes, []);
  });
  test(`a latest that cannot be read (${code}) is not moved`, async () => {
    const { registry, client, digest } = await published();
    registry.failing.set("latest", code);
    registry.writes.length = 0;
    await assert.rejects(repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal), { code });
    assert.deepEqual(registry.writes, []);
  });
}

test("missing tags are made, the version's first, with the bytes of the version", async () => {
  const { registry, client, digest } = await published();
  registry.writes.length = 0;
  await repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal);
  assert.deepEqual(registry.writes, ["tag v7", "tag latest"]);
  assert.deepEqual([registry.tags.get("v7"), registry.tags.get("latest")], [digest, digest]);
});

test("tags that are right are not written again", async () => {
  const { registry, client, digest } = await published();
  await repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal);
  registry.writes.length = 0;
  await repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal);
  assert.deepEqual(registry.writes, []);
});

test("latest follows head; the version's tag is left alone", async () => {
  const { registry, client, digest } = await published();
  registry.tags.set("v7", digest);
  plant(registry, "latest");
  registry.writes.length = 0;
  await repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal);
  assert.deepEqual(registry.writes, ["tag latest"]);
});

test("a version tag that names another digest is never overwritten, and latest does not move either", async () => {
  const { registry, client, digest } = await published();
  const theirs = plant(registry, "v7");
  const theirLatest = plant(registry, "latest");
  registry.writes.length = 0;
  await assert.rejects(repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal), {
    name: "PublicationError",
    code: "TagTaken",
  });
  assert.deepEqual(registry.writes, []);
  assert.deepEqual([registry.tags.get("v7"), registry.tags.get("latest")], [theirs, theirLatest]);
});

test("no tag is made for a version that is not in the registry", async () => {
  const { registry, client, digest } = await published();
  registry.manifests.delete(digest);
  registry.writes.length = 0;
  await assert.rejects(repairTags({ client, repository: REPOSITORY }, { version: 7, digest }, signal), {
    code: "NotFound",
  });
  assert.deepEqual(registry.writes, []);
});

test("from any state of the tags: v<n> is ours or untouched afterwards, and latest is head only with it", async () => {
  const state = fc.constantFrom("missing", "ours", "theirs", "silent");
  await fc.assert(
    fc.asyncProperty(state, state, fc.nat(3), async (tagged, latest, version) => {
      const { registry, client, digest } = await published(version);
      const tag = versionTag(version);
      for (const [name, is] of [
        [tag, tagged],
        ["latest", latest],
      ] as const) {
        if (is === "ours") registry.tags.set(name, digest);
        if (is === "theirs") plant(registry, name);
        if (is === "silent") registry.failing.set(name, "Unavailable");
      }
      const before = registry.tags.get(tag);
      const done = await repairTags({ client, repository: REPOSITORY }, { version, digest }, signal).then(
        () => true,
        () => false,
      );
      assert.equal(done, tagged !== "theirs" && tagged !== "silent" && latest !== "silent");
      assert.equal(registry.tags.get(tag), done ? digest : before);
      if (done) assert.equal(registry.tags.get("latest"), digest);
    }),
  );
});
