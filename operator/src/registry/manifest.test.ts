import assert from "node:assert/strict";
import { test } from "node:test";
import { createRegistryClient } from "./client.ts";
import { MEDIA_TYPES } from "./contract.ts";
import { digestOf } from "./digest.ts";
import { isRegistryError, type RegistryErrorCode } from "./errors.ts";
import { fakeServer, refuse } from "./fake-registry.test-kit.ts";
import { parseManifest } from "./manifest.ts";

const { signal } = new AbortController();
const D = digestOf(Buffer.from("x"));
const config = { mediaType: MEDIA_TYPES.ociConfig, digest: D, size: 1 };
const layer = { mediaType: MEDIA_TYPES.ociLayerGzip, digest: D, size: 1 };
const image = { schemaVersion: 2, mediaType: MEDIA_TYPES.ociManifest, config, layers: [layer] };
const index = {
  schemaVersion: 2,
  mediaType: MEDIA_TYPES.ociIndex,
  manifests: [{ ...config, mediaType: MEDIA_TYPES.ociManifest }],
};
const without = <T extends object>(value: T, key: keyof T) =>
  Object.fromEntries(Object.entries(value).filter(([name]) => name !== key));
const bytesOf = (value: unknown) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value));

const readable: [
  name: string,
  body: object,
  contentType: string | undefined,
  want: [kind: string, mediaType: string],
][] = [
  ["an OCI image", image, MEDIA_TYPES.ociManifest, ["image", MEDIA_TYPES.ociManifest]],
  ["an OCI index", index, MEDIA_TYPES.ociIndex, ["index", MEDIA_TYPES.ociIndex]],
  [
    "a docker image",
    { ...image, mediaType: MEDIA_TYPES.dockerManifest },
    MEDIA_TYPES.dockerManifest,
    ["image", MEDIA_TYPES.dockerManifest],
  ],
  [
    "a docker list",
    { ...index, mediaType: MEDIA_TYPES.dockerList },
    MEDIA_TYPES.dockerList,
    ["index", MEDIA_TYPES.dockerList],
  ],
  [
    "a body without media type",
    without(image, "mediaType"),
    MEDIA_TYPES.dockerManifest,
    ["image", MEDIA_TYPES.dockerManifest],
  ],
  ["no Content-Type", image, undefined, ["image", MEDIA_TYPES.ociManifest]],
  ["neither", without(index, "mediaType"), undefined, ["index", MEDIA_TYPES.ociIndex]],
  [
    "a Content-Type with parameters",
    image,
    `${MEDIA_TYPES.ociManifest}; charset=utf-8`,
    ["image", MEDIA_TYPES.ociManifest],
  ],
  ["a Content-Type that says only JSON", image, "application/json", ["image", MEDIA_TYPES.ociManifest]],
  [
    "fields that nobody knows",
    { ...image, subject: {}, future: 1 },
    MEDIA_TYPES.ociManifest,
    ["image", MEDIA_TYPES.ociManifest],
  ],
  [
    "null where nothing is meant",
    { ...image, annotations: null },
    MEDIA_TYPES.ociManifest,
    ["image", MEDIA_TYPES.ociManifest],
  ],
];
for (const [name, body, contentType, [kind, mediaType]] of readable) {
  test(`manifest: ${name} is read`, () => {
    const parsed = parseManifest(bytesOf(body), contentType);
    assert.deepEqual(
      [parsed.manifest.kind, parsed.mediaType, parsed.digest],
      [kind, mediaType, digestOf(bytesOf(body))],
    );
  });
}

const unreadable: [name: string, body: unknown, contentType: string | undefined][] = [
  ["an image that was sent as an index", image, MEDIA_TYPES.ociIndex],
  ["both at once (CVE-2021-41190)", { ...image, manifests: [] }, MEDIA_TYPES.ociManifest],
  ["an image that calls itself an index", { ...image, mediaType: MEDIA_TYPES.ociIndex }, undefined],
  ["schema 1", { schemaVersion: 1, fsLayers: [] }, "application/vnd.docker.distribution.manifest.v1+prettyjws"],
  ["a type that nobody knows", { ...image, mediaType: "application/x" }, undefined],
  ["no JSON", "<html>", undefined],
  ["a digest of another kind", { ...image, config: { ...config, digest: "md5:1" } }, undefined],
  ["a negative size", { ...image, layers: [{ ...layer, size: -1 }] }, undefined],
  ["a size beyond exactness", { ...image, layers: [{ ...layer, size: 2 ** 60 }] }, undefined],
  ["no config", without(image, "config"), undefined],
];
for (const [name, body, contentType] of unreadable) {
  test(`manifest: ${name} is Malformed`, () => {
    assert.throws(
      () => parseManifest(bytesOf(body), contentType),
      (error) => isRegistryError(error, "Malformed"),
    );
  });
}

