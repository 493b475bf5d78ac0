import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { digestOf } from "../../../operator/src/registry/digest.ts";
import { isRegistryError } from "../../../operator/src/registry/errors.ts";
import { impatientClock } from "../../../operator/src/registry/fake-registry.test-kit.ts";
import {
  bytesOf,
  clientOf,
  collect,
  imageIn,
  inPieces,
  newSeed,
  openUploads,
  REGISTRIES,
  type Served,
  serve,
} from "./support.ts";

const MIB = 1024 * 1024;
const MISSING = `sha256:${"0".repeat(64)}` as const;

for (const { name, wish } of REGISTRIES) {
  describe(name, () => {
    const signal = AbortSignal.timeout(300_000);
    const seed = newSeed();
    let served: Served;
    before(async () => {
      served = await serve(wish);
    });
    after(() => served[Symbol.asyncDispose]());

    // Around one chunk (16 MiB) and beyond two.
    for (const size of [0, 1, 1000, 16 * MIB - 1, 16 * MIB, 16 * MIB + 1, 40 * MIB + 7]) {
      test(`a streamed blob of ${size} bytes comes back as it was sent (seed ${seed})`, async () => {
        const bytes = bytesOf(`${seed}/${size}`, size);
        const stored = await served.client.uploadBlob("round/trip", inPieces(bytes), signal);
        assert.deepEqual(stored, { digest: digestOf(bytes), size });
        assert.equal(await served.client.verifyBlob("round/trip", stored, signal), true);
        const content = served.client.streamBlob("round/trip", { mediaType: "x/y", ...stored }, signal);
        assert.ok(bytes.equals(await collect(content)));
        assert.deepEqual(await openUploads(served.registry, "round/trip"), []);
      });
    }

    test(`bytes that are there already are not sent again, and getBlob returns them (seed ${seed})`, async () => {
      const bytes = bytesOf(`${seed}/known`, 2 * MIB);
      const first = await served.client.putBlob("known", bytes, signal);
      const second = await served.client.putBlob("known", bytes, signal);
      assert.deepEqual(second, first);
      assert.ok(bytes.equals(await served.client.getBlob("known", { digest: first.digest }, signal)));
      await assert.rejects(served.client.getBlob("known", { digest: first.digest, maxBytes: MIB }, signal), (error) =>
        isRegistryError(error, "Refused"),
      );
    });

    test("a blob of another length than stated is not verified", async () => {
      const { digest, size } = await served.client.putBlob("lengths", bytesOf(`${seed}/lengths`, 100), signal);
      for (const wrong of [size - 1, size + 1, 1]) {
        assert.equal(await served.client.verifyBlob("lengths", { digest, size: wrong }, signal), false);
      }
      assert.equal(await served.client.verifyBlob("lengths", { digest: MISSING, size }, signal), false);
    });

    test("a manifest is read by tag and by digest, byte for byte", async () => {
      const image = await imageIn(served.client, "manifests", { seed, signal });
      const digest = await served.client.putManifest(
        "manifests",
        { reference: digestOf(image.bytes), ...image },
        signal,
      );
      assert.equal(await served.client.putManifest("manifests", { reference: "v1", ...image }, signal), digest);
      for (const reference of [digest, "v1"]) {
        const fetched = await served.client.getManifest("manifests", reference, signal);
        assert.equal(fetched.digest, digest);
        assert.ok(image.bytes.equals(fetched.bytes));
        assert.equal(fetched.manifest.kind, "image");
      }
      await assert.rejects(served.client.getManifest("manifests", "v2", signal), (error) =>
        isRegistryError(error, "NotFound"),
      );
    });

    test("a manifest that names a blob the registry does not have is refused with its reason", async () => {
      const image = await imageIn(served.client, "dangling", { seed, signal });
      const text = image.bytes.toString("utf8").replace(image.layer.digest, MISSING);
      const put = served.client.putManifest(
        "dangling",
        { reference: "v1", mediaType: image.mediaType, bytes: Buffer.from(text) },
        signal,
      );
      await assert.rejects(put, (error) => {
        return isRegistryError(error, "Refused") && error.reasons.includes("MANIFEST_BLOB_UNKNOWN");
      });
    });

    test("a blob is mounted from another repository, and a repository that lacks it opens no upload", async () => {
      const stored = await served.client.putBlob("mount/from", bytesOf(`${seed}/mount`, 3000), signal);
      assert.equal(
        await served.client.mountBlob("mount/to", { from: "mount/from", digest: stored.digest }, signal),
        true,
      );
      assert.equal(await served.client.verifyBlob("mount/to", stored, signal), true);
      assert.equal(
        await served.client.mountBlob("mount/other", { from: "mount/nothing", digest: stored.digest }, signal),
        false,
      );
      assert.deepEqual(await openUploads(served.registry, "mount/other"), []);
    });

    test("every tag is listed over all pages, and an unknown repository has none", async () => {
      const image = await imageIn(served.client, "tags", { seed, signal });
      const wanted = Array.from({ length: 23 }, (_, index) => `v${index}`);
      for (const tag of wanted) await served.client.putManifest("tags", { reference: tag, ...image }, signal);
      const paging = clientOf(served.registry, { tagsPerPage: 5 });
      try {
        assert.deepEqual((await paging.listTags("tags", signal)).sort(), wanted.toSorted());
      } finally {
        await paging.close();
      }
      assert.deepEqual(await served.client.listTags("never/pushed", signal), []);
    });

    test("deleting a manifest takes all tags of its digest along, spares others, and can be repeated", async () => {
      const doomed = await imageIn(served.client, "deletion", { seed: `${seed}/doomed`, signal });
      const kept = await imageIn(served.client, "deletion", { seed: `${seed}/kept`, signal });
      for (const tag of ["a", "b"]) await served.client.putManifest("deletion", { reference: tag, ...doomed }, signal);
      await served.client.putManifest("deletion", { reference: "c", ...kept }, signal);
      const digest = digestOf(doomed.bytes);
      await served.client.deleteManifest("deletion", digest, signal);
      await served.client.deleteManifest("deletion", digest, signal);
      assert.deepEqual(await served.client.listTags("deletion", signal), ["c"]);
      await assert.rejects(served.client.getManifest("deletion", "a", signal), (error) =>
        isRegistryError(error, "NotFound"),
      );
      await served.client.deleteManifest("never/pushed", digest, signal);
    });

    for (const moment of ["between two chunks", "while a chunk is on its way"]) {
      test(`an upload that is aborted ${moment} leaves no session behind`, async () => {
        const abort = new AbortController();
        const stop = () => abort.abort(new Error("the lease is lost"));
        const bytes = bytesOf(`${seed}/aborted`, 40 * MIB);
        async function* content() {
          let sent = 0;
          for await (const piece of inPieces(bytes)) {
            sent += piece.length;
            // The piece that fills the second chunk: by the next turn of the event loop its PATCH has begun.
            if (sent - piece.length < 32 * MIB && sent >= 32 * MIB && moment.startsWith("while")) setImmediate(stop);
            yield piece;
            if (sent > 33 * MIB) {
              assert.equal((await openUploads(served.registry, "aborted")).length, 1);
              stop();
            }
          }
        }
        await assert.rejects(served.client.uploadBlob("aborted", content(), abort.signal), /the lease is lost/);
        assert.deepEqual(await openUploads(served.registry, "aborted"), []);
      });
    }

    test("an upload whose source fails leaves no session behind", async () => {
      async function* content() {
        yield* inPieces(bytesOf(`${seed}/source`, 17 * MIB));
        throw new Error("the container is gone");
      }
      await assert.rejects(served.client.uploadBlob("source", content(), signal), /the container is gone/);
      assert.deepEqual(await openUploads(served.registry, "source"), []);
    });

    test("a registry that is down is Unavailable, never empty", async () => {
      await using other = await serve(wish, { clock: impatientClock });
      await other.client.putBlob("down", bytesOf(seed, 10), signal);
      await other.registry.stop();
      const isDown = (error: unknown) => isRegistryError(error, "Unavailable");
      await assert.rejects(other.client.listTags("down", signal), isDown);
      await assert.rejects(other.client.verifyBlob("down", { digest: MISSING, size: 10 }, signal), isDown);
      await assert.rejects(other.client.deleteManifest("down", MISSING, signal), isDown);
      await other.registry.start();
      assert.deepEqual(await other.client.listTags("down", signal), []);
    });

    if (wish.auth === "basic") {
      test("a wrong password and no password are Unauthorized, and neither shows in the message", async () => {
        const { url, host, caPem } = served.registry;
        for (const login of [{}, { username: "tester", password: "not-the-password" }]) {
          const client = clientOf({ url, host, ...(caPem === undefined ? {} : { caPem }), ...login });
          await assert.rejects(client.listTags("secret", signal), (error) => {
            return isRegistryError(error, "Unauthorized") && !error.message.includes("not-the-password");
          });
          await client.close();
        }
      });
    }
  });
}
