import assert from "node:assert/strict";
import { test } from "node:test";
import { createRegistryClient } from "./client.ts";
import { digestOf } from "./digest.ts";
import { isRegistryError, type RegistryErrorCode } from "./errors.ts";
import { type FakeRegistry, fakeRegistry, type Intercept, impatientClock, refuse } from "./fake-registry.test-kit.ts";
import type { OrphanedUpload } from "./upload.ts";

const { signal } = new AbortController();
const content = Buffer.from("0123456789".repeat(350));
const is = (code: RegistryErrorCode) => (error: unknown) => isRegistryError(error, code);

/** A client that sends chunks of 1000 bytes to a registry that misbehaves as told. */
async function uploadTo(intercept: Intercept = () => false) {
  const registry = await fakeRegistry(intercept);
  const orphans: OrphanedUpload[] = [];
  const onOrphan = (orphan: OrphanedUpload) => orphans.push(orphan);
  const client = createRegistryClient({ url: registry.url }, { chunkBytes: 1000, clock: impatientClock, onOrphan });
  return {
    registry,
    orphans,
    upload: (bytes: Uint8Array = content) => client.uploadBlob("some/name", inPieces(bytes), signal),
    putBlob: (bytes: Uint8Array) => client.putBlob("some/name", bytes, signal),
    async [Symbol.asyncDispose]() {
      await client.close();
      await registry[Symbol.asyncDispose]();
    },
  };
}

async function* inPieces(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += 333) yield bytes.subarray(start, start + 333);
}

const rangesOf = (registry: FakeRegistry) =>
  registry.requests.filter(({ method }) => method === "PATCH").map(({ headers }) => headers["content-range"]);

test("a stream goes in chunks, each with its place, and the registry's own query is kept as it was", async () => {
  await using it = await uploadTo();
  assert.deepEqual(await it.upload(), { digest: digestOf(content), size: 3500 });
  assert.deepEqual(rangesOf(it.registry), ["0-999", "1000-1999", "2000-2999", "3000-3499"]);
  const put = it.registry.requests.find(({ method }) => method === "PUT");
  assert.match(put?.target ?? "", /\?_state=3500%2Bsigned&digest=sha256%3A/);
  assert.equal(it.registry.sessions.size, 0);
});

test("a stream that fits into one chunk is sent in one piece, and not at all when it is there", async () => {
  await using it = await uploadTo();
  const small = content.subarray(0, 999);
  await it.upload(small);
  await it.upload(small);
  const changes = it.registry.requests.filter(({ method }) => method !== "GET").map(({ method }) => method);
  assert.deepEqual(changes, ["POST", "PUT"]);
});

test("a blob of which the registry can say nothing is sent again, and proved: a full disk leaves its record empty", async () => {
  let isWritten = false;
  await using it = await uploadTo(({ method }, response) => {
    if (method === "PUT") isWritten = true;
    if (method !== "GET" || isWritten) return false;
    refuse(response, 500, "UNKNOWN");
    return true;
  });
  assert.deepEqual(await it.putBlob(content), { digest: digestOf(content), size: content.length });
  assert.equal(isWritten, true);
});

test("a registry that fails at everything gets no further than the look and the first try", async () => {
  await using it = await uploadTo((_, response) => {
    refuse(response, 500, "UNKNOWN");
    return true;
  });
  await assert.rejects(it.putBlob(content), is("Unavailable"));
  assert.deepEqual([...new Set(it.registry.requests.map(({ method }) => method))], ["GET", "POST"]);
});

test("a stream that ends exactly at a chunk sends no empty chunk", async () => {
  await using it = await uploadTo();
  await it.upload(content.subarray(0, 2000));
  assert.deepEqual(rangesOf(it.registry), ["0-999", "1000-1999"]);
});

test("a registry that wants larger chunks gets them", async () => {
  await using it = await uploadTo((request, response) => {
    if (request.method === "POST") response.setHeader("OCI-Chunk-Min-Length", "1500");
    return false;
  });
  await it.upload();
  assert.deepEqual(rangesOf(it.registry), ["0-1499", "1500-2999", "3000-3499"]);
});

test("a registry that wants chunks beyond all measure is refused", async () => {
  await using it = await uploadTo((request, response) => {
    if (request.method === "POST") response.setHeader("OCI-Chunk-Min-Length", String(2 ** 40));
    return false;
  });
  await assert.rejects(it.upload(), is("Refused"));
  assert.equal(it.registry.sessions.size, 0);
});

// aws/containers-roadmap#2831: every PATCH after the first is answered with 202 and dropped.
test("a registry that accepts a chunk and does not keep it is found out at that chunk, and no session stays", async () => {
  await using it = await uploadTo((request, response) => {
    if (request.method !== "PATCH" || request.headers["content-range"] === "0-999") return false;
    response.writeHead(202, { location: request.target, range: "0-999" }).end();
    return true;
  });
  await assert.rejects(it.upload(), is("UploadNotAdvancing"));
  assert.deepEqual(rangesOf(it.registry), ["0-999", "1000-1999"]);
  assert.equal(it.registry.sessions.size, 0);
  assert.deepEqual(it.orphans, []);
});

