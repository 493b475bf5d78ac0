import { type Clock, systemClock } from "../reconciler/clock.ts";
import type { RepositoryScope, Scope } from "./authentication.ts";
import { readBlob, streamBlob, verifyBlob } from "./blobs.ts";
import { listCatalog } from "./catalog.ts";
import type {
  BlobToGet,
  BlobToMount,
  Descriptor,
  Digest,
  FetchedManifest,
  ManifestToPut,
  RegistryClient,
  RegistryEndpoint,
} from "./contract.ts";
import { digestOf, isDigest } from "./digest.ts";
import { isRegistryError, RegistryError } from "./errors.ts";
import { ACCEPTED_MANIFESTS, LONGEST_MANIFEST, parseManifest } from "./manifest.ts";
import { type RepositoryPaths, repositoryPaths } from "./paths.ts";
import type { Lookup } from "./pinned-connect.ts";
import { isLoopbackName } from "./reference.ts";
import { INSTALLATION_REGISTRY, judgeRegistry, type SourcePolicy } from "./source-policy.ts";
import { listTags } from "./tags.ts";
import { Transport, type TransportRequest } from "./transport.ts";
import {
  abandon,
  type BlobTarget,
  CHUNK_BYTES,
  type OrphanedUpload,
  putBlob,
  sessionOf,
  uploadStream,
} from "./upload.ts";

export interface RegistryClientOptions {
  /** Which addresses may be talked to. Default: the installation's own registry (all but link-local and metadata). */
  readonly policy?: SourcePolicy;
  /** Deadline of a call, and the silence a stream may keep. Default 30 s. */
  readonly deadlineMs?: number;
  /** Chunks of a streamed upload, each kept in memory until it has arrived. Default 16 MiB. */
  readonly chunkBytes?: number;
  /** Tags asked for at once. Default 1000. */
  readonly tagsPerPage?: number;
  /** Repositories asked for at once. Default 100. */
  readonly repositoriesPerPage?: number;
  readonly clock?: Clock;
  /** 0 ≤ x < 1, for jitter. Default `Math.random`. */
  readonly random?: () => number;
  /** DNS. Default: the machine's. */
  readonly lookup?: Lookup;
  /** Told when an upload session could not be cancelled. Default: nobody is told; the registry purges it by itself. */
  readonly onOrphan?: (orphan: OrphanedUpload) => void;
}

const DEFAULT_DEADLINE_MS = 30_000;
const DEFAULT_TAGS_PER_PAGE = 1_000;
/** What is looked for stands at the beginning of the first page. */
const DEFAULT_REPOSITORIES_PER_PAGE = 100;
const DEFAULT_MAX_BLOB = 4 * 1024 * 1024;
/** What a 404 says when the thing deleted is not there; other 404s may come from another server altogether. */
const ABSENT = ["MANIFEST_UNKNOWN", "NAME_UNKNOWN"];

/**
 * A client of one registry (OCI distribution specification 1.1; measured against distribution 2.8.2 and 3.0.0). Throws
 * `SourceNotAllowed` when the policy does not allow the address, or when it is neither https nor loopback.
 */
export function createRegistryClient(endpoint: RegistryEndpoint, options: RegistryClientOptions = {}): RegistryClient {
  return new DistributionClient(endpoint, options);
}

class DistributionClient implements RegistryClient {
  readonly endpoint: RegistryEndpoint;
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #chunkBytes: number;
  readonly #tagsPerPage: number;
  readonly #repositoriesPerPage: number;
  readonly #onOrphan: (orphan: OrphanedUpload) => void;

