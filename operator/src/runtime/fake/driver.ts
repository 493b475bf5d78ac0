import { randomUUID } from "node:crypto";
import { buffer } from "node:stream/consumers";
import { pack } from "tar-stream";
import type { RegistryLogin } from "../../registry/contract.ts";
import { commandHeader } from "../command-header.ts";
import {
  CAPTURE_REPOSITORY,
  type CommittedImage,
  type ComputeOwner,
  type ComputeSpec,
  computeName,
  type ExecRecord,
  type ExecRequest,
  type FileWrite,
  type HostFacts,
  type ListedCapture,
  type ListedCompute,
  type ObservedCompute,
  type RuntimeDriver,
} from "../contract.ts";
import { RuntimeError } from "../errors.ts";
import {
  FAKE_TIME,
  type FakeContainer,
  type FakeHost,
  type FakeImage,
  type FakeOperation,
  newImage,
  pathKey,
} from "./host.ts";

/**
 * A driver without containers, for fault injection and scale only (DESIGN §12): files and commits live in memory,
 * commands do nothing. It passes the contract suite except where processes are needed.
 */
export class FakeDriver implements RuntimeDriver {
  readonly #host: FakeHost;
  readonly #installation: string;

  constructor(host: FakeHost, installation: string) {
    this.#host = host;
    this.#installation = installation;
  }

  identity(signal: AbortSignal): Promise<string> {
    return this.#effect({ operation: "identity", signal }, () => "fake-engine");
  }

