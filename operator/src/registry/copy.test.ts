import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Descriptor,
  type FetchedManifest,
  type ImageManifest,
  MEDIA_TYPES,
  type RegistryClient,
} from "./contract.ts";
import { copyImage, resolveImage, selectPlatform, toOciManifest } from "./copy.ts";
import { digestOf } from "./digest.ts";
import { isRegistryError, RegistryError, type RegistryErrorCode } from "./errors.ts";
import { parseManifest } from "./manifest.ts";

const { signal } = new AbortController();
const failsAs = (code: RegistryErrorCode, pattern: RegExp) => (error: unknown) => {
  assert.ok(isRegistryError(error, code), String(error));
  assert.match(error.message, pattern);
  return true;
};

const entry = (name: string, platform?: { os: string; architecture: string; variant?: string }): Descriptor => ({
  mediaType: MEDIA_TYPES.ociManifest,
  digest: digestOf(Buffer.from(name)),
  size: 1,
  ...(platform === undefined ? {} : { platform }),
});
const amd64 = entry("amd64", { os: "linux", architecture: "amd64" });
const amd64v3 = entry("amd64v3", { os: "linux", architecture: "amd64", variant: "v3" });
const armv8 = entry("armv8", { os: "linux", architecture: "arm64", variant: "v8" });
const armv9 = entry("armv9", { os: "linux", architecture: "arm64", variant: "v9" });
const attestation = entry("attestation", { os: "unknown", architecture: "unknown" });
const windows = entry("windows", { os: "windows", architecture: "amd64" });

const selections: [name: string, manifests: Descriptor[], platform: string, want: Descriptor][] = [
  ["the only one", [amd64], "linux/amd64", amd64],
  ["among others", [windows, attestation, armv8, amd64], "linux/amd64", amd64],
  ["the plain one before a variant", [amd64v3, amd64], "linux/amd64", amd64],
  ["v8 is plain arm64", [armv9, armv8], "linux/arm64", armv8],
  ["a variant when there is nothing else", [amd64v3], "linux/amd64", amd64v3],
];
for (const [name, manifests, platform, want] of selections) {
  test(`platform: ${name}`, () => {
    assert.equal(selectPlatform({ schemaVersion: 2, mediaType: MEDIA_TYPES.ociIndex, manifests }, platform), want);
  });
}

const refusedSelections: [manifests: Descriptor[], pattern: RegExp][] = [
  [[windows, attestation, armv8], /not offered for linux\/amd64; it is offered for: linux\/arm64, windows\/amd64$/],
  [[attestation, entry("nothing said")], /offered for: none$/],
  [[], /offered for: none$/],
];
for (const [manifests, pattern] of refusedSelections) {
  test(`a platform that is not there is refused with those that are: ${pattern.source}`, () => {
    const index = { schemaVersion: 2, mediaType: MEDIA_TYPES.ociIndex, manifests } as const;
    assert.throws(() => selectPlatform(index, "linux/amd64"), failsAs("PlatformNotOffered", pattern));
  });
}

/** A source with one image in memory; what it is asked to stream is counted. */
function sourceOf(image: object, config: Buffer, layers: Buffer[]): RegistryClient & { streamed: string[] } {
  const manifest: FetchedManifest = parseManifest(Buffer.from(JSON.stringify(image)), undefined);
  const blobs = new Map([config, ...layers].map((bytes) => [digestOf(bytes), bytes]));
  const streamed: string[] = [];
  return {
    ...refusing("https://source.example"),
    streamed,
    getManifest: async () => manifest,
    getBlob: async (_repository, { digest }) => blobs.get(digest) ?? Buffer.alloc(0),
    async *streamBlob(_repository, descriptor) {
      streamed.push(descriptor.digest);
      yield blobs.get(descriptor.digest) ?? Buffer.alloc(0);
    },
  };
}

function refusing(url: string): RegistryClient {
  const no = () => Promise.reject(new Error("not part of this test"));
  return {
    endpoint: { url },
    getManifest: no,
    putManifest: no,
    deleteManifest: no,
    listTags: no,
    listRepositories: no,
    getBlob: no,
    streamBlob: () => {
      throw new Error("not part of this test");
    },
    verifyBlob: no,
    uploadBlob: no,
    putBlob: no,
    mountBlob: no,
    close: async () => undefined,
  };
}

