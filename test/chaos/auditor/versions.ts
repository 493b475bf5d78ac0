/** What a version holds, by the registry's bytes alone: each is hashed, each layer is unpacked and laid over the ones below. */
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { extract } from "tar-stream";
import type { Files, LedgerEntry } from "../ledger.ts";
import { type Answer, askOnce, listAt, textAt } from "./http.ts";

export type Version =
  /** Everything that a host would pull is there and is what its digest says. `files`: SHA-256 by path below the work folder. */
  { readonly kind: "whole"; readonly files: Files } | { readonly kind: "broken"; readonly why: string };

const WORK_FOLDER = "work/";
const MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/** Reads versions of one registry; layers that versions share are read once. */
export class VersionReader {
  readonly #url: string;
  /** Only what was read whole: a layer that could not be read is tried again. */
  readonly #layers = new Map<string, LayerContent>();

  constructor(registryUrl: string) {
    this.#url = registryUrl;
  }

  async version(repository: string, digest: string): Promise<Version> {
    try {
      const manifest: unknown = JSON.parse((await this.#proved(repository, "manifests", digest)).toString());
      await this.#proved(repository, "blobs", textAt(manifest, "config", "digest") ?? "none");
      const files = new Map<string, string>();
      for (const layer of listAt(manifest, "layers")) {
        const layerDigest = textAt(layer, "digest") ?? "none";
        await this.#head(repository, layerDigest);
        const content = this.#layers.get(layerDigest) ?? (await this.#layer(repository, layerDigest));
        this.#layers.set(layerDigest, content);
        layOver(files, content);
      }
      return { kind: "whole", files: Object.fromEntries(files) };
    } catch (error) {
      return { kind: "broken", why: error instanceof Error ? error.message : String(error) };
    }
  }

  /** Digest that a tag names; undefined when there is no such tag. */
  async tag(repository: string, tag: string): Promise<string | undefined> {
    const answer = await this.#get(repository, `manifests/${tag}`);
    return answer.status === 200 ? digestOf(answer.body) : undefined;
  }

  async tags(repository: string): Promise<readonly string[]> {
    const answer = await this.#get(repository, "tags/list?n=1000");
    if (answer.status === 404) return [];
    if (answer.status !== 200) throw new Error(`tags of ${repository}: ${answer.status}`);
    return listAt(JSON.parse(answer.body.toString()), "tags").filter((tag) => typeof tag === "string");
  }

  /** The bytes, if they are what the digest says. */
  async #proved(repository: string, kind: "manifests" | "blobs", digest: string): Promise<Buffer> {
    const answer = await this.#get(repository, `${kind}/${digest}`);
    if (answer.status !== 200) throw new Error(`${kind}/${digest} of ${repository}: ${answer.status}`);
    if (digestOf(answer.body) !== digest) throw new Error(`${kind}/${digest} of ${repository} are other bytes`);
    return answer.body;
  }

  /** A layer read for another World's version must be reachable in this repository as well. */
  async #head(repository: string, digest: string): Promise<void> {
    const { status } = await askOnce({ url: `${this.#url}/v2/${repository}/blobs/${digest}`, method: "HEAD" });
    if (status !== 200) throw new Error(`blobs/${digest} of ${repository}: ${status}`);
  }

  async #layer(repository: string, digest: string): Promise<LayerContent> {
    return contentOf(await this.#proved(repository, "blobs", digest));
  }

  #get(repository: string, path: string): Promise<Answer> {
    return askOnce({ url: `${this.#url}/v2/${repository}/${path}`, headers: { accept: MANIFESTS } });
  }
}

/** What one layer does to the work folder. */
interface LayerContent {
  readonly files: ReadonlyMap<string, string>;
  readonly removed: readonly string[];
  /** The folder itself is replaced by what this layer holds. */
  readonly isOpaque: boolean;
}

async function contentOf(blob: Buffer): Promise<LayerContent> {
  const files = new Map<string, string>();
  const removed: string[] = [];
  let isOpaque = false;
  const entries = extract();
  const isGzip = blob[0] === 0x1f && blob[1] === 0x8b;
  const reading = isGzip
    ? pipeline(Readable.from([blob]), createGunzip(), entries)
    : pipeline(Readable.from([blob]), entries);
  for await (const entry of entries) {
    const name = entry.header.name.replace(/^\.?\//, "");
    if (name === ".wh.work") isOpaque = true;
    if (!name.startsWith(WORK_FOLDER) || entry.header.type !== "file") {
      entry.resume();
      continue;
    }
    const path = name.slice(WORK_FOLDER.length);
    const content = await buffer(entry);
    if (path === ".wh..wh..opq") isOpaque = true;
    else if (path.startsWith(".wh.")) removed.push(path.slice(".wh.".length));
    else files.set(path, digestOf(content).slice("sha256:".length));
  }
  await reading;
  return { files, removed, isOpaque };
}

function layOver(files: Map<string, string>, layer: LayerContent): void {
  if (layer.isOpaque) files.clear();
  for (const path of layer.removed) files.delete(path);
  for (const [path, sha256] of layer.files) files.set(path, sha256);
}

/** Where every version lives that the ledger names of the chosen Worlds, by `repository@digest`. */
export function versionsIn(
  ledger: readonly LedgerEntry[],
  isWanted: (world: string) => boolean,
): Map<string, { repository: string; digest: string }> {
  const repositories = new Map(
    ledger.flatMap((entry) => (entry.kind === "repository" ? [[entry.world, entry.repository] as const] : [])),
  );
  return new Map(
    ledger.flatMap((entry) => {
      if (entry.kind !== "version" || !isWanted(entry.world)) return [];
      const repository = repositories.get(entry.world) ?? "unknown";
      return [[`${repository}@${entry.digest}`, { repository, digest: entry.digest }] as const];
    }),
  );
}

export const digestOf = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
