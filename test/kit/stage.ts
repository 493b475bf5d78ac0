import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import type { NewSandbox, NewWorld, Sandbox, SandboxRequest, SandboxSpec, World, WorldSpec } from "@agentworlds/crds";
import { extract } from "tar-stream";
import { callEngine, expectProgress, expectSuccess } from "../../hack/parts/engine-api.ts";
import { installationId } from "../../operator/src/installation.ts";
import { isConflict } from "../../operator/src/kube/errors.ts";
import { createRegistryClient } from "../../operator/src/registry/client.ts";
import type { Digest, RegistryClient } from "../../operator/src/registry/contract.ts";
import type { RuntimeDriver } from "../../operator/src/runtime/contract.ts";
import { createDockerDriver } from "../../operator/src/runtime/docker/driver.ts";
import { loadHelper } from "../../operator/src/runtime/helper.ts";
import {
  baseImage,
  type ControlPlane,
  controlPlane,
  type Engine,
  engine,
  type RegistryWish,
  registry,
} from "./index.ts";
import { conditionOf, OPERATOR_NAMESPACE, openSite, type Site, until } from "./operator.ts";

/** Everything a test of the controllers acts on: a control plane of its own, an engine, a registry, a base image. */
export class Stage implements AsyncDisposable {
  readonly site: Site;
  readonly namespace: string;
  /** Reference of the base image in the registry. */
  readonly image: string;
  readonly registry: RegistryClient;
  readonly driver: RuntimeDriver;
  /** The API server's audit log, JSON lines. */
  readonly auditLogPath: string;
  /** Id of the installation. */
  readonly installation: string;
  readonly #cluster: ControlPlane;
  readonly #owned: AsyncDisposableStack;
  readonly #registryData: string | undefined;
  #names = 0;

  private constructor(fields: {
    site: Site;
    namespace: string;
    image: string;
    registry: RegistryClient;
    driver: RuntimeDriver;
    installation: string;
    cluster: ControlPlane;
    owned: AsyncDisposableStack;
    registryData?: string;
  }) {
    this.site = fields.site;
    this.namespace = fields.namespace;
    this.image = fields.image;
    this.registry = fields.registry;
    this.driver = fields.driver;
    this.auditLogPath = fields.cluster.auditLogPath;
    this.installation = fields.installation;
    this.#cluster = fields.cluster;
    this.#owned = fields.owned;
    this.#registryData = fields.registryData;
  }

  /** Other addresses for the operator than the parts' own: a fault proxy before the registry, a relay before the engine. */
  static async open(
    options: {
      registryUrl?: (url: string) => Promise<string>;
      engineEndpoint?: (dockerHost: string) => Promise<string>;
      /** A registry of this test alone, so that it may be damaged. Default: the shared one. */
      ownRegistry?: RegistryWish & { own: true };
      /** Default: the shared one. An own engine can be killed. */
      engine?: () => Promise<Engine>;
    } = {},
  ): Promise<Stage> {
    await using undo = new AsyncDisposableStack();
    const cluster = undo.use(await controlPlane({ own: true }));
    const docker = undo.use(await (options.engine ?? engine)());
    const own = options.ownRegistry && undo.use(await registry(options.ownRegistry));
    const images = own ?? undo.use(await registry());
    const base = undo.use(await baseImage("busybox", { engine: docker, registry: images }));
    const site = undo.use(
      await openSite(
        {
          kubeconfigPath: cluster.kubeconfigPath,
          registryUrl: (await options.registryUrl?.(images.url)) ?? images.url,
          dockerHost: docker.dockerHost,
          endpoint: (await options.engineEndpoint?.(docker.dockerHost)) ?? docker.dockerHost,
        },
        AbortSignal.timeout(30 * 60_000),
      ),
    );
    const client = undo.adopt(createRegistryClient({ url: images.url }), (one) => one.close());
    const installation = await installationId(site.kube, { namespace: OPERATOR_NAMESPACE }, site.signal);
    const driver = undo.adopt(
      createDockerDriver({
        installation,
        endpoint: docker.dockerHost,
        helper: (platform, signal) => loadHelper({ platform }, signal),
      }),
      (one) => one.close(),
    );
    const namespace = await site.namespace();
    const owned = undo.move();
    return new Stage({
      site,
      namespace,
      image: base.reference,
      registry: client,
      driver,
      installation,
      cluster,
      owned,
      ...(own === undefined ? {} : { registryData: own.dataDirectory }),
    });
  }