test("a chunk whose answer was lost is not sent twice when the registry has it", async () => {
  let lost = false;
  await using it = await uploadTo((request, response) => {
    if (lost || request.headers["content-range"] !== "1000-1999") return false;
    lost = true;
    const [id = ""] = it.registry.sessions.keys();
    it.registry.sessions.set(id, Buffer.concat([it.registry.sessions.get(id) ?? Buffer.alloc(0), request.body]));
    response.destroy();
    return true;
  });
  assert.equal((await it.upload()).digest, digestOf(content));
  assert.deepEqual(rangesOf(it.registry), ["0-999", "1000-1999", "2000-2999", "3000-3499"]);
});

test("of a chunk that arrived in part only the rest is sent again", async () => {
  let cut = false;
  await using it = await uploadTo((request, response) => {
    if (cut || request.headers["content-range"] !== "1000-1999") return false;
    cut = true;
    const [id = ""] = it.registry.sessions.keys();
    it.registry.sessions.set(
      id,
      Buffer.concat([it.registry.sessions.get(id) ?? Buffer.alloc(0), request.body.subarray(0, 250)]),
    );
    response.destroy();
    return true;
  });
  assert.equal((await it.upload()).digest, digestOf(content));
  assert.deepEqual(rangesOf(it.registry).slice(1, 3), ["1000-1999", "1250-1999"]);
});

test("a chunk that never gets through ends the upload as Unavailable", async () => {
  await using it = await uploadTo((request, response) => {
    if (request.method !== "PATCH") return false;
    refuse(response, 503, "UNAVAILABLE");
    return true;
  });
  await assert.rejects(it.upload(), is("Unavailable"));
  assert.equal(rangesOf(it.registry).length, 2);
  assert.equal(it.registry.sessions.size, 0);
});

test("a session that the registry lost is Unavailable: the stream must be sent anew", async () => {
  await using it = await uploadTo((request) => {
    if (request.headers["content-range"] === "1000-1999") it.registry.sessions.clear();
    return false;
  });
  await assert.rejects(it.upload(), is("Unavailable"));
  assert.deepEqual(it.orphans, [], "a session that is gone is not an orphan");
});

test("a commit whose answer was lost counts when the blob is there", async () => {
  let lost = false;
  await using it = await uploadTo((request, response) => {
    if (lost || request.method !== "PUT") return false;
    lost = true;
    it.registry.blobs.set(digestOf(content), content);
    it.registry.sessions.clear();
    response.destroy();
    return true;
  });
  assert.equal((await it.upload()).digest, digestOf(content));
});

test("bytes at hand are sent in a second session when the first was lost", async () => {
  let lost = false;
  await using it = await uploadTo((request, response) => {
    if (lost || request.method !== "PUT") return false;
    lost = true;
    refuse(response, 502, "UNAVAILABLE");
    return true;
  });
  assert.deepEqual(await it.putBlob(content), { digest: digestOf(content), size: content.length });
  assert.equal(it.registry.sessions.size, 0);
});

test("a registry that says 201 and does not have the blob is not believed", async () => {
  await using it = await uploadTo((request, response) => {
    if (request.method !== "PUT") return false;
    response.writeHead(201).end();
    return true;
  });
  await assert.rejects(it.upload(), is("DigestMismatch"));
});

test("a registry that got other bytes says so", async () => {
  await using it = await uploadTo((request) => {
    const [id] = it.registry.sessions.keys();
    if (request.method === "PUT" && id !== undefined) it.registry.sessions.set(id, Buffer.from("something else"));
    return false;
  });
  await assert.rejects(it.upload(), is("DigestMismatch"));
  assert.equal(it.registry.sessions.size, 0);
});

test("a session that cannot be cancelled is reported", async () => {
  await using it = await uploadTo((request, response) => {
    if (request.method === "PATCH") refuse(response, 400, "BLOB_UPLOAD_INVALID");
    else if (request.method === "DELETE" || request.target.includes("_state"))
      refuse(response, 404, "BLOB_UPLOAD_INVALID");
    else return false;
    return true;
  });
  await assert.rejects(it.upload(), is("Refused"));
  assert.deepEqual(
    it.orphans.map(({ repository }) => repository),
    ["some/name"],
  );
});

test("an upload that the registry sends to another host goes there without Authorization", async () => {
  await using storage = await fakeRegistry();
  storage.sessions.set("elsewhere", Buffer.alloc(0));
  await using registry = await fakeRegistry((request, response) => {
    if (request.headers.authorization === undefined) {
      refuse(response, 401, "UNAUTHORIZED", { "www-authenticate": "Basic realm=r" });
    } else if (request.method === "POST") {
      response.writeHead(202, { location: `${storage.url}/v2/some/name/blobs/uploads/elsewhere` }).end();
    } else {
      // Both hosts are one registry: what arrived there can be read here.
      if (storage.blobs.has(digestOf(content))) registry.blobs.set(digestOf(content), content);
      return false;
    }
    return true;
  });
  const login = { username: "me", password: "hunter2" };
  const client = createRegistryClient({ url: registry.url, login }, { chunkBytes: 1000 });
  assert.equal((await client.uploadBlob("some/name", inPieces(content), signal)).digest, digestOf(content));
  assert.ok(storage.requests.length >= 5);
  assert.ok(storage.requests.every(({ headers }) => headers.authorization === undefined));
  await client.close();
});