const layerBytes = ["one", "two", "three", "four", "five"].map((text) => Buffer.from(text));
const configOf = (platform: object, layers: number) =>
  Buffer.from(
    JSON.stringify({ ...platform, rootfs: { type: "layers", diff_ids: layerBytes.slice(0, layers).map(digestOf) } }),
  );
const descriptorOf = (mediaType: string, bytes: Buffer): Descriptor => ({
  mediaType,
  digest: digestOf(bytes),
  size: bytes.length,
});
const LINUX = { os: "linux", architecture: "amd64" };
const CONFIG = configOf(LINUX, layerBytes.length);
const DOCKER_IMAGE: ImageManifest = {
  schemaVersion: 2,
  mediaType: MEDIA_TYPES.dockerManifest,
  config: descriptorOf(MEDIA_TYPES.dockerConfig, CONFIG),
  layers: layerBytes.map((bytes) => descriptorOf(MEDIA_TYPES.dockerLayerGzip, bytes)),
};

test("a docker image becomes an OCI image of the same blobs", () => {
  const manifest = toOciManifest(DOCKER_IMAGE);
  assert.equal(manifest.mediaType, MEDIA_TYPES.ociManifest);
  assert.equal(manifest.config.mediaType, MEDIA_TYPES.ociConfig);
  assert.ok(manifest.layers.every(({ mediaType }) => mediaType === MEDIA_TYPES.ociLayerGzip));
  assert.deepEqual(
    manifest.layers.map(({ digest }) => digest),
    layerBytes.map(digestOf),
  );
  assert.deepEqual(toOciManifest(manifest), manifest);
});

const [firstLayer] = DOCKER_IMAGE.layers;
const unsupported: [name: string, image: object, pattern: RegExp][] = [
  [
    "a foreign layer by its urls",
    { ...DOCKER_IMAGE, layers: [{ ...firstLayer, urls: ["https://elsewhere.example/x"] }] },
    /is foreign/,
  ],
  [
    "a foreign layer by its type",
    {
      ...DOCKER_IMAGE,
      layers: [{ ...firstLayer, mediaType: "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" }],
    },
    /of type/,
  ],
  [
    "an encrypted layer",
    { ...DOCKER_IMAGE, layers: [{ ...firstLayer, mediaType: `${MEDIA_TYPES.ociLayer}+encrypted` }] },
    /of type/,
  ],
  [
    "an artifact",
    { ...DOCKER_IMAGE, config: { ...DOCKER_IMAGE.config, mediaType: "application/vnd.cncf.helm.config.v1+json" } },
    /artifact/,
  ],
  [
    "more layers than an engine boots",
    { ...DOCKER_IMAGE, layers: Array.from({ length: 125 }, () => firstLayer) },
    /it has 125 layers, and an engine boots at most 124/,
  ],
  [
    "fewer layers than diff ids",
    { ...DOCKER_IMAGE, layers: DOCKER_IMAGE.layers.slice(1) },
    /4 layers and its config 5 diff ids/,
  ],
];
for (const [name, image, pattern] of unsupported) {
  test(`an image is refused: ${name}`, async () => {
    const source = { client: sourceOf(image, CONFIG, layerBytes), repository: "a/b", reference: "v1" };
    await assert.rejects(
      resolveImage({ source, platform: "linux/amd64", signal }),
      failsAs("UnsupportedImage", pattern),
    );
  });
}

test("a single manifest of another platform is refused by its config", async () => {
  const config = configOf({ os: "linux", architecture: "arm64" }, layerBytes.length);
  const image = { ...DOCKER_IMAGE, config: descriptorOf(MEDIA_TYPES.dockerConfig, config) };
  const source = { client: sourceOf(image, config, layerBytes), repository: "a/b", reference: "v1" };
  const pattern = /not offered for linux\/amd64; it is offered for: linux\/arm64/;
  await assert.rejects(
    resolveImage({ source, platform: "linux/amd64", signal }),
    failsAs("PlatformNotOffered", pattern),
  );
});

