/**
 * Everything the Sandbox controller works with, in memory and with counted effects, for tests that end the operator between
 * any two of them. A container's filesystem is the list of what was worked in it; a layer holds one entry.
 */
import type { Runtime, Sandbox, World } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isConflict } from "../kube/errors.ts";
import { NAMESPACES, RUNTIMES, SANDBOXES, WORLDS } from "../kube/resource-types.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { silentLog } from "../reconciler/log.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { createTestClock } from "../reconciler/test-clock.ts";
import { type Descriptor, type Digest, MEDIA_TYPES, type RegistryClient } from "../registry/contract.ts";
import { installationRegistry, worldRepository } from "../registry/installation.ts";
import type { ComputeOwner, ObservedCompute, RuntimeDriver } from "../runtime/contract.ts";
import { computeName } from "../runtime/contract.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { memoryResource } from "../runtime/memory-resource.ts";
import { createRuntimeRescues } from "../runtime/rescues.ts";
import { at, runtimeOf, sandboxOf, T0, versionOf, worldOf } from "../runtime/test-objects.ts";
import { createDockerCommit } from "../snapshot/docker-commit.ts";
import { digestOf } from "../snapshot/image-config.ts";
import { MemoryRegistry } from "../snapshot/memory-registry.ts";
import type { NamespaceObject } from "../world/scope.ts";
import { createWorldStatusWriter } from "../world/status-writer.ts";
import { AdmissionDesk } from "./admission.ts";
import { reconcileSandboxes } from "./controller.ts";
import type { SandboxDependencies } from "./scope.ts";

/** The operator ended here. */
export class Killed extends Error {
  override readonly name = "Killed";
}

/** Counts every effect outside the process, and ends the process before or after a chosen one. */
export class Effects {
  /** Names of effects so far, in order. */
  readonly seen: string[] = [];
  /** Whether the process has ended at the chosen effect. */
  wasKilled = false;
  #isDead = false;
  #kill: { readonly index: number; readonly when: "before" | "after" } | undefined;
  #killAfter: string | undefined;

  constructor(kill?: { index: number; when: "before" | "after" }) {
    this.#kill = kill;
  }

  /** Ends the process after the next effect of this name. */
  killAfter(name: string): void {
    this.#killAfter = name;
  }

  /** A new process begins; it is not killed again. */
  restart(): void {
    this.#isDead = false;
  }

