import type { Digest } from "./contract.ts";
import { isDigest } from "./digest.ts";
import { RegistryError } from "./errors.ts";
import { isRepository, isTag } from "./reference.ts";

/** The URLs of one repository. Names are checked, so that none can reach outside its place in the path. */
export interface RepositoryPaths {
  readonly repository: string;
  manifest(reference: string): URL;
  blob(digest: Digest): URL;
  readonly uploads: URL;
  /** The first page of at most this many tags; a registry may answer with fewer. */
  tags(perPage: number): URL;
  mount(digest: Digest, from: string): URL;
}

/** Throws `Refused` for a name that is no repository; the methods do for what is neither tag nor digest. */
export function repositoryPaths(origin: URL, repository: string): RepositoryPaths {
  requireRepository(repository);
  const at = (path: string) => new URL(`/v2/${repository}/${path}`, origin);
  return {
    repository,
    manifest: (reference) => {
      if (!isDigest(reference) && !isTag(reference)) throw notValid("tag or digest", reference);
      return at(`manifests/${reference}`);
    },
    blob: (digest) => at(`blobs/${requireDigest(digest)}`),
    uploads: at("blobs/uploads/"),
    tags: (perPage) => at(`tags/list?n=${perPage}`),
    mount: (digest, from) => {
      requireRepository(from);
      const query = new URLSearchParams({ mount: requireDigest(digest), from });
      return at(`blobs/uploads/?${query.toString()}`);
    },
  };
}

function requireRepository(repository: string): void {
  if (!isRepository(repository)) throw notValid("repository", repository);
}

function requireDigest(digest: string): Digest {
  if (!isDigest(digest)) throw notValid("digest", digest);
  return digest;
}

const notValid = (kind: string, text: string): RegistryError =>
  new RegistryError("Refused", `${JSON.stringify(text.slice(0, 255))} is not a valid ${kind}`);
