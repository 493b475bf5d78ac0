/**
 * A container host in memory, for tests: a container's filesystem is the list of what was worked in it, and a layer holds one
 * entry.
 */
import { type Descriptor, type Digest, MEDIA_TYPES } from "../registry/contract.ts";
import type {
  ComputeOwner,
  ComputeSpec,
  ExecRecord,
  ExecRequest,
  ObservedCompute,
  RuntimeDriver,
} from "../runtime/contract.ts";
import { computeName } from "../runtime/contract.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { digestOf } from "../snapshot/image-config.ts";
import type { MemoryRegistry } from "../snapshot/memory-registry.test-kit.ts";
import type { Effects } from "./counted-effects.test-kit.ts";

interface Container {
  readonly owner: ComputeOwner;
  state: "Running" | "Frozen" | "Exited";
  /** How it ended, as the engine tells it. Default: exit 137, killed. */
  ended?: { exitCode: number; outOfMemory: boolean };
  readonly work: string[];
  readonly image: string;
  pid?: number;
}

const OWNER: ComputeOwner = {
  installation: "install",
  namespace: "team",
  sandbox: "one",
  sandboxUid: "sandbox-uid",
  boot: 1,
};

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const layerOf = (entry: string): Descriptor => {
  const bytes = bytesOf(entry);
  return { mediaType: MEDIA_TYPES.ociLayerGzip, digest: digestOf(bytes), size: bytes.byteLength };
};

/** One container host and the registry it pushes to. */
export class MemoryHost {
  readonly containers = new Map<string, Container>();
  readonly commits = new Map<string, readonly string[]>();
  /** Whose container each is of. Default: the Sandbox's of the kit. */
  readonly committedOf = new Map<string, ComputeOwner>();
  /** When each was made, by the host's clock. Default: 0. */
  readonly committedAt = new Map<string, number>();
  readonly registry: MemoryRegistry;
  /** Its engine's id. */
  engine: string;
  /** Called before each inspection. */
  onInspect: () => void = () => undefined;
  /** The engine answers every freeze with an error. */
  refusesFreeze = false;
  /** Who the last pull was as; undefined: nobody. */
  pulledAs: string | undefined;
  /** What is made ends before it can be talked to. */
  endsAtOnce = false;
  /** Containers run, and their helper does not answer. */
  isDumb = false;
  /** The disk does not take what was written. */
  refusesSync = false;
  /** What a command does in a container, to whose work it may add. */
  command: (request: ExecRequest, work: string[]) => Partial<ExecRecord> = () => ({});
  readonly driver: RuntimeDriver;
  /** Commits so far: no two have the same config. */
  #committed = 0;

