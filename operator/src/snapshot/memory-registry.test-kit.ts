/** A `RegistryClient` of one repository over maps, for tests: manifests by digest, tags, blobs, and failures on demand. */
import {
  type Digest,
  type FetchedManifest,
  type ImageManifest,
  MEDIA_TYPES,
  type RegistryClient,
} from "../registry/contract.ts";
import { RegistryError, type RegistryErrorCode } from "../registry/errors.ts";
import { digestOf } from "./image-config.ts";

export class MemoryRegistry {
  readonly manifests = new Map<string, Uint8Array>();
  readonly tags = new Map<string, Digest>();
  readonly blobs = new Map<string, Uint8Array>();
  /** Every write, in order: `blob <digest>`, `manifest <digest>`, `tag <name>`, `delete <digest>`. */
  readonly writes: string[] = [];
  /** What calls about a reference, a digest, `tags` (the listing) or `delete <digest>` throw until it is taken out again. */
  readonly failing = new Map<string, RegistryErrorCode>();
  /** Of the first manifest put under such a reference half is kept: it can be read never again, and put as often as one likes. */
  spoilNext: ((reference: string) => boolean) | undefined;
  readonly #spoilt = new Set<string>();
  /** Every manifest read, by its reference. */
  readonly reads: string[] = [];
  /** How often the tags were listed. */
  listings = 0;
  /** Listings of tags answer when this has resolved. */
  silent: Promise<void> | undefined;
  readonly client: RegistryClient;

  constructor() {
    const unexpected = (): never => {
      throw new TypeError("publishing makes no such call");
    };
    this.client = {
      endpoint: { url: "http://127.0.0.1:5055" },
      listTags: async () => {
        await this.silent;
        return this.#list();
      },
      listRepositories: unexpected,
      streamBlob: unexpected,
      uploadBlob: unexpected,
      mountBlob: unexpected,
      close: unexpected,
      getManifest: async (_repository, reference) => this.#read(reference),
      putManifest: async (_repository, { reference, bytes }) => this.#put(reference, bytes),
      deleteManifest: async (_repository, digest) => this.#delete(digest),
      getBlob: async (_repository, { digest }) => this.#blob(digest),
      putBlob: async (_repository, bytes) => {
        this.blobs.set(digestOf(bytes), bytes);
        this.writes.push(`blob ${digestOf(bytes)}`);
        return { digest: digestOf(bytes), size: bytes.byteLength };
      },
      verifyBlob: async (_repository, { digest, size }) => {
        this.#failIfTold(digest);
        return this.blobs.get(digest)?.byteLength === size;
      },
    };
  }

  #list(): string[] {
    this.listings++;
    this.#failIfTold("tags");
    return [...this.tags.keys()];
  }

  #failIfTold(reference: string): void {
    const code = this.failing.get(reference);
    if (code) throw new RegistryError(code, `asking for ${reference}`);
  }

  #put(reference: string, bytes: Uint8Array): Digest {
    this.#failIfTold(reference);
    const digest = digestOf(bytes);
    this.manifests.set(digest, bytes);
    if (this.spoilNext?.(reference)) {
      this.spoilNext = undefined;
      this.#spoilt.add(digest);
    }
    if (reference !== digest) this.tags.set(reference, digest);
    this.writes.push(reference === digest ? `manifest ${digest}` : `tag ${reference}`);
    return digest;
  }

  /** Takes every tag of the digest along, as registries do. */
  #delete(digest: Digest): void {
    this.#failIfTold(`delete ${digest}`);
    this.manifests.delete(digest);
    for (const [tag, tagged] of this.tags) if (tagged === digest) this.tags.delete(tag);
    this.writes.push(`delete ${digest}`);
  }

  #blob(digest: Digest): Uint8Array {
    this.#failIfTold(digest);
    const bytes = this.blobs.get(digest);
    if (!bytes) throw new RegistryError("NotFound", `blob ${digest}`);
    if (digestOf(bytes) !== digest) throw new RegistryError("DigestMismatch", `blob ${digest}`);
    return bytes;
  }

  #read(reference: string): FetchedManifest {
    this.reads.push(reference);
    this.#failIfTold(reference);
    const named = this.tags.get(reference) ?? reference;
    if (this.#spoilt.has(named)) throw new RegistryError("Unavailable", `manifest ${reference}: 500`, { status: 500 });
    const bytes = this.manifests.get(named);
    if (!bytes) throw new RegistryError("NotFound", `manifest ${reference}`);
    const value: ImageManifest = JSON.parse(new TextDecoder().decode(bytes));
    const { mediaType } = value;
    if (mediaType === MEDIA_TYPES.ociIndex) {
      const index = { schemaVersion: 2, mediaType, manifests: [] } as const;
      return { digest: digestOf(bytes), mediaType, bytes, manifest: { kind: "index", value: index } };
    }
    return { digest: digestOf(bytes), mediaType, bytes, manifest: { kind: "image", value } };
  }
}
