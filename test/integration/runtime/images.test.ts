import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { createGunzip } from "node:zlib";
import { extract, pack } from "tar-stream";
import { callEngine, expectSuccess } from "../../../hack/parts/engine-api.ts";
import { createRegistryClient } from "../../../operator/src/registry/client.ts";
import type { RegistryClient } from "../../../operator/src/registry/contract.ts";
import { Bench, refusal } from "../../conformance/driver/bench.ts";
import { type DockerUnderTest, makeDocker } from "../../conformance/driver/docker.ts";
import { registry } from "../../kit/index.ts";

/** Names of the entries of a gzipped layer. */
async function layerEntries(gzipped: Buffer): Promise<string[]> {
  const names: string[] = [];
  const reader = extract();
  reader.on("entry", (header, content, next) => {
    names.push(header.name);
    content.on("end", () => next());
    content.resume();
  });
  await new Promise<void>((resolve, reject) => {
    reader.on("finish", resolve).on("error", reject);
    Readable.from([gzipped]).pipe(createGunzip()).on("error", reject).pipe(reader);
  });
  return names;
}

/** A tar in the form of `docker save`: an image of tiny layers, no two alike. */
async function imageOfLayers(name: string, count: number): Promise<Buffer> {
  const layers = await Promise.all(
    Array.from({ length: count }, (_, index) => tarOf({ [`layer-${index}`]: `${index}` })),
  );
  const diffIds = layers.map((layer) => `sha256:${createHash("sha256").update(layer).digest("hex")}`);
  const architecture = process.arch === "arm64" ? "arm64" : "amd64";
  const config = { architecture, os: "linux", config: {}, rootfs: { type: "layers", diff_ids: diffIds } };
  const names = layers.map((_, index) => `${index}.tar`);
  return await tarOf({
    "config.json": JSON.stringify(config),
    ...Object.fromEntries(layers.map((layer, index) => [`${index}.tar`, layer])),
    "manifest.json": JSON.stringify([{ Config: "config.json", RepoTags: [name], Layers: names }]),
  });
}

async function tarOf(files: Readonly<Record<string, string | Buffer>>): Promise<Buffer> {
  const archive = pack();
  for (const [name, content] of Object.entries(files)) archive.entry({ name }, Buffer.from(content));
  archive.finalize();
  return await buffer(archive);
}