  constructor(effects: Effects, registry: MemoryRegistry, engine = "engine-1") {
    this.registry = registry;
    this.engine = engine;
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
      identity: async () => this.engine,
      exec: (id, request) =>
        effects.write("exec", async () => {
          if (running(id).state !== "Running" || this.isDumb)
            throw new RuntimeError("ComputeNotRunning", `container ${id} does not answer`);
          const record = { exitCode: 0, signal: 0, timedOut: false, durationMs: 1 };
          const nothing = new Uint8Array();
          return { ...record, ...this.command(request, running(id).work), stdout: nothing, stderr: nothing };
        }),
      readFile: never,
      exportTar: never,
      writeFile: never,
      list: () =>
        effects.read(async () =>
          [...this.containers].map(([id, { owner, state, image }]) => ({ id, owner, state, image })),
        ),
      listCaptures: () =>
        effects.read(async () =>
          [...this.commits.keys()].map((localName) => ({
            localName,
            operation: localName.split(":")[1] ?? "",
            owner: this.committedOf.get(localName) ?? OWNER,
            createdAt: this.committedAt.get(localName) ?? 0,
          })),
        ),
      pruneImages: never,
      close: never,
      ownerOf: (id) => effects.read(async () => this.containers.get(id)?.owner),
      inspect: (id) => effects.read(async () => this.#inspect(id)),
      pull: (image, login) =>
        effects.write(`pull ${image.split("@")[1] ? "digest" : image}`, async () => {
          this.pulledAs = login?.username;
        }),
      create: (spec) =>
        effects.write("create", async () => {
          const id = computeName(spec.owner);
          const found = this.containers.get(id);
          if (found && found.owner.sandboxUid !== spec.owner.sandboxUid)
            throw new RuntimeError("ComputeConflict", `the host has a container ${id} that is not this boot's`);
          // One that is there is adopted as it is, also when it has ended: no driver starts it again.
          if (!found) this.containers.set(id, this.#made(spec));
          return id;
        }),
      sync: (id) =>
        effects.write("sync", async () => {
          if (running(id).state !== "Running")
            throw new RuntimeError("ComputeNotRunning", `container ${id} does not run`);
          if (this.refusesSync)
            throw new RuntimeError("HostRefused", "the helper failed with SyncFailed: input/output error");
        }),
      freeze: (id) =>
        effects.write("freeze", async () => {
          if (running(id).state === "Exited") throw new RuntimeError("ComputeNotRunning", `container ${id} has ended`);
          if (this.refusesFreeze) throw new RuntimeError("HostRefused", "the freezer is not there");
          become(id, "Frozen");
        }),
      thaw: (id) => effects.write("thaw", async () => become(id, "Running")),
      stop: (id) => effects.write("stop", async () => become(id, "Exited")),
      remove: (id) => effects.write("remove", async () => void this.containers.delete(id)),
      commit: (id, localName) =>
        effects.write("commit", async () => {
          const { owner, work } = running(id);
          const known = this.commits.has(localName) ? (this.committedOf.get(localName) ?? OWNER) : owner;
          if (known.sandboxUid !== owner.sandboxUid)
            throw new RuntimeError("CommitFailed", `${localName} is the commit of another container`);
          if (!this.commits.has(localName)) this.commits.set(localName, [...work]);
          this.#committed += 1;
          this.committedOf.set(localName, owner);
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

  #made(spec: ComputeSpec): Container {
    const work = this.worked(spec.image.split("@")[1] ?? "");
    const state = this.endsAtOnce ? "Exited" : "Running";
    return { owner: spec.owner, state, work, image: spec.image, pid: 100 };
  }

  #inspect(id: string): ObservedCompute {
    this.onInspect();
    const found = this.containers.get(id);
    if (!found) return { state: "Absent" };
    if (found.state === "Exited") {
      return { state: "Exited", finishedAt: undefined, ...(found.ended ?? { exitCode: 137, outOfMemory: false }) };
    }
    return { state: found.state, startedAt: undefined, ...(found.pid === undefined ? {} : { pid: found.pid }) };
  }

  async #push(localName: string, tag: string): Promise<void> {
    const work = this.commits.get(localName);
    if (!work) throw new RuntimeError("PushFailed", `no image ${localName}`);
    await putImage(this.registry, work, tag, this.#committed);
  }
}

/** An image of these layers, under a tag. */
export async function putImage(
  registry: MemoryRegistry,
  work: readonly string[],
  tag: string,
  ordinal = 0,
): Promise<Digest> {
  const { signal } = new AbortController();
  for (const entry of work) await registry.client.putBlob("", bytesOf(entry), signal);
  const layers = work.map(layerOf);
  const config = bytesOf(
    JSON.stringify({
      architecture: "amd64",
      os: "linux",
      // As with an engine: no push makes the bytes of another one.
      comment: tag,
      created: new Date(ordinal).toISOString(),
      rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
    }),
  );
  await registry.client.putBlob("", config, signal);
  const mediaType = MEDIA_TYPES.ociManifest;
  const descriptor = { mediaType: MEDIA_TYPES.ociConfig, digest: digestOf(config), size: config.byteLength };
  const manifest = bytesOf(JSON.stringify({ schemaVersion: 2, mediaType, config: descriptor, layers }));
  return registry.client.putManifest("", { reference: tag, mediaType, bytes: manifest }, signal);
}