async function withServer<T>(
  answer: Parameters<typeof fakeServer>[0],
  use: (client: ReturnType<typeof createRegistryClient>) => Promise<T>,
): Promise<T> {
  await using registry = await fakeServer(answer);
  const client = createRegistryClient({ url: registry.url });
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

const other = bytesOf({ ...image, annotations: { planted: "yes" } });
const answers: [name: string, reference: string, headers: Record<string, string>, code: RegistryErrorCode][] = [
  ["bytes that are not the digest asked for", digestOf(bytesOf(image)), {}, "DigestMismatch"],
  ["bytes that are not what the registry says of the tag", "latest", { "docker-content-digest": D }, "DigestMismatch"],
];
for (const [name, reference, headers, code] of answers) {
  test(`a registry that sends ${name} is not believed`, async () => {
    await withServer(
      (_request, response) =>
        response.writeHead(200, { "content-type": MEDIA_TYPES.ociManifest, ...headers }).end(other),
      (client) => assert.rejects(client.getManifest("a/b", reference, signal), (error) => isRegistryError(error, code)),
    );
  });
}

test("a manifest that never ends is refused", async () => {
  await withServer(
    (_request, response) => response.writeHead(200).end(Buffer.alloc(5 * 1024 * 1024, " ")),
    (client) =>
      assert.rejects(client.getManifest("a/b", "latest", signal), (error) => isRegistryError(error, "Refused")),
  );
});

test("a put that the registry stored as something else is not believed", async () => {
  await withServer(
    (_request, response) => response.writeHead(201, { "docker-content-digest": D }).end(),
    async (client) => {
      const put = client.putManifest(
        "a/b",
        { reference: "v1", mediaType: MEDIA_TYPES.ociManifest, bytes: other },
        signal,
      );
      await assert.rejects(put, (error) => isRegistryError(error, "DigestMismatch"));
    },
  );
});

test("bytes under the wrong digest are not even sent", async () => {
  await using registry = await fakeServer((_request, response) => response.writeHead(201).end());
  const client = createRegistryClient({ url: registry.url });
  const put = client.putManifest("a/b", { reference: D, mediaType: MEDIA_TYPES.ociManifest, bytes: other }, signal);
  await assert.rejects(put, (error) => isRegistryError(error, "DigestMismatch"));
  assert.equal(registry.requests.length, 0);
  await client.close();
});

for (const [repository, reference] of [
  ["../etc", "v1"],
  ["a/b", "../../x"],
  ["A/b", "v1"],
  ["a/b", ""],
  ["a/b", "x?y"],
] as const) {
  test(`a name that would leave its place in the path is refused: ${repository}:${reference}`, async () => {
    await using registry = await fakeServer((_request, response) => refuse(response, 404, "NAME_UNKNOWN"));
    const client = createRegistryClient({ url: registry.url });
    await assert.rejects(client.getManifest(repository, reference, signal), (error) =>
      isRegistryError(error, "Refused"),
    );
    assert.equal(registry.requests.length, 0);
    await client.close();
  });
}

const deletions: [name: string, status: number, code: string, outcome: "done" | RegistryErrorCode][] = [
  ["202", 202, "", "done"],
  ["404 MANIFEST_UNKNOWN", 404, "MANIFEST_UNKNOWN", "done"],
  ["404 NAME_UNKNOWN", 404, "NAME_UNKNOWN", "done"],
  ["405: deletion is switched off", 405, "UNSUPPORTED", "Refused"],
  ["400", 400, "DIGEST_INVALID", "Refused"],
  ["403", 403, "DENIED", "Unauthorized"],
];
for (const [name, status, code, outcome] of deletions) {
  test(`a deletion answered with ${name}: ${outcome}`, async () => {
    await withServer(
      (_request, response) => (code === "" ? void response.writeHead(status).end() : refuse(response, status, code)),
      async (client) => {
        const deletion = client.deleteManifest("a/b", D, signal);
        if (outcome === "done") await deletion;
        else await assert.rejects(deletion, (error) => isRegistryError(error, outcome));
      },
    );
  });
}
