/**
 * The auditor's self-test on a real registry, engine and API server: a clean history passes, and each planted defect is found
 * and called by its name. What finds nothing when something is wrong proves nothing when it finds nothing.
 */
import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { globSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { createGzip } from "node:zlib";
import { pack } from "tar-stream";
import type { ControlPlane } from "../../hack/parts/control-plane.ts";
import { callEngine, expectSuccess } from "../../hack/parts/engine-api.ts";
import { kubectlWords } from "../../hack/parts/kubectl.ts";
import { installOperator } from "../../hack/parts/operator.ts";
import { run } from "../../hack/parts/process.ts";
import type { Registry } from "../../hack/parts/registry.ts";
import { baseImage, controlPlane, type Engine, engine, registry } from "../kit/index.ts";
import { type FindingKind, indexPlaceOf } from "./auditor/judge.ts";
import { type Version, VersionReader } from "./auditor/versions.ts";
import { Witness } from "./auditor/witness.ts";
import { type AuditReport, audit } from "./auditor.ts";
import type { LedgerEntry, LedgerFact } from "./ledger.ts";

const INSTALLATION = `audit-${randomUUID().slice(0, 8)}`;
const sandbox = { sandbox: "uid-1", boot: 1 } as const;

describe("the auditor", () => {
  const parts = new AsyncDisposableStack();
  let cluster: ControlPlane;
  let host: Engine;
  let images: Registry;
  let image: string;

  before(async () => {
    cluster = parts.use(await controlPlane({ own: true }));
    host = parts.use(await engine());
    images = parts.use(await registry({ own: true }));
    image = parts.use(await baseImage("busybox", { engine: host, registry: images })).reference;
    await installOperator(cluster.kubeconfigPath, AbortSignal.timeout(120_000));
  });
  after(() => parts.disposeAsync());

  const kubectl = (words: readonly string[], input = ""): Promise<string> =>
    run(kubectlWords(cluster.kubeconfigPath, ...words), { signal: AbortSignal.timeout(60_000), input });

  /** Three versions of a World of its own, each with the files of the one before, and the ledger that goes with them. */
  async function history(): Promise<History> {
    const made = new History(images, `worlds/${INSTALLATION}/ns/w-${randomUUID().slice(0, 8)}`);
    await made.enter();
    await made.publish(0, []);
    await made.publish(1, ["a"]);
    await made.publish(2, ["a", "b"]);
    made.note({ kind: "ended", ...sandbox, outcome: "Published" });
    return made;
  }

  async function findings(ledger: readonly LedgerEntry[], rest = { from: 0, to: 1 }): Promise<FindingKind[]> {
    const report = await reportOn(ledger, rest);
    return report.findings.map(({ kind }) => kind);
  }

  async function reportOn(
    ledger: readonly LedgerEntry[],
    rest: { from: number; to: number },
    witnessed: ReadonlyMap<string, Version> = new Map(),
  ): Promise<AuditReport> {
    const { users } = JSON.parse(await readFile(cluster.kubeconfigPath, "utf8"));
    const pem = (field: string): string => Buffer.from(users[0].user[field], "base64").toString("utf8");
    return audit({
      ledger,
      registry: { url: images.url, dataDirectory: images.dataDirectory },
      engineSocket: host.dockerHost.replace(/^unix:\/\//, ""),
      installation: INSTALLATION,
      cluster: {
        url: cluster.url,
        tls: { ca: cluster.caPem, cert: pem("client-certificate-data"), key: pem("client-key-data") },
      },
      auditLogPath: cluster.auditLogPath,
      rest: { ...rest, agent: "kubectl" },
      tags: new Map(),
      witnessed,
    });
  }

  test("a clean history passes, and was looked at", async () => {
    const made = await history();
    const report = await reportOn(made.ledger, { from: 0, to: 1 });
    assert.deepEqual(report.findings, []);
    assert.deepEqual(report.looked, { versions: 3, files: 2, boots: 1, tags: 4 });
  });

  test("a version's manifest is deleted", async () => {
    const made = await history();
    await made.delete(`manifests/${made.digestOf(1)}`);
    assert.deepEqual(await findings(made.ledger), ["lost"]);
  });

  test("a blob of a version is deleted", async () => {
    const made = await history();
    await made.delete(`blobs/${made.layerOf(1)}`);
    assert.deepEqual(await findings(made.ledger), ["lost"]);
  });

  test("a World goes with its versions: what it held was looked at before, and a loss that came first is not hidden", async () => {
    const report = async (made: History): Promise<AuditReport> => {
      const witness = new Witness({ reader: new VersionReader(images.url), ledger: () => made.ledger, patienceMs: 0 });
      made.note({ kind: "released", world: made.world });
      await witness.look(made.world);
      for (const version of [0, 1, 2]) await made.delete(`manifests/${made.digestOf(version)}`);
      return reportOn(made.ledger, { from: 0, to: 1 }, witness.seen);
    };
    assert.deepEqual((await report(await history())).findings, []);
    const damaged = await history();
    await damaged.delete(`blobs/${damaged.layerOf(1)}`);
    const kinds = (await report(damaged)).findings.map(({ kind }) => kind);
    assert.deepEqual(kinds, ["lost"]);
  });

  test("versions that went although nobody released their World are lost, whatever else was released", async () => {
    const made = await history();
    const other = await history();
    other.note({ kind: "released", world: other.world });
    for (const version of [0, 1, 2]) await made.delete(`manifests/${made.digestOf(version)}`);
    const witness = new Witness({ reader: new VersionReader(images.url), ledger: () => other.ledger });
    await witness.look(other.world);
    const report = await reportOn([...made.ledger, ...other.ledger], { from: 0, to: 1 }, witness.seen);
    const kinds = report.findings.map(({ kind }) => kind);
    assert.deepEqual(kinds, ["lost", "lost", "lost", "lostWithoutCondition"]);
  });

  test("a blob is cut short on the registry's disk", async () => {
    const made = await history();
    const hex = made.layerOf(1).slice("sha256:".length);
    const path = join(images.dataDirectory, "docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data");
    await writeFile(path, (await readFile(path)).subarray(0, -1));
    assert.deepEqual(await findings(made.ledger), ["lost"]);
  });

  test("a file is stripped from the newest version: it was acknowledged, and nothing says that it is gone", async () => {
    const made = await history();
    await made.publish(3, ["b"]);
    assert.deepEqual(await findings(made.ledger), ["lost", "lostWithoutCondition"]);
  });

  test("a tag is moved, and moved back again", async () => {
    const made = await history();
    await made.tag("v1", made.digestOf(2));
    await made.tag("v1", made.digestOf(1));
    assert.deepEqual(await findings(made.ledger), ["overwrittenTags"]);
  });

  test("a World's entry in the index of lineages goes, though nobody released it", async () => {
    const made = await history();
    await made.deleteEntry();
    assert.deepEqual(await findings(made.ledger), ["lost"]);
  });

  test("a World's entry in the index is overwritten", async () => {
    const made = await history();
    await made.enter("otherwise");
    assert.deepEqual(await findings(made.ledger), ["overwrittenTags"]);
  });

  test("a session boots from an older version than was acknowledged", async () => {
    const made = await history();
    const later = { sandbox: "uid-2", boot: 1 } as const;
    made.note({ kind: "wanted", world: made.world, ...later, since: Date.now() + 1 });
    made.note({ kind: "booted", world: made.world, ...later, digest: made.digestOf(1), files: made.files(1) });
    assert.deepEqual(await findings(made.ledger), ["silentOlderBoots"]);
  });

  test("a container is left that no object accounts for", async () => {
    const made = await history();
    const labels = {
      "agentworlds.dev/installation": INSTALLATION,
      "agentworlds.dev/sandbox-uid": "uid-9",
      "agentworlds.dev/boot": "1",
    };
    const created = await callEngine(host.dockerHost, {
      method: "POST",
      path: `/containers/create?name=aw-${INSTALLATION}-1`,
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ Image: image, Cmd: ["true"], Labels: labels }),
      signal: AbortSignal.timeout(30_000),
    });
    const { Id } = JSON.parse(expectSuccess("create", created));
    try {
      assert.deepEqual(await findings(made.ledger), ["leakedContainers"]);
    } finally {
      await callEngine(host.dockerHost, {
        method: "DELETE",
        path: `/containers/${Id}?force=1`,
        signal: AbortSignal.timeout(30_000),
      });
    }
  });

  test("a finalizer holds a deletion for ever", async () => {
    const made = await history();
    const world = {
      apiVersion: "agentworlds.dev/v1alpha1",
      kind: "World",
      metadata: { name: "held", namespace: "default", finalizers: ["example.com/held"] },
      spec: { from: { image } },
    };
    await kubectl(["apply", "-f", "-"], JSON.stringify(world));
    await kubectl(["delete", "world", "held", "--wait=false"]);
    try {
      assert.deepEqual(await findings(made.ledger), ["stuckFinalizers"]);
    } finally {
      await kubectl(["patch", "world", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}']);
    }
  });

  test("a loop writes at rest", async () => {
    const made = await history();
    const from = Date.now();
    for (let turn = 0; turn < 3; turn++)
      await kubectl(["annotate", "namespace", "default", "--overwrite", `t=${turn}`]);
    assert.deepEqual(await findings(made.ledger, { from, to: Date.now() + 1 }), Array(3).fill("writesAtRest"));
  });

  test("it shares no code with the operator", async () => {
    const files = ["auditor.ts", "ledger.ts", ...globSync("auditor/*.ts", { cwd: import.meta.dirname })];
    assert.ok(files.length > 6);
    for (const file of files) {
      const imports = [...(await readFile(join(import.meta.dirname, file), "utf8")).matchAll(/from "([^"]+)"/g)];
      const foreign = imports
        .map((match) => match[1] ?? "")
        .filter((from) => !/^(node:|tar-stream$|\.\.?\/(?!\.\.))/.test(from));
      assert.deepEqual(foreign, [], file);
    }
  });
});

/** Versions put into the registry by hand. Files hold their own names and are written by one session. */
class History {
  readonly world: string;
  readonly ledger: LedgerEntry[] = [];
  readonly #registry: Registry;
  readonly #repository: string;
  readonly #digests: string[] = [];
  readonly #layers: string[] = [];
  #entry = "";
  readonly #written = new Set<string>();

  constructor(images: Registry, repository: string) {
    this.#registry = images;
    this.#repository = repository;
    this.world = repository;
    this.note({ kind: "world", world: this.world, uid: "w", keepVersions: 0 });
    this.note({ kind: "repository", world: this.world, repository });
  }

  note(fact: LedgerFact): void {
    this.ledger.push({ ...fact, at: Date.now() });
  }

  digestOf(version: number): string {
    return this.#digests[version] ?? "";
  }

  layerOf(version: number): string {
    return this.#layers[version] ?? "";
  }

  files(version: number): Record<string, string> {
    const names = version === 0 ? [] : version === 1 ? ["a"] : ["a", "b"];
    return Object.fromEntries(names.map((name) => [this.#name(name), sha256(this.#name(name))]));
  }

  /** One layer that replaces the whole work folder, so that a version can lack what its parent had. */
  async publish(version: number, names: readonly string[]): Promise<void> {
    const tar = pack();
    tar.entry({ name: "work/", type: "directory" });
    tar.entry({ name: "work/.wh..wh..opq" }, "");
    for (const name of names) tar.entry({ name: `work/${this.#name(name)}` }, this.#name(name));
    // What no two versions have in common: their layers are not the same blob.
    tar.entry({ name: `etc/version-${this.world}-${version}` }, "");
    tar.finalize();
    const layer = await buffer(tar.pipe(createGzip()));
    const config = Buffer.from(JSON.stringify({ version, world: this.world }));
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: MANIFEST,
        config: await this.#put(config, "application/vnd.oci.image.config.v1+json"),
        layers: [await this.#put(layer, "application/vnd.oci.image.layer.v1.tar+gzip")],
      }),
    );
    this.#layers[version] = digest(layer);
    this.#digests[version] = digest(manifest);
    await this.#call("PUT", `manifests/v${version}`, { body: manifest, type: MANIFEST });
    if (version === 0) {
      this.note({ kind: "wanted", world: this.world, ...sandbox, since: Date.now() });
      this.note({ kind: "booted", world: this.world, ...sandbox, digest: this.digestOf(0), files: {} });
    }
    for (const name of names) this.#write(this.#name(name));
    this.note({ kind: "version", world: this.world, version, digest: this.digestOf(version) });
  }

  /** In the index of lineages, as the operator enters a World. */
  async enter(words = "as it is"): Promise<void> {
    const { index, entry } = indexPlaceOf(this.#repository);
    const empty = await this.#put(Buffer.from("{}"), "application/vnd.oci.empty.v1+json", index);
    const annotations = { repository: this.#repository, words };
    const body = Buffer.from(
      JSON.stringify({ schemaVersion: 2, mediaType: MANIFEST, config: empty, layers: [empty], annotations }),
    );
    this.#entry = digest(body);
    await this.#call("PUT", `manifests/${entry}`, { repository: index, body, type: MANIFEST });
  }

  async deleteEntry(): Promise<void> {
    await this.#call("DELETE", `manifests/${this.#entry}`, { repository: indexPlaceOf(this.#repository).index });
  }

  async tag(tag: string, to: string): Promise<void> {
    const answer = await this.#call("GET", `manifests/${to}`, { accept: MANIFEST });
    await this.#call("PUT", `manifests/${tag}`, { body: Buffer.from(await answer.arrayBuffer()), type: MANIFEST });
  }

  async delete(path: string): Promise<void> {
    await this.#call("DELETE", path, {});
  }

  #name(file: string): string {
    return `${this.world.replaceAll("/", "-")}-${file}`;
  }

  #write(path: string): void {
    if (this.#written.has(path)) return;
    this.#written.add(path);
    this.note({ kind: "written", world: this.world, ...sandbox, path, sha256: sha256(path) });
  }

  async #put(
    bytes: Buffer,
    mediaType: string,
    repository = this.#repository,
  ): Promise<{ mediaType: string; digest: string; size: number }> {
    const begun = await this.#call("POST", "blobs/uploads/", { repository });
    const target = new URL(begun.headers.get("location") ?? "", this.#registry.url);
    target.searchParams.set("digest", digest(bytes));
    const put = await fetch(target, { method: "PUT", body: new Uint8Array(bytes) });
    assert.equal(put.status, 201);
    return { mediaType, digest: digest(bytes), size: bytes.length };
  }

  async #call(
    method: string,
    path: string,
    call: { body?: Buffer; type?: string; accept?: string; repository?: string },
  ): Promise<Response> {
    const { repository = this.#repository } = call;
    const answer = await fetch(`${this.#registry.url}/v2/${repository}/${path}`, {
      method,
      headers: {
        ...(call.type === undefined ? {} : { "content-type": call.type }),
        ...(call.accept === undefined ? {} : { accept: call.accept }),
      },
      ...(call.body === undefined ? {} : { body: new Uint8Array(call.body) }),
    });
    assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
    return answer;
  }
}

const MANIFEST = "application/vnd.oci.image.manifest.v1+json";
const sha256 = (bytes: string | Buffer): string => createHash("sha256").update(bytes).digest("hex");
const digest = (bytes: Buffer): string => `sha256:${sha256(bytes)}`;
