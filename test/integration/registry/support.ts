import { createCipheriv, createHash } from "node:crypto";
import { readdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { createRegistryClient, type RegistryClientOptions } from "../../../operator/src/registry/client.ts";
import {
  type Descriptor,
  type Digest,
  type ImageManifest,
  MEDIA_TYPES,
  type RegistryClient,
} from "../../../operator/src/registry/contract.ts";
import { type Registry, type RegistryAddress, type RegistryWish, registry } from "../../kit/index.ts";
import { seedsOf } from "../../kit/seed.ts";

/** The registries every promise is tested on. */
export const REGISTRIES: readonly { name: string; wish: RegistryWish }[] = [
  { name: "distribution 3", wish: { version: "v3" } },
  { name: "distribution 2.8", wish: { version: "v2" } },
  { name: "distribution 3 with login and TLS", wish: { version: "v3", auth: "basic", tls: true } },
  { name: "distribution 2.8 with login and TLS", wish: { version: "v2", auth: "basic", tls: true } },
];

/** A registry of this test alone and a client of it. */
export interface Served extends AsyncDisposable {
  readonly registry: Registry;
  readonly client: RegistryClient;
}

export async function serve(wish: RegistryWish, options: RegistryClientOptions = {}): Promise<Served> {
  const own = await registry({ ...wish, own: true });
  const client = clientOf(own, options);
  return {
    registry: own,
    client,
    async [Symbol.asyncDispose]() {
      await using _registry = own;
      await client.close();
    },
  };
}

export function clientOf(own: RegistryAddress, options: RegistryClientOptions = {}): RegistryClient {
  const { username, password, caPem } = own;
  return createRegistryClient(
    {
      url: own.url,
      ...(username === undefined || password === undefined ? {} : { login: { username, password } }),
      ...(caPem === undefined ? {} : { ca: caPem }),
    },
    options,
  );
}

/** Random bytes that this seed alone makes again. */
export function bytesOf(seed: string, length: number): Buffer {
  const key = createHash("sha256").update(seed).digest();
  return createCipheriv("aes-256-ctr", key, Buffer.alloc(16)).update(Buffer.alloc(length));
}

export const newSeed = seedsOf("registry");

/** The bytes in pieces of an odd size, so that chunk borders fall inside pieces. */
export async function* inPieces(bytes: Uint8Array, size = 65_521): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

export async function collect(content: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of content) parts.push(part);
  return Buffer.concat(parts);
}

/** An image of one layer whose blobs are in the repository; its manifest is not put yet. */
export async function imageIn(
  client: RegistryClient,
  repository: string,
  options: { seed: string; signal: AbortSignal; platform?: { os: string; architecture: string } },
): Promise<{ mediaType: string; bytes: Buffer; layer: Descriptor; config: Descriptor }> {
  const { seed, signal } = options;
  const layer = await client.putBlob(repository, bytesOf(`${seed}/layer`, 5_000), signal);
  const platform = options.platform ?? { os: "linux", architecture: "amd64" };
  const diffIds: Digest[] = [layer.digest];
  const configBytes = Buffer.from(JSON.stringify({ ...platform, rootfs: { type: "layers", diff_ids: diffIds }, seed }));
  const config = await client.putBlob(repository, configBytes, signal);
  const manifest: ImageManifest = {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociManifest,
    config: { mediaType: MEDIA_TYPES.ociConfig, ...config },
    layers: [{ mediaType: MEDIA_TYPES.ociLayer, ...layer }],
    annotations: { "dev.agentworlds.operation": seed },
  };
  const [first] = manifest.layers;
  if (first === undefined) throw new Error("the image has no layer");
  const bytes = Buffer.from(JSON.stringify(manifest));
  return { mediaType: manifest.mediaType, bytes, layer: first, config: manifest.config };
}

/**
 * The upload sessions that the registry keeps on disk for a repository: those with a start time or data. Both versions
 * of distribution write an empty hash state back after a cancellation, so the bare folder of a cancelled one stays.
 */
export async function openUploads(own: Registry, repository: string): Promise<string[]> {
  const directory = join(own.dataDirectory, "docker/registry/v2/repositories", repository, "_uploads");
  const files = await readdir(directory, { recursive: true }).catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  });
  const sessions = files.filter((file) => ["startedat", "data"].includes(basename(file))).map((file) => dirname(file));
  return [...new Set(sessions)];
}
