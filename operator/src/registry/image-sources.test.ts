import assert from "node:assert/strict";
import { test } from "node:test";
import { createRegistryClient } from "./client.ts";
import { MEDIA_TYPES } from "./contract.ts";
import { digestOf } from "./digest.ts";
import { parseDockerConfig } from "./docker-config.ts";
import { RegistryError } from "./errors.ts";
import { fakeRegistry, type Intercept, impatientClock, refuse } from "./fake-registry.test-kit.ts";
import { createImageSources } from "./image-sources.ts";
import { DEVELOPMENT_SOURCES } from "./source-policy.ts";
import { TargetRegistryError } from "./sources.ts";

const { signal } = new AbortController();
const json = (value: unknown) => Buffer.from(JSON.stringify(value));
const ownOf = (host: string) => ({ registries: [host], prefix: "worlds", installation: "i" });
const layer = Buffer.from("a layer");
const config = json({ os: "linux", architecture: "amd64", rootfs: { type: "layers", diff_ids: [digestOf(layer)] } });
const describe = (mediaType: string, bytes: Buffer) => ({ mediaType, digest: digestOf(bytes), size: bytes.length });
const manifest = json({
  schemaVersion: 2,
  mediaType: MEDIA_TYPES.ociManifest,
  config: describe(MEDIA_TYPES.ociConfig, config),
  layers: [describe(MEDIA_TYPES.ociLayer, layer)],
});

/** A source with one image, and the installation's registry. */
async function copying(harm: { source?: Intercept; target?: Intercept }) {
  await using parts = new AsyncDisposableStack();
  const source = parts.use(
    await fakeRegistry((request, response) => {
      if (harm.source?.(request, response)) return true;
      if (!request.target.includes("/manifests/")) return false;
      response.writeHead(200, { "content-type": MEDIA_TYPES.ociManifest }).end(manifest);
      return true;
    }),
  );
  for (const bytes of [layer, config]) source.blobs.set(digestOf(bytes), bytes);
  const target = parts.use(await fakeRegistry(harm.target));
  const client = parts.adopt(createRegistryClient({ url: target.url }, { clock: impatientClock }), (one) =>
    one.close(),
  );
  const sources = createImageSources({
    target: client,
    logins: async () => parseDockerConfig('{"auths":{}}'),
    policy: { ...DEVELOPMENT_SOURCES, own: ownOf(new URL(target.url).host) },
  });
  const copy = (host: string) =>
    sources.copyInto(`${host}/tools:1`, { repository: "worlds/lab", platform: "linux/amd64" }, signal);
  const outcome = await copy(new URL(source.url).host).catch((error: unknown) => error);
  return { outcome, target };
}

test("an image is copied blob by blob", async () => {
  const { outcome, target } = await copying({});
  assert.ok(!(outcome instanceof Error), String(outcome));
  assert.deepEqual([...target.blobs.keys()].sort(), [digestOf(layer), digestOf(config)].sort());
});

const refusals: [status: number, code: string][] = [
  [401, "UNAUTHORIZED"],
  [403, "DENIED"],
  [413, "SIZE_INVALID"],
];
for (const [status, code] of refusals) {
  test(`a ${status} of the installation's registry is told as its own, not as the image's`, async () => {
    const { outcome } = await copying({
      target: (request, response) => {
        if (request.method === "GET") return false;
        refuse(response, status, code);
        return true;
      },
    });
    assert.ok(outcome instanceof TargetRegistryError, String(outcome));
    assert.equal(outcome.failure.status, status);
  });
}

test("a source that refuses its blob in the middle of the copy is told as the source's", async () => {
  const { outcome } = await copying({
    source: (request, response) => {
      if (!request.target.includes(digestOf(layer))) return false;
      refuse(response, 403, "DENIED");
      return true;
    },
  });
  assert.ok(outcome instanceof RegistryError, String(outcome));
  assert.equal(outcome.code, "Unauthorized");
});

test("an image in the installation's own registry: refused credentials are the installation's", async () => {
  await using own = await fakeRegistry((_request, response) => {
    refuse(response, 401, "UNAUTHORIZED");
    return true;
  });
  const client = createRegistryClient({ url: own.url });
  const { host } = new URL(own.url);
  const sources = createImageSources({
    target: client,
    logins: () => assert.fail("the logins of other registries were asked for"),
    policy: { ...DEVELOPMENT_SOURCES, own: ownOf(host) },
  });
  await assert.rejects(sources.resolve(`${host}/base/tools:1`, "linux/amd64", signal), TargetRegistryError);
  await client.close();
});

test("the login of a source is given for what may be read from it, and for nothing else", async () => {
  await using own = await fakeRegistry();
  const client = createRegistryClient({ url: own.url });
  const { host } = new URL(own.url);
  const auths = { "private.example": { username: "ada", password: "p" }, [host]: { username: "other", password: "p" } };
  const sources = createImageSources({
    target: client,
    logins: async () => parseDockerConfig(JSON.stringify({ auths })),
    policy: { ...DEVELOPMENT_SOURCES, own: ownOf(host) },
  });
  assert.equal((await sources.login("private.example/tools:1", signal))?.username, "ada");
  assert.equal(await sources.login("public.example/tools:1", signal), undefined);
  assert.equal(
    await sources.login(`${host}/base/tools:1`, signal),
    undefined,
    "the installation's own, which has none",
  );
  await assert.rejects(sources.login("private.example/worlds/i/team/lab:v1", signal), { code: "SourceNotAllowed" });
  await client.close();
});