  /** The file that holds a blob in the registry of this test alone. */
  blobFile(digest: Digest): string {
    if (this.#registryData === undefined) throw new Error("the shared registry's files are not this test's");
    const hex = digest.slice("sha256:".length);
    return join(this.#registryData, "docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data");
  }

  /** The file by which a repository of that registry has a blob. */
  linkFile(repository: string, digest: Digest): string {
    if (this.#registryData === undefined) throw new Error("the shared registry's files are not this test's");
    const layers = join(this.#registryData, "docker/registry/v2/repositories", repository, "_layers/sha256");
    return join(layers, digest.slice("sha256:".length), "link");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _ = this.#owned;
    // The engine may be shared: no container of this test stays.
    await this.#removeContainers();
  }

  /** A file with this text, gone with the stage. */
  async temporaryFile(text: string): Promise<string> {
    const directory = await mkdtemp(join(tmpdir(), "agent-worlds-stage-"));
    this.#owned.defer(() => rm(directory, { recursive: true, force: true }));
    const path = join(directory, "file");
    await writeFile(path, text);
    return path;
  }

  /** A kubeconfig of somebody else. */
  identity(who: { user: string; groups?: readonly string[] }): Promise<string> {
    return this.#cluster.kubeconfigFor(who);
  }

  kubectl(...words: string[]): Promise<string> {
    return this.site.kubectl(...words);
  }

  async createWorld(
    spec: Partial<WorldSpec> = {},
    name = `w${++this.#names}`,
    namespace = this.namespace,
  ): Promise<World> {
    const world: NewWorld = {
      apiVersion: "agentworlds.dev/v1alpha1",
      kind: "World",
      metadata: { name, namespace },
      spec: { from: { image: this.image }, ...spec },
    };
    return this.site.worlds.create(world, { namespace, signal: this.site.signal });
  }

  async readyWorld(name?: string, spec: Partial<WorldSpec> = {}, namespace = this.namespace): Promise<World> {
    const created = await this.createWorld(spec, name, namespace);
    return until(
      () => this.world(created),
      (world) => conditionOf(world, "Ready")?.status === "True",
      { what: `World ${created.metadata.name} to be Ready` },
    );
  }

  world(world: World): Promise<World> {
    return this.site.worlds.get(refOf(world), { signal: this.site.signal });
  }

  sandbox(sandbox: Sandbox): Promise<Sandbox> {
    return this.site.sandboxes.get(refOf(sandbox), { signal: this.site.signal });
  }

  async sandboxOf(
    spec: Partial<SandboxSpec>,
    namespace = this.namespace,
    name = `s${++this.#names}`,
  ): Promise<Sandbox> {
    const sandbox: NewSandbox = {
      apiVersion: "agentworlds.dev/v1alpha1",
      kind: "Sandbox",
      metadata: { name, namespace },
      spec,
    };
    return this.site.sandboxes.create(sandbox, { namespace, signal: this.site.signal });
  }

  async readySandbox(world: World, spec: Partial<SandboxSpec> = {}): Promise<Sandbox> {
    const wish = { world: { name: world.metadata.name }, ...spec };
    return this.ready(await this.sandboxOf(wish, world.metadata.namespace), 1);
  }

  /** Waits for Ready in the given boot. */
  ready(sandbox: Sandbox, boot: number): Promise<Sandbox> {
    return until(
      () => this.sandbox(sandbox),
      (object) => conditionOf(object, "Ready")?.status === "True" && object.status.boot === boot,
      { what: `Sandbox ${sandbox.metadata.name} to be Ready in boot ${boot}` },
    );
  }

  hibernated(sandbox: Sandbox): Promise<Sandbox> {
    return until(
      () => this.sandbox(sandbox),
      (object) => conditionOf(object, "Hibernated")?.status === "True" && object.metadata.finalizers === undefined,
      { what: `Sandbox ${sandbox.metadata.name} to be Hibernated` },
    );
  }

  closed(sandbox: Sandbox): Promise<Sandbox> {
    return until(
      () => this.sandbox(sandbox),
      (object) => conditionOf(object, "Closed")?.status === "True" && object.metadata.finalizers === undefined,
      { what: `Sandbox ${sandbox.metadata.name} to be Closed` },
    );
  }

  /** Resolves when the object is gone. */
  async deleted(sandbox: Sandbox): Promise<void> {
    await this.kubectl("-n", this.namespace, "delete", "sandbox", sandbox.metadata.name, "--timeout=60s");
  }

  async patchMode(sandbox: Sandbox, mode: "Running" | "Hibernated"): Promise<Sandbox> {
    return this.site.sandboxes.patch(refOf(sandbox), { spec: { mode } }, { signal: this.site.signal });
  }

  /** Sets the mode and waits until it has been acted on. */
  async setMode(sandbox: Sandbox, mode: "Running" | "Hibernated"): Promise<Sandbox> {
    const patched = await this.patchMode(sandbox, mode);
    return mode === "Hibernated" ? this.hibernated(patched) : this.ready(patched, (patched.status.boot ?? 0) + 1);
  }

  /** Appends a request as a gateway does, by compare-and-swap. */
  async request(sandbox: Sandbox, wish: Pick<SandboxRequest, "id" | "verb" | "parameters">): Promise<void> {
    for (;;) {
      const fresh = await this.sandbox(sandbox);
      const requests = [
        ...(fresh.status.requests ?? []),
        { ...wish, user: "tester", at: new Date().toISOString() },
      ].slice(-16);
      try {
        await this.site.sandboxes.patchStatus(
          refOf(sandbox),
          { metadata: { resourceVersion: fresh.metadata.resourceVersion }, status: { requests } },
          { signal: this.site.signal },
        );
        return;
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
    }
  }

  async close(sandbox: Sandbox, discard?: "Snapshot" | "Discard"): Promise<Sandbox> {
    const id = `close-${++this.#names}`;
    await this.request(sandbox, { id, verb: "Close", ...(discard === undefined ? {} : { parameters: { discard } }) });
    return this.closed(sandbox);
  }

  /** Runs `sh -c` in the session's container and returns stdout; throws when it fails. */
  shell(sandbox: Sandbox, script: string): Promise<string> {
    return this.shellAs(sandbox, undefined, script);
  }

  /** The same as another user of the container. */
  async shellAs(sandbox: Sandbox, user: string | undefined, script: string): Promise<string> {
    const id = sandbox.status.compute?.id;
    if (id === undefined) throw new Error(`Sandbox ${sandbox.metadata.name} has no compute`);
    const request = { command: ["sh", "-c", script], ...(user === undefined ? {} : { user }) };
    const record = await this.driver.exec(id, request, this.site.signal);
    const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
    if (record.exitCode !== 0) throw new Error(`${script}: exit ${record.exitCode}: ${text(record.stderr)}`);
    return text(record.stdout);
  }

  /** Pushes a variant of the base image, changed as by Dockerfile instructions; returns its reference. */
  async imageWith(name: string, instructions: readonly string[]): Promise<string> {
    const { dockerHost } = this.site.ground;
    const { signal } = this.site;
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ Image: this.image, Cmd: ["sh"] });
    const created = await callEngine(dockerHost, { method: "POST", path: "/containers/create", headers, body, signal });
    const { Id: container } = JSON.parse(expectSuccess("create", created));
    const repository = this.image.replace(/\/busybox:.*$/, `/${name}`);
    const reference = `${repository}:latest`;
    const query = new URLSearchParams({ container, repo: repository, tag: "latest" });
    for (const instruction of instructions) query.append("changes", instruction);
    const post = (path: string, more: Record<string, string> = {}) =>
      callEngine(dockerHost, { method: "POST", path, headers: { ...headers, ...more }, signal });
    try {
      expectSuccess("commit", await post(`/commit?${query}`));
      const auth = { "x-registry-auth": Buffer.from("{}").toString("base64url") };
      expectProgress("push", await post(`/images/${encodeURIComponent(repository)}/push?tag=latest`, auth));
    } finally {
      await callEngine(dockerHost, { method: "DELETE", path: `/containers/${container}?force=1`, signal });
      await callEngine(dockerHost, {
        method: "DELETE",
        path: `/images/${encodeURIComponent(reference)}?force=1`,
        signal,
      });
    }
    return reference;
  }

  /** The text of a file as a version's own layers hold it: what `docker run` of it would read. */
  async readInVersion(world: World, digest: Digest | undefined, path: string): Promise<string | undefined> {
    if (digest === undefined) return undefined;
    const repository = this.repositoryOf(world);
    const { manifest } = await this.registry.getManifest(repository, digest, this.site.signal);
    if (manifest.kind !== "image") throw new Error(`${digest} is an index`);
    for (const layer of manifest.value.layers.toReversed()) {
      const found = await fileInLayer(this.registry.streamBlob(repository, layer, this.site.signal), path);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Makes the controller look at a Sandbox now, as any change of the object does. */
  async nudge(sandbox: Sandbox): Promise<void> {
    const annotations = { "example.com/nudge": String(++this.#names) };
    await this.site.sandboxes.patch(refOf(sandbox), { metadata: { annotations } }, { signal: this.site.signal });
  }

  /** Moves the deadline by compare-and-swap as a gateway does, again and again; returns the last deadline written. */
  async touchOften(sandbox: Sandbox, times: number): Promise<number> {
    let last = 0;
    for (let touches = 0; touches < times; ) {
      const fresh = await this.sandbox(sandbox);
      const ttlMs = (fresh.spec.ttlSeconds ?? 900) * 1000;
      const expiresAt = Math.max(Date.parse(fresh.status.expiresAt ?? ""), Date.now() + ttlMs);
      try {
        await this.site.sandboxes.patchStatus(
          refOf(sandbox),
          {
            metadata: { resourceVersion: fresh.metadata.resourceVersion },
            status: { expiresAt: new Date(expiresAt).toISOString() },
          },
          { signal: this.site.signal },
        );
        last = expiresAt;
        touches++;
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
    }
    return last;
  }

  /** Containers of a Sandbox on the host, in any state. */
  async containers(sandbox: Sandbox): Promise<number> {
    const ids = await this.#containerIds(`agentworlds.dev/sandbox-uid=${sandbox.metadata.uid}`);
    return ids.length;
  }

  repositoryOf(world: World): string {
    return (world.status.repository ?? "").replace(/^[^/]+\//, "");
  }

  tags(world: World): Promise<string[]> {
    return this.tagsOf(world.status.repository ?? "");
  }

  async tagsOf(repository: string): Promise<string[]> {
    return (await this.registry.listTags(repository.replace(/^[^/]+\//, ""), this.site.signal)).sort();
  }

  /** The image config behind a manifest of the World. */
  async config(
    world: World,
    digest: Digest | undefined,
  ): Promise<{ config: Record<string, unknown>; rootfs: { diff_ids: string[] }; history: unknown[] }> {
    if (digest === undefined) throw new Error("no digest");
    const repository = this.repositoryOf(world);
    const { manifest } = await this.registry.getManifest(repository, digest, this.site.signal);
    if (manifest.kind !== "image") throw new Error(`${digest} is an index`);
    const bytes = await this.registry.getBlob(repository, { digest: manifest.value.config.digest }, this.site.signal);
    return JSON.parse(new TextDecoder().decode(bytes));
  }

  async #containerIds(label: string): Promise<string[]> {
    const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
    const answer = await callEngine(this.site.ground.dockerHost, {
      path: `/containers/json?all=1&filters=${filters}`,
      signal: this.site.signal,
    });
    const listed: { Id: string }[] = JSON.parse(expectSuccess("list containers", answer));
    return listed.map(({ Id }) => Id);
  }

  async #removeContainers(): Promise<void> {
    for (const id of await this.#containerIds(`agentworlds.dev/installation=${this.installation}`)) {
      await callEngine(this.site.ground.dockerHost, {
        method: "DELETE",
        path: `/containers/${id}?force=1`,
        signal: AbortSignal.timeout(30_000),
      });
    }
  }
}

/** The text of one file of a gzipped layer, or undefined. */
async function fileInLayer(layer: AsyncIterable<Uint8Array>, path: string): Promise<string | undefined> {
  const entries = extract();
  const reading = pipeline(Readable.from(layer), createGunzip(), entries);
  let found: string | undefined;
  for await (const entry of entries) {
    if (entry.header.name === path) found = await text(entry);
    else entry.resume();
  }
  await reading;
  return found;
}

const refOf = (object: World | Sandbox): { name: string; namespace: string } => ({
  name: object.metadata.name,
  namespace: object.metadata.namespace ?? "",
});