  probe(signal: AbortSignal): Promise<HostFacts> {
    return this.#effect({ operation: "probe", signal }, () => ({
      version: "fake",
      platform: "linux/amd64",
      capabilities: [
        "exec",
        "freeze",
        "commit",
        "deadContainerCapture",
        "memoryLimit",
        "cpuLimit",
        "pidsLimit",
        "isolatedNetwork",
      ],
      ociRuntimes: ["runc"],
      cpus: 1024,
      memoryBytes: 2 ** 40,
    }));
  }

  async pull(image: string, _login: RegistryLogin | undefined, signal: AbortSignal): Promise<void> {
    await this.#effect({ operation: "pull", subject: image, signal }, () => this.#present(image));
  }

  create(spec: ComputeSpec, signal: AbortSignal): Promise<string> {
    const name = computeName(spec.owner);
    return this.#effect({ operation: "create", subject: name, signal }, () => {
      const existing = this.#host.containers.get(name);
      if (existing === undefined) this.#host.containers.set(name, this.#boot(spec));
      else if (existing.owner.installation !== spec.owner.installation)
        throw new RuntimeError("ComputeConflict", `the host has a container ${name} that is not this boot's`);
      return name;
    });
  }

  inspect(id: string, signal: AbortSignal): Promise<ObservedCompute> {
    return this.#effect(
      { operation: "inspect", subject: id, signal },
      () => this.#own(id)?.observed ?? { state: "Absent" },
    );
  }

  ownerOf(id: string, signal: AbortSignal): Promise<ComputeOwner | undefined> {
    return this.#effect({ operation: "ownerOf", subject: id, signal }, () => this.#own(id)?.owner);
  }

  exec(id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecRecord> {
    return this.#effect({ operation: "exec", subject: id, signal }, () => {
      commandHeader(request);
      const container = this.#running(id);
      const record = this.#host.options.command?.(request, container);
      const nothing = { exitCode: 0, signal: 0, timedOut: false, durationMs: 0 };
      return { ...nothing, stdout: new Uint8Array(), stderr: new Uint8Array(), ...record };
    });
  }

  readFile(
    id: string,
    path: Uint8Array,
    signal: AbortSignal,
  ): Promise<{ size: number; content: AsyncIterable<Uint8Array> }> {
    return this.#effect({ operation: "readFile", subject: id, signal }, () => {
      const file = this.#running(id).files.get(pathKey(path));
      if (file === undefined) throw new RuntimeError("FileNotFound", `${JSON.stringify(pathKey(path))} does not exist`);
      return { size: file.bytes.length, content: inChunks(file.bytes) };
    });
  }

  async writeFile(id: string, write: FileWrite, signal: AbortSignal): Promise<void> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of write.content) chunks.push(chunk);
    await this.#effect({ operation: "writeFile", subject: id, signal }, () => {
      if (write.path[0] !== SLASH || write.path.includes(0))
        throw new RuntimeError("FileRefused", "the path must be absolute and hold no NUL byte");
      const { files } = this.#running(id);
      const key = pathKey(write.path);
      files.set(key, { bytes: Buffer.concat(chunks), mode: write.mode ?? files.get(key)?.mode ?? 0o644 });
    });
  }

  async sync(id: string, signal: AbortSignal): Promise<void> {
    await this.#effect({ operation: "sync", subject: id, signal }, () => {
      this.#running(id);
    });
  }

  async freeze(id: string, signal: AbortSignal): Promise<void> {
    await this.#effect({ operation: "freeze", subject: id, signal }, () => {
      const container = this.#existing(id);
      if (container.observed.state === "Frozen") return;
      this.#running(id).observed = { state: "Frozen", startedAt: FAKE_TIME };
    });
  }

  async thaw(id: string, signal: AbortSignal): Promise<void> {
    await this.#effect({ operation: "thaw", subject: id, signal }, () => {
      const container = this.#existing(id);
      if (container.observed.state === "Frozen") container.observed = { state: "Running", startedAt: FAKE_TIME };
    });
  }

  commit(id: string, localName: string, signal: AbortSignal): Promise<CommittedImage> {
    return this.#effect({ operation: "commit", subject: id, signal }, () => {
      const container = this.#existing(id);
      const earlier = this.#host.images.get(localName);
      if (earlier !== undefined && earlier.commitOf?.uid !== container.uid)
        throw new RuntimeError("CommitFailed", `${localName} is the commit of another container`);
      const image = earlier ?? newImage(new Map(container.files), container);
      this.#host.images.set(localName, image);
      return { imageId: image.id };
    });
  }

  async push(
    localName: string,
    target: { repository: string; tag: string; login: RegistryLogin | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const { repository, tag } = target;
    await this.#effect({ operation: "push", subject: localName, signal }, async () => {
      const image = this.#host.images.get(localName);
      if (image === undefined) throw new RuntimeError("PushFailed", `${localName} does not exist`);
      await this.#host.options.onPush?.({ repository, tag, files: image.files });
    });
  }

  async forgetCommit(localName: string, signal: AbortSignal): Promise<void> {
    await this.#effect({ operation: "forgetCommit", subject: localName, signal }, () => {
      this.#host.images.delete(localName);
    });
  }

  exportTar(id: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    return this.#effect({ operation: "exportTar", subject: id, signal }, async () => {
      const archive = pack();
      for (const [path, { bytes, mode }] of this.#existing(id).files) {
        archive.entry({ name: path.slice(1), mode }, bytes);
      }
      archive.finalize();
      return inChunks(await buffer(archive));
    });
  }

  async stop(id: string, signal: AbortSignal): Promise<void> {
    await this.#effect({ operation: "stop", subject: id, signal }, () => {
      this.#existing(id);
      this.#host.kill(id);
    });
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#effect({ operation: "remove", subject: id, signal }, () => {
      if (this.#own(id) !== undefined) this.#host.containers.delete(id);
    });
  }

  list(installation: string, signal: AbortSignal): Promise<ListedCompute[]> {
    return this.#effect({ operation: "list", signal }, () =>
      [...this.#host.containers]
        .filter(([, container]) => container.owner.installation === installation)
        .map(([id, { owner, observed, image }]) => ({ id, owner, state: observed.state, image })),
    );
  }

  listCaptures(installation: string, signal: AbortSignal): Promise<ListedCapture[]> {
    return this.#effect({ operation: "listCaptures", signal }, () =>
      [...this.#host.images].flatMap(([localName, { commitOf }]) => {
        if (commitOf?.owner.installation !== installation) return [];
        const operation = localName.slice(CAPTURE_REPOSITORY.length + 1);
        return [{ localName, operation, owner: commitOf.owner, createdAt: Date.parse(FAKE_TIME) }];
      }),
    );
  }

  pruneImages(options: { repositoryPrefix: string; keep: number }, signal: AbortSignal): Promise<string[]> {
    return this.#effect({ operation: "pruneImages", signal }, () => {
      const { images, containers } = this.#host;
      const used = new Set([...containers.values()].map((container) => container.image));
      const ours = [...images.keys()].filter((name) => name.startsWith(options.repositoryPrefix));
      const excess = Math.max(0, ours.length - options.keep);
      const removed = ours.filter((name) => !used.has(name)).slice(0, excess);
      for (const name of removed) images.delete(name);
      return removed;
    });
  }

  async close(): Promise<void> {
    // Nothing is open.
  }

  /** One call: the injected fault before it, the effect, the injected fault before its answer. */
  async #effect<T>(
    call: { operation: FakeOperation; subject?: string; signal: AbortSignal },
    effect: () => T | Promise<T>,
  ): Promise<T> {
    const { operation, subject = "", signal } = call;
    signal.throwIfAborted();
    await this.#host.options.onCall?.({ operation, subject, moment: "before" }, signal);
    signal.throwIfAborted();
    const answer = await effect();
    await this.#host.options.onCall?.({ operation, subject, moment: "after" }, signal);
    return answer;
  }

  #boot(spec: ComputeSpec): FakeContainer {
    return {
      uid: randomUUID(),
      owner: spec.owner,
      image: spec.image,
      files: new Map(this.#present(spec.image).files),
      observed: { state: "Running", startedAt: FAKE_TIME },
    };
  }

  #present(name: string): FakeImage {
    const present = this.#host.images.get(name);
    if (present !== undefined) return present;
    if (this.#host.options.pullable?.(name) === false)
      throw new RuntimeError("ImageUnavailable", `${name} cannot be pulled: it does not exist`);
    const pulled = newImage(new Map());
    this.#host.images.set(name, pulled);
    return pulled;
  }

  /** The container of the name, if it is this installation's. */
  #own(id: string): FakeContainer | undefined {
    const container = this.#host.containers.get(id);
    return container?.owner.installation === this.#installation ? container : undefined;
  }

  #existing(id: string): FakeContainer {
    const container = this.#own(id);
    if (container === undefined) throw new RuntimeError("ComputeNotFound", `container ${id} does not exist`);
    return container;
  }

  #running(id: string): FakeContainer {
    const container = this.#existing(id);
    if (container.observed.state === "Frozen") throw new RuntimeError("ComputeNotRunning", `container ${id} is frozen`);
    if (container.observed.state !== "Running")
      throw new RuntimeError("ComputeNotRunning", `container ${id} has ended`);
    return container;
  }
}

const SLASH = 0x2f;

async function* inChunks(bytes: Buffer): AsyncGenerator<Uint8Array> {
  if (bytes.length > 0) yield bytes;
}
