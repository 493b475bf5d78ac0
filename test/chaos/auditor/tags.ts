/** Every digest that a tag has ever named: looked up again and again while the run lasts, and in the registry's own records. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { VersionReader } from "./versions.ts";

const LOOK_MS = 3_000;

export type TagHistory = Map<string, string[]>;

/** Looks at the tags of the repositories that `repositories` names at the time. */
export class TagWatch implements AsyncDisposable {
  readonly seen: TagHistory = new Map();
  readonly #reader: VersionReader;
  readonly #repositories: () => readonly string[];
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;

  constructor(reader: VersionReader, repositories: () => readonly string[]) {
    this.#reader = reader;
    this.#repositories = repositories;
    this.#watching = this.#watch();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  async #watch(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      for (const repository of this.#repositories()) {
        try {
          for (const tag of await this.#reader.tags(repository)) await this.#look(repository, tag);
        } catch {
          // The registry is away or full: a fault of this run. Its own records tell later what was missed.
        }
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  async #look(repository: string, tag: string): Promise<void> {
    const digest = await this.#reader.tag(repository, tag);
    if (digest !== undefined) remember(this.seen, `${repository}:${tag}`, digest);
  }
}

/** A registry of the distribution project keeps, for each tag, a link to every digest it was set to. */
export async function tagsOnDisk(dataDirectory: string, repository: string): Promise<TagHistory> {
  const found: TagHistory = new Map();
  const folder = join(dataDirectory, "docker/registry/v2/repositories", repository, "_manifests/tags");
  for (const tag of await entriesOf(folder)) {
    for (const hex of await entriesOf(join(folder, tag, "index/sha256"))) {
      remember(found, `${repository}:${tag}`, `sha256:${hex}`);
    }
  }
  return found;
}

export function mergeTags(into: TagHistory, more: TagHistory): void {
  for (const [name, digests] of more) for (const digest of digests) remember(into, name, digest);
}

function remember(history: TagHistory, name: string, digest: string): void {
  const known = history.get(name) ?? [];
  if (!known.includes(digest)) history.set(name, [...known, digest]);
}

async function entriesOf(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  }
}