test("what the target proves to have is skipped, a layer that shows twice is copied once, the manifest is not pushed", async () => {
  const image = { ...DOCKER_IMAGE, layers: [...DOCKER_IMAGE.layers.slice(0, 4), DOCKER_IMAGE.layers[3]] };
  const client = sourceOf(image, CONFIG, layerBytes);
  const present = digestOf(Buffer.from("one"));
  const uploaded: string[] = [];
  let running = 0;
  let mostAtOnce = 0;
  const target: RegistryClient = {
    ...refusing("https://target.example"),
    verifyBlob: async (_repository, { digest }) => digest === present,
    async uploadBlob(_repository, content) {
      running += 1;
      mostAtOnce = Math.max(mostAtOnce, running);
      const parts: Uint8Array[] = [];
      for await (const part of content) parts.push(part);
      await new Promise(setImmediate);
      running -= 1;
      const bytes = Buffer.concat(parts);
      uploaded.push(digestOf(bytes));
      return { digest: digestOf(bytes), size: bytes.length };
    },
    putBlob: async (_repository, bytes) => ({ digest: digestOf(bytes), size: bytes.length }),
  };
  const request = {
    source: { client, repository: "a/b", reference: "v1" },
    target: { client: target, repository: "w" },
  };
  const copied = await copyImage({ ...request, platform: "linux/amd64", signal });
  assert.deepEqual(uploaded.sort(), layerBytes.slice(1, 4).map(digestOf).sort());
  assert.ok(mostAtOnce <= 3 && mostAtOnce > 1);
  assert.equal(copied.manifest.layers.length, 5);
  assert.deepEqual(copied.config, CONFIG);
});

test("the first layer that fails stops the others, and its error is the one that is thrown", async () => {
  const client = sourceOf(DOCKER_IMAGE, CONFIG, layerBytes);
  let stopped = 0;
  const target: RegistryClient = {
    ...refusing("https://target.example"),
    verifyBlob: async () => false,
    uploadBlob: async (_repository, content, inner) => {
      for await (const part of content) {
        if (Buffer.from(part).toString() === "two") throw new RegistryError("Unavailable", "the disk is full");
      }
      await new Promise((_resolve, reject) => {
        const onAbort = () => {
          stopped += 1;
          reject(inner.reason);
        };
        if (inner.aborted) onAbort();
        else inner.addEventListener("abort", onAbort);
      });
      throw new Error("unreachable");
    },
  };
  const request = {
    source: { client, repository: "a/b", reference: "v1" },
    target: { client: target, repository: "w" },
  };
  await assert.rejects(
    copyImage({ ...request, platform: "linux/amd64", signal }),
    failsAs("Unavailable", /disk is full/),
  );
  assert.equal(stopped, 2, "all that were running have ended");
  assert.equal(client.streamed.length, 3);
});

test("a mount that the registry claims and cannot prove is followed by a copy", async () => {
  const image = {
    ...DOCKER_IMAGE,
    layers: DOCKER_IMAGE.layers.slice(0, 1),
    config: descriptorOf(MEDIA_TYPES.dockerConfig, configOf(LINUX, 1)),
  };
  const client = { ...sourceOf(image, configOf(LINUX, 1), layerBytes), endpoint: { url: "https://same.example" } };
  const calls: string[] = [];
  const target: RegistryClient = {
    ...refusing("https://same.example"),
    async verifyBlob() {
      calls.push("verify");
      return false;
    },
    async mountBlob() {
      calls.push("mount");
      return true;
    },
    async uploadBlob() {
      calls.push("upload");
      return { digest: digestOf(Buffer.from("one")), size: 3 };
    },
    async putBlob(_repository, bytes) {
      calls.push("config");
      return { digest: digestOf(bytes), size: bytes.length };
    },
  };
  const request = {
    source: { client, repository: "a/b", reference: "v1" },
    target: { client: target, repository: "w" },
  };
  await copyImage({ ...request, platform: "linux/amd64", signal });
  assert.deepEqual(calls, ["verify", "mount", "verify", "upload", "config"]);
});
