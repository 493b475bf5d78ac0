import assert from "node:assert/strict";
import { test } from "node:test";
import { createRegistryClient } from "./client.ts";
import { digestOf } from "./digest.ts";
import { isRegistryError, type RegistryErrorCode } from "./errors.ts";
import { fakeRegistry, fakeServer, type Intercept, impatientClock, refuse } from "./fake-registry.test-kit.ts";

const { signal } = new AbortController();
const blob = Buffer.from("0123456789".repeat(100));
const descriptor = { mediaType: "x/y", digest: digestOf(blob), size: blob.length };

/** A client of a registry that holds `blob` and misbehaves as told. */
async function holding(intercept: Intercept) {
  const registry = await fakeRegistry(intercept);
  registry.blobs.set(descriptor.digest, blob);
  const client = createRegistryClient({ url: registry.url }, { clock: impatientClock });
  return {
    registry,
    client,
    async [Symbol.asyncDispose]() {
      await client.close();
      await registry[Symbol.asyncDispose]();
    },
  };
}

async function read(content: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of content) parts.push(part);
  return Buffer.concat(parts);
}

const is = (code: RegistryErrorCode) => (error: unknown) => isRegistryError(error, code);

test("a stream that breaks off is taken up where it stopped", async () => {
  let cuts = 0;
  await using it = await holding((request, response) => {
    if (cuts === 2) return false;
    const from = Number(/^bytes=(\d+)-/.exec(request.headers.range ?? "bytes=0-")?.[1]);
    cuts += 1;
    const headers = { "content-length": blob.length - from, "content-range": `bytes ${from}-999/1000` };
    response.writeHead(from === 0 ? 200 : 206, headers);
    response.write(blob.subarray(from, from + 300), () => response.destroy());
    return true;
  });
  assert.ok(blob.equals(await read(it.client.streamBlob("a/b", descriptor, signal))));
  assert.deepEqual(
    it.registry.requests.map((request) => request.headers.range),
    [undefined, "bytes=300-", "bytes=600-"],
  );
});

const bad: [name: string, serve: Intercept, code: RegistryErrorCode][] = [
  [
    "breaks off and cannot be resumed",
    (_request, response) => {
      response.writeHead(200, { "content-length": blob.length }).write(blob.subarray(0, 500), () => response.destroy());
      return true;
    },
    "Unavailable",
  ],
  [
    "is shorter, chunked",
    (_request, response) => !!response.writeHead(200, { "transfer-encoding": "chunked" }).end(blob.subarray(1)),
    "DigestMismatch",
  ],
  [
    "is shorter, with its length",
    (_request, response) => !!response.writeHead(200).end(blob.subarray(1)),
    "DigestMismatch",
  ],
  [
    "is longer",
    (_request, response) =>
      !!response.writeHead(200, { "transfer-encoding": "chunked" }).end(Buffer.concat([blob, blob])),
    "DigestMismatch",
  ],
  [
    "is another blob of the same length",
    (_request, response) => !!response.writeHead(200).end(Buffer.alloc(blob.length)),
    "DigestMismatch",
  ],
  [
    "is not there",
    (_request, response) => {
      refuse(response, 404, "BLOB_UNKNOWN");
      return true;
    },
    "NotFound",
  ],
  [
    "is forbidden",
    (_request, response) => {
      refuse(response, 403, "DENIED");
      return true;
    },
    "Unauthorized",
  ],
];
for (const [name, serve, code] of bad) {
  test(`a stream that ${name} throws ${code}`, async () => {
    await using it = await holding(serve);
    await assert.rejects(read(it.client.streamBlob("a/b", descriptor, signal)), is(code));
  });
}

test("getBlob refuses bytes that are not the digest's, and more than it was told to take", async () => {
  await using it = await holding((_request, response) => !!response.writeHead(200).end(Buffer.alloc(1000)));
  await assert.rejects(it.client.getBlob("a/b", { digest: descriptor.digest }, signal), is("DigestMismatch"));
  await assert.rejects(it.client.getBlob("a/b", { digest: descriptor.digest, maxBytes: 999 }, signal), is("Refused"));
});

