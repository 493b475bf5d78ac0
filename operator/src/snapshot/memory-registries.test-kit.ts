/** A registry of several repositories over maps, for tests: mounts, copies, the catalog, and an operator that dies at a write. */
import type { Digest, RegistryClient } from "../registry/contract.ts";
import { digestOf } from "../registry/digest.ts";
import { RegistryError, type RegistryErrorCode } from "../registry/errors.ts";
import { MemoryRegistry } from "./memory-registry.test-kit.ts";

export class MemoryRegistries {
  readonly #repositories = new Map<string, MemoryRegistry>();
  readonly client: RegistryClient;
  /** Whether blobs can be mounted from another repository. */
  mounts: "Allowed" | "Refused" = "Allowed";
  /** What the catalog answers, until it is set back. */
  catalog: "Shown" | "NoCatalog" | RegistryErrorCode = "Shown";
  /** Repositories that the catalog leaves out. */
  readonly hidden = new Set<string>();
  /** Every write, in order, named `<repository> <write>`. */
  readonly writes: string[] = [];
  /** The operator dies before the write with this index. */
  diesAt: number | undefined;

  constructor() {
    const at = (repository: string): RegistryClient => this.repository(repository).client;
    this.client = {
      endpoint: { url: "http://127.0.0.1:5055" },
      listTags: (repository, ...rest) => at(repository).listTags(repository, ...rest),
      getManifest: (repository, ...rest) => at(repository).getManifest(repository, ...rest),
      getBlob: (repository, ...rest) => at(repository).getBlob(repository, ...rest),
      verifyBlob: (repository, ...rest) => at(repository).verifyBlob(repository, ...rest),
      putManifest: (repository, manifest, ...rest) =>
        this.#write(repository, `manifest ${manifest.reference}`, () =>
          at(repository).putManifest(repository, manifest, ...rest),
        ),
      deleteManifest: (repository, digest, ...rest) =>
        this.#write(repository, `delete ${digest}`, () => at(repository).deleteManifest(repository, digest, ...rest)),
      putBlob: (repository, bytes, ...rest) =>
        this.#write(repository, `blob ${digestOf(bytes)}`, () => at(repository).putBlob(repository, bytes, ...rest)),
      mountBlob: async (repository, { from, digest }) => {
        const bytes = this.repository(from).blobs.get(digest);
        if (this.mounts === "Refused" || !bytes) return false;
        return this.#write(repository, `mount ${digest}`, async () => {
          this.repository(repository).blobs.set(digest, bytes);
          return true;
        });
      },
      streamBlob: (repository, { digest }) => this.#stream(repository, digest),
      uploadBlob: async (repository, content, signal) => {
        const parts: Uint8Array[] = [];
        for await (const part of content) parts.push(part);
        return this.client.putBlob(repository, Buffer.concat(parts), signal);
      },
      listRepositories: async (prefix) => this.#list(prefix),
      close: async () => undefined,
    };
  }

  /** The repository of this name; made when it is not there. */
  repository(name: string): MemoryRegistry {
    const known = this.#repositories.get(name) ?? new MemoryRegistry();
    this.#repositories.set(name, known);
    return known;
  }

  async #write<R>(repository: string, what: string, carryOut: () => Promise<R>): Promise<R> {
    if (this.diesAt === this.writes.length) {
      this.diesAt = undefined;
      throw new TypeError(`died before ${what}`);
    }
    this.writes.push(`${repository} ${what}`);
    return carryOut();
  }

  async *#stream(repository: string, digest: Digest): AsyncGenerator<Uint8Array, void, undefined> {
    const bytes = this.repository(repository).blobs.get(digest);
    if (!bytes) throw new RegistryError("NotFound", `blob ${digest}`);
    yield bytes;
  }

  #list(prefix: string): string[] | "NoCatalog" {
    if (this.catalog === "NoCatalog") return "NoCatalog";
    if (this.catalog !== "Shown") throw new RegistryError(this.catalog, "listing repositories");
    return [...this.#repositories.keys()].filter((name) => name.startsWith(prefix) && !this.hidden.has(name));
  }
}