  /** A read: it changes nothing, and a dead process makes none. */
  async read<R>(call: () => Promise<R>): Promise<R> {
    if (this.#isDead) throw new Killed("the operator does not run");
    return call();
  }

  async write<R>(name: string, call: () => Promise<R>): Promise<R> {
    if (this.#isDead) throw new Killed("the operator does not run");
    if (name === this.#killAfter) {
      this.#kill = { index: this.seen.length, when: "after" };
      this.#killAfter = undefined;
    }
    const isLast = this.seen.push(name) - 1 === this.#kill?.index;
    if (isLast && this.#kill?.when === "before") this.#die(`before ${name}`);
    const result = await call();
    if (isLast) this.#die(`after ${name}`);
    return result;
  }

  #die(where: string): never {
    this.#isDead = true;
    this.wasKilled = true;
    throw new Killed(where);
  }
}

interface Container {
  readonly owner: ComputeOwner;
  state: "Running" | "Frozen" | "Exited";
  readonly work: string[];
}

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const layerOf = (entry: string): Descriptor => {
  const bytes = bytesOf(entry);
  return { mediaType: MEDIA_TYPES.ociLayerGzip, digest: digestOf(bytes), size: bytes.byteLength };
};

/** One container host and the registry it pushes to. */
export class MemoryHost {
  readonly containers = new Map<string, Container>();
  readonly commits = new Map<string, readonly string[]>();
  readonly registry: MemoryRegistry;
  readonly driver: RuntimeDriver;

  constructor(effects: Effects, registry: MemoryRegistry) {
    this.registry = registry;
    const never = (): never => {
      throw new TypeError("the Sandbox controller makes no such call");
    };
    const running = (id: string): Container => {
      const found = this.containers.get(id);
      if (!found) throw new RuntimeError("ComputeNotFound", `no container ${id}`);
      return found;
    };
    const become = (id: string, state: Container["state"]): void => {
      running(id).state = state;
    };
    this.driver = {
      probe: never,
      exec: never,
      readFile: never,
      writeFile: never,
      list: never,
      pruneImages: never,
      close: never,
      inspect: (id) => effects.read(async () => this.#inspect(id)),
      pull: (image) => effects.write(`pull ${image.split("@")[1] ? "digest" : image}`, async () => undefined),
      create: (spec) =>
        effects.write("create", async () => {
          const id = computeName(spec.owner);
          const known = this.containers.get(id);
          const work = known ? known.work : this.worked(spec.image.split("@")[1] ?? "");
          this.containers.set(id, { owner: spec.owner, state: "Running", work });
          return id;
        }),
      freeze: (id) => effects.write("freeze", async () => become(id, "Frozen")),
      thaw: (id) => effects.write("thaw", async () => become(id, "Running")),
      stop: (id) => effects.write("stop", async () => become(id, "Exited")),
      remove: (id) => effects.write("remove", async () => void this.containers.delete(id)),
      commit: (id, localName) =>
        effects.write("commit", async () => {
          if (!this.commits.has(localName)) this.commits.set(localName, [...running(id).work]);
          return { imageId: localName };
        }),
      push: (localName, { tag }) => effects.write("push", async () => this.#push(localName, tag)),
      forgetCommit: (localName) => effects.write("forgetCommit", async () => void this.commits.delete(localName)),
    };
  }

  /** What a container of this image begins with. */
  worked(digest: string): string[] {
    const manifest = JSON.parse(new TextDecoder().decode(this.registry.manifests.get(digest)));
    return manifest.layers.map((layer: Descriptor) => new TextDecoder().decode(this.registry.blobs.get(layer.digest)));
  }

  #inspect(id: string): ObservedCompute {
    const found = this.containers.get(id);
    if (!found) return { state: "Absent" };
    if (found.state === "Exited") return { state: "Exited", exitCode: 137, outOfMemory: false, finishedAt: undefined };
    return { state: found.state, startedAt: undefined };
  }

  async #push(localName: string, tag: string): Promise<void> {
    const work = this.commits.get(localName);
    if (!work) throw new RuntimeError("PushFailed", `no image ${localName}`);
    await putImage(this.registry, work, tag);
  }
}

/** An image of these layers, under a tag. */
async function putImage(registry: MemoryRegistry, work: readonly string[], tag: string): Promise<Digest> {
  const { signal } = new AbortController();
  for (const entry of work) await registry.client.putBlob("", bytesOf(entry), signal);
  const layers = work.map(layerOf);
  const config = bytesOf(
    JSON.stringify({
      architecture: "amd64",
      os: "linux",
      rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
    }),
  );
  await registry.client.putBlob("", config, signal);
  const mediaType = MEDIA_TYPES.ociManifest;
  const descriptor = { mediaType: MEDIA_TYPES.ociConfig, digest: digestOf(config), size: config.byteLength };
  const manifest = bytesOf(JSON.stringify({ schemaVersion: 2, mediaType, config: descriptor, layers }));
  return registry.client.putManifest("", tag, { mediaType, bytes: manifest }, signal);
}

const REPOSITORY = worldRepository("worlds", {
  installation: "install",
  namespace: "team",
  world: "lab",
  uid: "world-uid",
});
const REF = { namespace: "team", name: "one" };
const WORLD = { namespace: "team", name: "lab" };
const ABLE = ["exec", "freeze", "commit", "cpuLimit", "memoryLimit", "pidsLimit", "isolatedNetwork"];
/** Passes until a test calls it stuck. */
const MOST_PASSES = 400;

/** A World with its genesis, one Runtime of one host, one Sandbox, and an operator that can be killed. */
export async function memoryParts(options: {
  sandbox?: Parameters<typeof sandboxOf>[0];
  kill?: { index: number; when: "before" | "after" };
}) {
  const effects = new Effects(options.kill);
  const clock = createTestClock(T0);
  const registry = new MemoryRegistry();
  const host = new MemoryHost(effects, registry);
  const genesis = versionOf(0, { digest: await putImage(registry, ["base"], "v0") });
  const worlds = memoryResource<World>(WORLDS, [
    worldOf({
      status: {
        repository: `127.0.0.1:5055/${REPOSITORY}`,
        genesis: { image: "busybox:1", digest: genesis.digest, platform: "linux/amd64" },
        head: { version: 0, digest: genesis.digest, image: `127.0.0.1:5055/${REPOSITORY}@${genesis.digest}` },
        versions: [genesis],
        nextVersion: 1,
      },
    }),
  ]);
  const runtimes = memoryResource<Runtime>(RUNTIMES, [
    runtimeOf({
      spec: { selection: "Default" },
      status: {
        platform: "linux/amd64",
        capabilities: ABLE,
        hosts: [{ name: "a", state: "Reachable", used: 0 }],
      },
    }),
  ]);
  const sandboxes = memoryResource<Sandbox>(SANDBOXES, [
    sandboxOf({ ...options.sandbox, spec: { ttlSeconds: 600, ...options.sandbox?.spec } }),
  ]);
  const namespaces = memoryResource<NamespaceObject>(NAMESPACES, [
    { metadata: { name: "team", uid: "namespace-uid", resourceVersion: "1" } },
  ]);
  const client = traced(registry.client, effects);

  const dependencies = (): SandboxDependencies => ({
    installation: "install",
    sandboxes: { get: () => sandboxes.peek(REF), list: () => [sandboxes.peek(REF)].filter((one) => one !== undefined) },
    sandboxClient: tracedResource("Sandbox", sandboxes, effects),
    worlds: { get: () => worlds.peek(WORLD), list: () => [worlds.peek(WORLD)].filter((one) => one !== undefined) },
    worldWriter: createWorldStatusWriter(tracedResource("World", worlds, effects)),
    runtimes: {
      get: (name) => runtimes.peek({ name }),
      list: () => [runtimes.peek({ name: "local" })].filter((one) => one !== undefined),
    },
    runtimeRescues: createRuntimeRescues(tracedResource("Runtime", runtimes, effects)),
    namespaces,
    driverFor: async (runtime, name) => {
      if (isHostSilent || !runtimes.peek({ name: runtime }))
        throw new RuntimeError("HostUnreachable", `${runtime}/${name} does not answer`);
      return host.driver;
    },
    registry: installationRegistry({ client, prefix: "worlds" }),
    sources: {
      copyInto: () => Promise.reject(new TypeError("the Sandbox controller copies nothing")),
      resolve: async () => genesis.digest,
      pin: (image, digest) => `${image}@${digest}`,
    },
    snapshots: createDockerCommit(installationRegistry({ client, prefix: "worlds" })),
    admission: new AdmissionDesk(),
    announce: () => undefined,
    log: silentLog,
    limits: { deletionDeadlineMs: 600_000 },
  });
  let isHostSilent = false;
  let reconcile = reconcileSandboxes(dependencies());
  const failures: string[] = [];

  /** One pass, as the loop makes it; returns the milliseconds after which the next is due. */
  async function pass(): Promise<number> {
    const context = { signal: new AbortController().signal, clock, reconcileId: "test" };
    try {
      return (await reconcile("team/one", context)).requeueAfterMs ?? 1_000;
    } catch (error) {
      failures.push(String(error));
      if (error instanceof Terminal) throw error;
      if (error instanceof Waiting) return error.afterMs;
      if (isConflict(error)) return 0;
      // Whatever a dying process made of it, the next one begins anew.
      effects.restart();
      reconcile = reconcileSandboxes(dependencies());
      return 1_000;
    } finally {
      collectGarbage();
    }
  }

  /** The API server removes what is deleted once the last finalizer has gone. */
  function collectGarbage(): void {
    const metadata = sandboxes.peek(REF)?.metadata;
    if (metadata?.deletionTimestamp && !metadata.finalizers?.length) sandboxes.drop(REF);
  }

  const change = (edit: (sandbox: Sandbox) => Sandbox): void => {
    const found = sandboxes.peek(REF);
    if (found) sandboxes.put(edit(found));
  };

  return {
    effects,
    clock,
    registry,
    host,
    runtimes,
    failures,
    genesis,
    pass,
    sandbox: () => sandboxes.peek(REF),
    world(): World {
      const found = worlds.peek(WORLD);
      if (!found) throw new TypeError("the World is gone");
      return found;
    },
    hasWorld: () => worlds.peek(WORLD) !== undefined,
    dropWorld: () => worlds.drop(WORLD),
    silenceHost() {
      isHostSilent = true;
    },
    dropRuntime: () => runtimes.drop({ name: "local" }),
    changeWorld: (edit: (world: World) => World) => void worlds.put(edit(worlds.peek(WORLD) ?? worldOf())),
    change,
    /** A verb as a gateway records it. */
    ask: (verb: "Touch" | "Snapshot" | "Close", id: string) =>
      change((sandbox) => ({
        ...sandbox,
        status: {
          ...sandbox.status,
          requests: [...(sandbox.status.requests ?? []), { id, verb, user: "ada", at: at(1) }],
        },
      })),
    delete() {
      const deletionTimestamp = new Date(clock.now()).toISOString();
      change((sandbox) => ({ ...sandbox, metadata: { ...sandbox.metadata, deletionTimestamp } }));
      collectGarbage();
    },
    wasKilled: () => effects.wasKilled,
    /** Somebody works in the session. */
    work(entry: string) {
      const id = sandboxes.peek(REF)?.status.compute?.id ?? "";
      const container = host.containers.get(id);
      if (container?.state !== "Running") throw new TypeError(`nobody can work in ${id}: ${container?.state}`);
      container.work.push(entry);
    },
    /** Passes until the condition holds, time moving as the passes ask. */
    async until(what: string, holds: () => boolean): Promise<void> {
      for (let passes = 0; passes < MOST_PASSES; passes++) {
        if (holds()) return;
        clock.jump(Math.min(await pass(), 60_000));
      }
      throw new TypeError(
        `never ${what}: ${JSON.stringify(sandboxes.peek(REF)?.status)}; ${failures.slice(-3).join("; ")}`,
      );
    },
  };
}

function tracedResource<T extends KubeObject>(
  kind: string,
  client: ResourceClient<T>,
  effects: Effects,
): ResourceClient<T> {
  return {
    ...client,
    get: (...call) => effects.read(() => client.get(...call)),
    patch: (...call) => effects.write(`patch ${kind}`, () => client.patch(...call)),
    patchStatus: (...call) => effects.write(`patch ${kind} status`, () => client.patchStatus(...call)),
    delete: (...call) => effects.write(`delete ${kind}`, () => client.delete(...call)),
  };
}

function traced(client: RegistryClient, effects: Effects): RegistryClient {
  return {
    ...client,
    getManifest: (...call) => effects.read(() => client.getManifest(...call)),
    getBlob: (...call) => effects.read(() => client.getBlob(...call)),
    verifyBlob: (...call) => effects.read(() => client.verifyBlob(...call)),
    putBlob: (...call) => effects.write("put blob", () => client.putBlob(...call)),
    putManifest: (...call) =>
      effects.write(call[1].startsWith("sha256:") ? "put manifest" : `tag ${call[1]}`, () =>
        client.putManifest(...call),
      ),
    deleteManifest: (...call) => effects.write("delete manifest", () => client.deleteManifest(...call)),
  };
}