describe("images of a Docker host", () => {
  let under: DockerUnderTest;
  let client: RegistryClient;
  const signal = AbortSignal.timeout(10 * 60_000);
  before(async () => {
    under = await makeDocker();
    client = createRegistryClient({ url: under.registry.url });
  });
  after(async () => {
    await client.close();
    await under[Symbol.asyncDispose]();
  });

  const digestIn = async (url: string, repository: string): Promise<string> => {
    const own = createRegistryClient({ url });
    try {
      return (await own.getManifest(repository, "v1", signal)).digest;
    } finally {
      await own.close();
    }
  };

  const engine = async (method: string, path: string): Promise<string> =>
    expectSuccess(path, await callEngine(under.dockerHost, { method, path, signal }));

  const load = async (archive: Buffer): Promise<void> => {
    const headers = { "content-type": "application/x-tar" };
    const call = { method: "POST", path: "/images/load?quiet=1", headers, body: Readable.from([archive]), signal };
    const answer = expectSuccess("load", await callEngine(under.dockerHost, call));
    assert.ok(!answer.includes('"error"'), answer);
  };

  test("a commit pushed to a registry is a manifest whose new layer holds the files and nothing of the helper", async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    await bench.write(id, "/work/notes", "hello");
    const name = bench.localName();
    await bench.driver.commit(id, name, signal);
    const repository = `push-${randomUUID()}`;
    const target = { repository: `${under.registry.host}/${repository}`, tag: "v1", login: undefined };
    await bench.driver.push(name, target, signal);
    await bench.driver.push(name, target, signal);
    const { manifest } = await client.getManifest(repository, "v1", signal);
    assert.ok(manifest.kind === "image");
    const layer = manifest.value.layers.at(-1);
    assert.ok(layer !== undefined && manifest.value.layers.length === 2);
    const bytes = await buffer(Readable.from(client.streamBlob(repository, layer, signal)));
    const entries = await layerEntries(bytes);
    assert.ok(entries.includes("work/notes"), entries.join(" "));
    // The engine makes the mount point in the container's own layer, so the empty directory is there; the helper,
    // which lives in the volume, is not.
    const traces = entries.filter((entry) => entry.includes("agentworlds"));
    assert.deepEqual(
      traces.map((entry) => entry.replace(/\/$/, "")),
      [".agentworlds"],
    );
    const images = await engine(
      "GET",
      `/images/json?filters=${encodeURIComponent(JSON.stringify({ reference: [`*/${repository}`] }))}`,
    );
    assert.deepEqual(JSON.parse(images), [], "the name used for the push stays on the host");
  });

  test("environment, stdin and arguments of a command are in no argv but the command's own, and not in the committed config", async () => {
    await using bench = new Bench(under);
    const id = await bench.create();
    const secret = `s3cret-${randomUUID()}`;
    const running = bench.driver.exec(
      id,
      {
        command: ["sh", "-c", "cat >/tmp/in; while [ ! -e /tmp/stop ]; do sleep 0.01; done"],
        env: { TOKEN: secret },
        stdin: Buffer.from(secret),
      },
      signal,
    );
    await bench.shell(id, "while [ ! -s /tmp/in ]; do sleep 0.01; done");
    const argvs = await bench.shell(id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
    assert.equal(argvs.includes(secret), false);
    const inspected = await engine("GET", `/containers/${id}/json`);
    for (const execId of JSON.parse(inspected).ExecIDs ?? [])
      assert.equal((await engine("GET", `/exec/${execId}/json`)).includes(secret), false);
    await bench.write(id, "/tmp/stop", "");
    assert.equal((await running).exitCode, 0);
    assert.equal(inspected.includes(secret), false);
    const name = bench.localName();
    await bench.driver.commit(id, name, signal);
    assert.equal((await engine("GET", `/images/${name}/json`)).includes(secret), false);
  });

  test("commands run as the image's user in the image's directory, unless the request says otherwise", async () => {
    await using bench = new Bench(under);
    const source = await bench.create();
    const image = bench.localName();
    const [repo, tag] = image.split(":");
    const changes = ["USER 1000:1000", "WORKDIR /srv"].map((change) => `changes=${encodeURIComponent(change)}`);
    await engine("POST", `/commit?container=${source}&repo=${repo}&tag=${tag}&${changes.join("&")}`);
    const id = await bench.create({ image });
    assert.equal(await bench.shell(id, 'echo "$(id -u):$(id -g) $PWD"'), "1000:1000 /srv\n");
    await bench.write(id, "/srv/new/file", "x");
    assert.equal(await bench.shell(id, "stat -c %u:%g /srv/new /srv/new/file"), "1000:1000\n1000:1000\n");
    const asRoot = await bench.driver.exec(id, { command: ["id", "-u"], user: "0" }, signal);
    assert.equal(Buffer.from(asRoot.stdout).toString(), "0\n");
    await bench.shell(id, "kill -9 -1; true").catch(() => undefined);
    assert.equal(await bench.shell(id, "cat /proc/1/environ >/dev/null 2>&1 || echo hidden"), "hidden\n");
  });

  test("a container on an image of 125 layers is refused by name when it is committed", async () => {
    await using bench = new Bench(under);
    const image = bench.localName();
    await load(await imageOfLayers(image, 125));
    const id = await bench.create({ image });
    await assert.rejects(bench.driver.commit(id, bench.localName(), signal), refusal("CommitFailed", /125/));
    assert.equal(await bench.state(id), "Running");
  });

  test("what is on the host is not pulled again; pruned, it is missed, and a registry that is down is named", async () => {
    await using bench = new Bench(under);
    await using own = await registry({ own: true });
    const name = bench.localName();
    const id = await bench.create();
    await bench.driver.commit(id, name, signal);
    const repository = `${own.host}/pulled`;
    await bench.driver.push(name, { repository, tag: "v1", login: undefined }, signal);
    await bench.driver.remove(id, signal);
    await bench.driver.forgetCommit(name, signal);
    const image = `${repository}@${await digestIn(own.url, "pulled")}`;
    await bench.driver.pull(image, undefined, signal);
    await own.stop();
    await bench.driver.pull(image, undefined, signal);
    const booted = await bench.create({ image });
    const prune = (keep: number) => bench.driver.pruneImages({ repositoryPrefix: repository, keep }, signal);
    assert.deepEqual(await prune(0), [], "an image in use was removed");
    await bench.driver.remove(booted, signal);
    assert.deepEqual(await prune(1), []);
    assert.deepEqual(await prune(0), [image]);
    await assert.rejects(
      bench.driver.pull(image, undefined, signal),
      refusal("ImageUnavailable", /connection refused/),
    );
  });

  test("a registry with a login is used with it, and a wrong one is refused without being quoted", async () => {
    await using bench = new Bench(under);
    await using guarded = await registry({ own: true, auth: "basic" });
    const { username, password } = guarded;
    assert.ok(username !== undefined && password !== undefined);
    const id = await bench.create();
    const name = bench.localName();
    await bench.driver.commit(id, name, signal);
    const target = { repository: `${guarded.host}/guarded`, tag: "v1" };
    await bench.driver.push(name, { ...target, login: { username, password } }, signal);
    const wrong = { username, password: `wrong-${randomUUID()}` };
    const hidesSecret = (code: "PushFailed" | "ImageUnavailable") => (error: unknown) =>
      refusal(code)(error) &&
      error instanceof Error &&
      !JSON.stringify([error.message, error.cause]).includes(wrong.password);
    await assert.rejects(bench.driver.push(name, { ...target, login: wrong }, signal), hidesSecret("PushFailed"));
    await assert.rejects(bench.driver.pull(`${target.repository}:v1`, wrong, signal), hidesSecret("ImageUnavailable"));
    await bench.driver.pull(`${target.repository}:v1`, { username, password }, signal);
    await bench.driver.pruneImages({ repositoryPrefix: target.repository, keep: 0 }, signal);
  });
});
