import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { run } from "../../../hack/parts/process.ts";
import { digestOf } from "../../../operator/src/registry/digest.ts";
import { RegistryError } from "../../../operator/src/registry/errors.ts";
import { isSpoilt } from "../../../operator/src/snapshot/spoilt-manifest.ts";
import { bytesOf, imageIn, newSeed, serve } from "./support.ts";

const DATA = "docker/registry/v2/blobs/sha256";

// Seen on distribution 2.8.2 with its in-memory cache: after garbage-collect, HEAD says 200 for a blob that is gone, and a
// manifest over it is accepted. An image published on that word could never be pulled.
test("after a garbage collection verifyBlob says what HEAD hides, and the blob can be put again", async () => {
  const seed = newSeed();
  const signal = AbortSignal.timeout(60_000);
  await using directory = await temporaryDirectory();
  await using served = await serve({ version: "v2", directory: directory.path });
  const { registry, client } = served;
  const configuration = join(directory.path, "config.json");
  await useMemoryCache(configuration);
  await registry.stop();
  await registry.start();

  const repository = `garbage/${seed}`;
  const image = await imageIn(client, repository, { seed, signal });
  assert.equal(await client.verifyBlob(repository, image.layer, signal), true);
  // No manifest names the blobs, so they are garbage.
  await run(["docker-registry", "garbage-collect", configuration], { signal });

  const head = await fetch(`${registry.url}/v2/${repository}/blobs/${image.layer.digest}`, { method: "HEAD" });
  assert.equal(head.status, 200, "this registry no longer lies: the case is to be made differently");
  assert.equal(await client.verifyBlob(repository, image.layer, signal), false);

  const bytes = bytesOf(`${seed}/layer`, image.layer.size);
  await client.putBlob(repository, bytes, signal);
  assert.equal(await client.verifyBlob(repository, image.layer, signal), true);
  assert.ok(bytes.equals(await client.getBlob(repository, { digest: image.layer.digest }, signal)));
});

test("a blob that is cut short on the registry's disk is not verified", async () => {
  const seed = newSeed();
  const signal = AbortSignal.timeout(60_000);
  for (const version of ["v3", "v2"] as const) {
    await using served = await serve({ version });
    const bytes = bytesOf(seed, 5_000);
    const stored = await served.client.putBlob("short", bytes, signal);
    const hex = stored.digest.slice("sha256:".length);
    await writeFile(join(served.registry.dataDirectory, DATA, hex.slice(0, 2), hex, "data"), bytes.subarray(0, 4_999));
    assert.equal(await served.client.verifyBlob("short", stored, signal), false, version);
  }
});

// What a full disk leaves behind. The registry sees that there is something under the digest, and writes nothing again.
for (const version of ["v3", "v2"] as const) {
  test(`distribution ${version}: half a manifest is accepted again and again, and read never; it is told from a registry that is away`, async () => {
    const seed = newSeed();
    const signal = AbortSignal.timeout(60_000);
    await using served = await serve({ version });
    const { registry, client } = served;
    const image = await imageIn(client, "spoilt", { seed, signal });
    const digest = digestOf(image.bytes);
    const put = () => client.putManifest("spoilt", { reference: digest, ...image }, signal);
    const read = () =>
      client.getManifest("spoilt", digest, signal).then(
        () => undefined,
        (error: unknown) => error,
      );
    await put();
    assert.equal(await read(), undefined);

    const hex = digest.slice("sha256:".length);
    await truncate(join(registry.dataDirectory, DATA, hex.slice(0, 2), hex, "data"), 20);
    await put();
    const error = await read();
    assert.ok(error instanceof RegistryError, "this registry mends it: the case is to be made differently");
    assert.equal(await isSpoilt({ client, repository: "spoilt" }, error, signal), true);

    await registry.stop();
    assert.equal(await isSpoilt({ client, repository: "spoilt" }, await read(), signal), false);
    assert.equal(await isSpoilt({ client, repository: "spoilt" }, error, signal), false);
  });
}

async function useMemoryCache(path: string): Promise<void> {
  const configuration: unknown = JSON.parse(await readFile(path, "utf8"));
  const isObject = typeof configuration === "object" && configuration !== null && "storage" in configuration;
  if (!isObject || typeof configuration.storage !== "object") throw new Error(`${path} has no storage`);
  const storage = { ...configuration.storage, cache: { blobdescriptor: "inmemory" } };
  await writeFile(path, JSON.stringify({ ...configuration, storage }));
}

async function temporaryDirectory(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "agent-worlds-garbage-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}
