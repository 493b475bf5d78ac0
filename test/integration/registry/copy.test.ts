import assert from "node:assert/strict";
import { test } from "node:test";
import { type Descriptor, MEDIA_TYPES, type RegistryClient } from "../../../operator/src/registry/contract.ts";
import { copyImage } from "../../../operator/src/registry/copy.ts";
import { digestOf } from "../../../operator/src/registry/digest.ts";
import { isRegistryError } from "../../../operator/src/registry/errors.ts";
import { bytesOf, imageIn, inPieces, newSeed, openUploads, serve } from "./support.ts";

const MIB = 1024 * 1024;

/** An index of two platforms under the tag `latest`, as a public image has one. */
async function publishIndex(client: RegistryClient, repository: string, seed: string, signal: AbortSignal) {
  const entries: Descriptor[] = [];
  for (const architecture of ["amd64", "arm64"]) {
    const platform = { os: "linux", architecture };
    const image = await imageIn(client, repository, { seed: `${seed}/${architecture}`, signal, platform });
    const digest = await client.putManifest(repository, { reference: digestOf(image.bytes), ...image }, signal);
    entries.push({ mediaType: image.mediaType, digest, size: image.bytes.length, platform });
  }
  const index = { schemaVersion: 2, mediaType: MEDIA_TYPES.ociIndex, manifests: entries };
  const bytes = Buffer.from(JSON.stringify(index));
  const digest = await client.putManifest(
    repository,
    { reference: "latest", mediaType: index.mediaType, bytes },
    signal,
  );
  return { digest, entries };
}

test("a platform's image is copied between two registries of different versions, and can be published there", async () => {
  const seed = newSeed();
  const signal = AbortSignal.timeout(120_000);
  await using from = await serve({ version: "v2", auth: "basic", tls: true });
  await using to = await serve({ version: "v3" });
  const { digest, entries } = await publishIndex(from.client, "library/tool", seed, signal);

  const copied = await copyImage({
    source: { client: from.client, repository: "library/tool", reference: "latest" },
    target: { client: to.client, repository: "worlds/one" },
    platform: "linux/arm64",
    signal,
  });
  assert.equal(copied.sourceDigest, digest);
  assert.equal(copied.manifestDigest, entries[1]?.digest);
  for (const blob of [copied.manifest.config, ...copied.manifest.layers]) {
    assert.equal(await to.client.verifyBlob("worlds/one", blob, signal), true);
  }
  assert.deepEqual(await to.client.listTags("worlds/one", signal), [], "publishing is the caller's");
  const bytes = Buffer.from(JSON.stringify(copied.manifest));
  await to.client.putManifest("worlds/one", { reference: "v0", mediaType: copied.manifest.mediaType, bytes }, signal);
});

test("within one registry the layers are mounted, not sent", async () => {
  const seed = newSeed();
  const signal = AbortSignal.timeout(120_000);
  await using served = await serve({ version: "v3" });
  await publishIndex(served.client, "library/tool", seed, signal);
  const client: RegistryClient = {
    ...bindAll(served.client),
    uploadBlob: () => Promise.reject(new Error("a layer was sent although it could be mounted")),
  };
  await copyImage({
    source: { client: served.client, repository: "library/tool", reference: "latest" },
    target: { client, repository: "worlds/two" },
    platform: "linux/amd64",
    signal,
  });
});

test("a platform that the index does not offer is refused by name", async () => {
  const signal = AbortSignal.timeout(120_000);
  await using served = await serve({ version: "v3" });
  await publishIndex(served.client, "library/tool", newSeed(), signal);
  const copy = copyImage({
    source: { client: served.client, repository: "library/tool", reference: "latest" },
    target: { client: served.client, repository: "worlds/three" },
    platform: "linux/s390x",
    signal,
  });
  await assert.rejects(copy, (error) => {
    return (
      isRegistryError(error, "PlatformNotOffered") && /linux\/s390x.*linux\/amd64, linux\/arm64/.test(error.message)
    );
  });
});

test("a copy that is aborted leaves no upload session in the target", async () => {
  const seed = newSeed();
  const signal = AbortSignal.timeout(120_000);
  await using from = await serve({ version: "v3" });
  await using to = await serve({ version: "v2" });
  const big = await from.client.uploadBlob("big", inPieces(bytesOf(`${seed}/big`, 40 * MIB)), signal);
  const config = Buffer.from(
    JSON.stringify({ os: "linux", architecture: "amd64", rootfs: { type: "layers", diff_ids: [big.digest] } }),
  );
  const manifest = {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociManifest,
    config: { mediaType: MEDIA_TYPES.ociConfig, ...(await from.client.putBlob("big", config, signal)) },
    layers: [{ mediaType: MEDIA_TYPES.ociLayer, ...big }],
  };
  const bytes = Buffer.from(JSON.stringify(manifest));
  await from.client.putManifest("big", { reference: "v1", mediaType: manifest.mediaType, bytes }, signal);

  const abort = new AbortController();
  const client: RegistryClient = {
    ...bindAll(from.client),
    async *streamBlob(repository, descriptor, inner) {
      let sent = 0;
      for await (const chunk of from.client.streamBlob(repository, descriptor, inner)) {
        yield chunk;
        sent += chunk.length;
        if (sent > 20 * MIB) abort.abort(new Error("the operator stops"));
      }
    },
  };
  const copy = copyImage({
    source: { client, repository: "big", reference: "v1" },
    target: { client: to.client, repository: "worlds/four" },
    platform: "linux/amd64",
    signal: abort.signal,
  });
  await assert.rejects(copy, /the operator stops/);
  assert.deepEqual(await openUploads(to.registry, "worlds/four"), []);
});

/** A client whose methods can be replaced one by one. */
function bindAll(client: RegistryClient): RegistryClient {
  return {
    endpoint: client.endpoint,
    getManifest: (...args) => client.getManifest(...args),
    putManifest: (...args) => client.putManifest(...args),
    deleteManifest: (...args) => client.deleteManifest(...args),
    listTags: (...args) => client.listTags(...args),
    listRepositories: (...args) => client.listRepositories(...args),
    getBlob: (...args) => client.getBlob(...args),
    streamBlob: (...args) => client.streamBlob(...args),
    verifyBlob: (...args) => client.verifyBlob(...args),
    uploadBlob: (...args) => client.uploadBlob(...args),
    putBlob: (...args) => client.putBlob(...args),
    mountBlob: (...args) => client.mountBlob(...args),
    close: () => client.close(),
  };
}