const proofs: [name: string, serve: Intercept, want: boolean | RegistryErrorCode][] = [
  ["has it", () => false, true],
  ["knows no ranges and has it", (_request, response) => !!response.writeHead(200).end(blob), true],
  [
    "knows no ranges and has other bytes",
    (_request, response) => !!response.writeHead(200).end(Buffer.alloc(1000)),
    false,
  ],
  [
    "has it at another length",
    (_request, response) => !!response.writeHead(206, { "content-range": "bytes 0-0/999" }).end("0"),
    false,
  ],
  [
    "has the head of it only",
    (request, response) => {
      if (request.headers.range === "bytes=0-0") return false;
      refuse(response, 416, "RANGE_INVALID");
      return true;
    },
    false,
  ],
  // What 2.8.2 does after a garbage collection behind its cache.
  [
    "promises it and sends nothing",
    (_request, response) => {
      response.writeHead(206, { "content-length": 1, "content-range": "bytes 0-0/1000" }).flushHeaders();
      response.destroy();
      return true;
    },
    false,
  ],
  [
    "says 404",
    (_request, response) => {
      refuse(response, 404, "BLOB_UNKNOWN");
      return true;
    },
    false,
  ],
  [
    "is broken",
    (_request, response) => {
      refuse(response, 500, "UNKNOWN");
      return true;
    },
    "Unavailable",
  ],
  [
    "forbids it",
    (_request, response) => {
      refuse(response, 403, "DENIED");
      return true;
    },
    "Unauthorized",
  ],
];
for (const [name, serve, want] of proofs) {
  test(`verifyBlob of a registry that ${name}: ${want}`, async () => {
    await using it = await holding(serve);
    const proof = it.client.verifyBlob("a/b", descriptor, signal);
    if (typeof want === "boolean") assert.equal(await proof, want);
    else await assert.rejects(proof, is(want));
  });
}

test("a connection that breaks once during the proof is no verdict", async () => {
  let breaks = 1;
  await using it = await holding((_request, response) => {
    if (breaks === 0) return false;
    breaks -= 1;
    response.writeHead(206, { "content-length": 1, "content-range": "bytes 0-0/1000" }).flushHeaders();
    response.destroy();
    return true;
  });
  assert.equal(await it.client.verifyBlob("a/b", descriptor, signal), true);
});

test("HEAD is never asked", async () => {
  await using it = await holding(() => false);
  await it.client.putBlob("a/b", blob, signal);
  await it.client.putBlob("a/b", Buffer.from("other"), signal);
  assert.deepEqual(
    it.registry.requests.filter(({ method }) => method === "HEAD"),
    [],
  );
});

test("empty and one-byte blobs are proved too", async () => {
  await using it = await holding(() => false);
  for (const text of ["", "x"]) {
    const bytes = Buffer.from(text);
    assert.equal(await it.client.verifyBlob("a/b", { digest: digestOf(bytes), size: bytes.length }, signal), false);
    const stored = await it.client.putBlob("a/b", bytes, signal);
    assert.equal(await it.client.verifyBlob("a/b", stored, signal), true);
  }
});

const mounts: [name: string, serve: Intercept, want: boolean | RegistryErrorCode][] = [
  ["201", (_request, response) => !!response.writeHead(201).end(), true],
  ["202", () => false, false],
  [
    "401 that no login helps",
    (_request, response) => {
      refuse(response, 401, "UNAUTHORIZED");
      return true;
    },
    false,
  ],
  [
    "403",
    (_request, response) => {
      refuse(response, 403, "DENIED");
      return true;
    },
    false,
  ],
  [
    "400",
    (_request, response) => {
      refuse(response, 400, "UNSUPPORTED");
      return true;
    },
    false,
  ],
  [
    "404",
    (_request, response) => {
      refuse(response, 404, "NAME_UNKNOWN");
      return true;
    },
    false,
  ],
  ["405", (_request, response) => !!response.writeHead(405).end(), false],
  ["500", (_request, response) => !!response.writeHead(500).end(), "Unavailable"],
];
for (const [name, serve, want] of mounts) {
  test(`a mount answered with ${name}: ${want}, and no session stays open`, async () => {
    await using it = await holding(serve);
    const mount = it.client.mountBlob("a/b", { from: "c/d", digest: descriptor.digest }, signal);
    if (typeof want === "boolean") assert.equal(await mount, want);
    else await assert.rejects(mount, is(want));
    assert.equal(it.registry.sessions.size, 0);
    const query = new URL(it.registry.requests[0]?.target ?? "", "http://x").searchParams;
    assert.deepEqual([query.get("mount"), query.get("from")], [descriptor.digest, "c/d"]);
  });
}

test("a server that is no registry at all is not an empty one", async () => {
  await using page = await fakeServer((_request, response) => response.writeHead(404).end("<html>no such page</html>"));
  const client = createRegistryClient({ url: page.url });
  await assert.rejects(client.listTags("a/b", signal), is("NotFound"));
  await assert.rejects(client.deleteManifest("a/b", descriptor.digest, signal), is("NotFound"));
  await client.close();
});