  constructor(endpoint: RegistryEndpoint, options: RegistryClientOptions) {
    const policy = options.policy ?? INSTALLATION_REGISTRY;
    this.endpoint = endpoint;
    this.#clock = options.clock ?? systemClock;
    this.#chunkBytes = options.chunkBytes ?? CHUNK_BYTES;
    this.#tagsPerPage = options.tagsPerPage ?? DEFAULT_TAGS_PER_PAGE;
    this.#repositoriesPerPage = options.repositoriesPerPage ?? DEFAULT_REPOSITORIES_PER_PAGE;
    this.#onOrphan = options.onOrphan ?? (() => undefined);
    this.#transport = new Transport({
      origin: parseOrigin(endpoint.url, policy),
      login: endpoint.login,
      ca: endpoint.ca,
      policy,
      clock: this.#clock,
      deadlineMs: options.deadlineMs ?? DEFAULT_DEADLINE_MS,
      lookup: options.lookup,
      random: options.random ?? Math.random,
    });
  }

  async getManifest(repository: string, reference: string, signal: AbortSignal): Promise<FetchedManifest> {
    const paths = this.#paths(repository);
    await using answer = await this.#transport.send({
      ...this.#call(paths, ["pull"], signal),
      method: "GET",
      url: paths.manifest(reference),
      headers: { accept: ACCEPTED_MANIFESTS },
    });
    if (answer.status !== 200) throw await answer.failure(`manifest ${repository}:${reference}`);
    const bytes = await answer.bytes(LONGEST_MANIFEST);
    const expected = isDigest(reference) ? reference : answer.header("docker-content-digest");
    requireDigest(digestOf(bytes), expected, `manifest ${reference} of ${repository}`);
    return parseManifest(bytes, answer.header("content-type"));
  }

  async putManifest(repository: string, manifest: ManifestToPut, signal: AbortSignal): Promise<Digest> {
    const { reference, mediaType, bytes } = manifest;
    const paths = this.#paths(repository);
    const digest = digestOf(bytes);
    if (isDigest(reference)) requireDigest(digest, reference, `the manifest to put into ${repository}`);
    await using answer = await this.#transport.send({
      ...this.#call(paths, ["pull", "push"], signal),
      method: "PUT",
      url: paths.manifest(reference),
      headers: { "content-type": mediaType },
      body: bytes,
      // A tag that is put twice may in between have been moved by somebody else.
      repeat: isDigest(reference) ? "Always" : "WhenNotProcessed",
    });
    if (answer.status !== 201) throw await answer.failure(`put manifest ${repository}:${reference}`);
    requireDigest(digest, answer.header("docker-content-digest"), `the manifest put into ${repository}`);
    return digest;
  }

  async deleteManifest(repository: string, digest: Digest, signal: AbortSignal): Promise<void> {
    if (!isDigest(digest)) throw new RegistryError("Refused", "a manifest is deleted by digest only");
    const paths = this.#paths(repository);
    await using answer = await this.#transport.send({
      ...this.#call(paths, ["delete"], signal),
      method: "DELETE",
      url: paths.manifest(digest),
    });
    if (answer.status === 202 || answer.status === 200 || answer.status === 204) return;
    const failure = await answer.failure(`delete manifest ${repository}@${digest}`);
    const isAbsent = failure.reasons.some((reason) => ABSENT.includes(reason)) || answer.length === 0;
    if (answer.status === 404 && isAbsent) return;
    throw failure;
  }

  async listTags(repository: string, signal: AbortSignal): Promise<string[]> {
    return await listTags(this.#transport, { paths: this.#paths(repository), perPage: this.#tagsPerPage, signal });
  }

  async listRepositories(prefix: string, signal: AbortSignal): Promise<readonly string[] | "NoCatalog"> {
    return await listCatalog(this.#transport, { prefix, perPage: this.#repositoriesPerPage, signal });
  }

  async getBlob(repository: string, blob: BlobToGet, signal: AbortSignal): Promise<Uint8Array> {
    const { digest, maxBytes = DEFAULT_MAX_BLOB } = blob;
    return await readBlob(this.#source(repository, signal), digest, maxBytes);
  }

  streamBlob(repository: string, descriptor: Descriptor, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return streamBlob(this.#source(repository, signal), descriptor);
  }

  async verifyBlob(
    repository: string,
    descriptor: Pick<Descriptor, "digest" | "size">,
    signal: AbortSignal,
  ): Promise<boolean> {
    return await verifyBlob(this.#source(repository, signal), descriptor);
  }

  async uploadBlob(
    repository: string,
    content: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<{ digest: Digest; size: number }> {
    return await uploadStream(this.#target(repository, signal), content);
  }

  async putBlob(repository: string, bytes: Uint8Array, signal: AbortSignal): Promise<{ digest: Digest; size: number }> {
    return await putBlob(this.#target(repository, signal), bytes);
  }

  async mountBlob(repository: string, { from, digest }: BlobToMount, signal: AbortSignal): Promise<boolean> {
    const paths = this.#paths(repository);
    // One token for both repositories: a token for the target alone makes the registry forget the source.
    const scopes: Scope[] = [
      { repository, actions: ["pull", "push"] },
      { repository: from, actions: ["pull"] },
    ];
    const url = paths.mount(digest, from);
    try {
      const request = { ...this.#call(paths, [], signal), method: "POST", url, scopes } as const;
      await using answer = await this.#transport.send(request);
      if (answer.status === 201) {
        requireDigest(digest, answer.header("docker-content-digest"), `the blob mounted into ${repository}`);
        return true;
      }
      if (answer.status !== 202) throw await answer.failure(`mount ${digest} from ${from}`);
      // The registry opened an upload instead, which nobody is going to use.
      const target = this.#target(repository, signal);
      await abandon(target, sessionOf(target, answer, signal));
      return false;
    } catch (error) {
      // Whatever the registry has against the mount, copying is the way round it; it will say so again if it is not.
      const isNo = (["Unauthorized", "Refused", "NotFound"] as const).some((code) => isRegistryError(error, code));
      if (isNo) return false;
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#transport[Symbol.asyncDispose]();
  }

  #paths(repository: string): RepositoryPaths {
    return repositoryPaths(this.#transport.origin, repository);
  }

  #source(repository: string, signal: AbortSignal) {
    return { transport: this.#transport, paths: this.#paths(repository), signal };
  }

  #target(repository: string, signal: AbortSignal): BlobTarget {
    return {
      ...this.#source(repository, signal),
      clock: this.#clock,
      chunkBytes: this.#chunkBytes,
      onOrphan: this.#onOrphan,
    };
  }

  #call(
    paths: RepositoryPaths,
    actions: RepositoryScope["actions"],
    signal: AbortSignal,
  ): Pick<TransportRequest, "scopes" | "repeat" | "kind" | "signal"> {
    return { scopes: [{ repository: paths.repository, actions }], repeat: "Always", kind: "Call", signal };
  }
}

/** The origin of an endpoint, judged. */
function parseOrigin(text: string, policy: SourcePolicy): URL {
  if (!URL.canParse(text)) throw new RegistryError("Refused", "the registry's address is not a URL");
  const url = new URL(text);
  const isBare =
    url.pathname === "/" && url.search === "" && url.hash === "" && url.username === "" && url.password === "";
  if (!isBare) throw new RegistryError("Refused", `the registry's address must be ${url.origin} and no more`);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && isLoopbackName(url.hostname))) {
    throw new RegistryError("SourceNotAllowed", `${url.origin} is not https; plain http is for loopback only`);
  }
  const verdict = judgeRegistry(policy, url);
  if (verdict.kind === "refused") throw new RegistryError("SourceNotAllowed", verdict.because);
  return url;
}

function requireDigest(actual: Digest, expected: string | undefined, what: string): void {
  if (expected === undefined || expected === actual) return;
  throw new RegistryError("DigestMismatch", `${what} hashes to ${actual}, not to ${expected.slice(0, 100)}`);
}
