import type { Digest } from "./contract.ts";
import { isDigest } from "./digest.ts";
import { RegistryError } from "./errors.ts";

/** An image reference, read as docker reads it. */
export interface ImageReference {
  /** `host[:port]`; Docker Hub is `docker.io`. */
  readonly registry: string;
  /** `library/busybox`. */
  readonly repository: string;
  readonly tag?: string;
  /** Wins over the tag when both are there. */
  readonly digest?: Digest;
}

/** The registry a reference without a host means. */
export const DEFAULT_REGISTRY = "docker.io";

/** Names under which Docker Hub is known: in references, in docker's own config file, and on the wire. */
const DOCKER_HUB_NAMES = new Set(["docker.io", "index.docker.io", "registry-1.docker.io"]);
const DOCKER_HUB_HOST = "registry-1.docker.io";

const COMPONENT = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const REPOSITORY = new RegExp(`^${COMPONENT}(?:/${COMPONENT})*$`);
const TAG = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
const REGISTRY = new RegExp(`^(?:${LABEL}(?:\\.${LABEL})*|\\[[0-9a-fA-F:.]+\\])(?::[0-9]{1,5})?$`);
/** As distribution limits it: host and path together. */
const LONGEST_NAME = 255;

/**
 * Reads `[registry/]repository[:tag][@digest]`. Without a registry it is Docker Hub, without a directory there it is
 * `library/`, without tag and digest it is the tag `latest`. Throws `Refused` with a sentence about what is wrong.
 */
export function parseReference(text: string): ImageReference {
  const [beforeDigest = "", digest, ...rest] = text.split("@");
  if (rest.length > 0) throw invalid(text, "it has more than one @");
  if (digest !== undefined && !isDigest(digest)) throw invalid(text, "its digest is not sha256 with 64 hex digits");

  const { name, tag } = splitTag(beforeDigest);
  if (tag !== undefined && !TAG.test(tag)) throw invalid(text, "its tag is not valid");

  const { registry, path } = splitRegistry(name);
  if (!REGISTRY.test(registry)) throw invalid(text, "its registry is not a host with an optional port");
  const repository = registry === DEFAULT_REGISTRY && !path.includes("/") ? `library/${path}` : path;
  if (!isRepository(repository)) throw invalid(text, "its repository must be lower case path components");

  return {
    registry,
    repository,
    ...(tag !== undefined ? { tag } : digest === undefined ? { tag: "latest" } : {}),
    ...(digest !== undefined ? { digest } : {}),
  };
}

/** The reference in full, for messages: `docker.io/library/busybox:latest`. */
export function formatReference(reference: ImageReference): string {
  const tag = reference.tag === undefined ? "" : `:${reference.tag}`;
  const digest = reference.digest === undefined ? "" : `@${reference.digest}`;
  return `${reference.registry}/${reference.repository}${tag}${digest}`;
}

/** What to ask the registry for: the digest, or else the tag. */
export const manifestReference = (reference: ImageReference): string => reference.digest ?? reference.tag ?? "latest";

/** The name under which a registry is compared: Docker Hub's three names are one, hosts are lower case. */
export function canonicalRegistry(registry: string): string {
  const lower = registry.toLowerCase();
  return DOCKER_HUB_NAMES.has(lower) ? DEFAULT_REGISTRY : lower;
}

/** Where a registry answers: TLS, except on loopback, where development registries speak plain HTTP. */
export function registryUrl(registry: string): string {
  const canonical = canonicalRegistry(registry);
  const host = canonical === DEFAULT_REGISTRY ? DOCKER_HUB_HOST : canonical;
  const { hostname } = new URL(`http://${host}`);
  return `${isLoopbackName(hostname) ? "http" : "https"}://${host}`;
}

/** Whether a URL's hostname is this machine by its very spelling, without asking DNS. */
export const isLoopbackName = (hostname: string): boolean =>
  hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(hostname);

/** Whether `text` is a repository name of the distribution specification. */
export const isRepository = (text: string): boolean => text.length <= LONGEST_NAME && REPOSITORY.test(text);

/** Whether `text` is a tag of the distribution specification. */
export const isTag = (text: string): boolean => TAG.test(text);

function splitTag(name: string): { name: string; tag?: string } {
  const colon = name.lastIndexOf(":");
  // A colon before the last slash belongs to the registry's port.
  if (colon === -1 || colon < name.lastIndexOf("/")) return { name };
  return { name: name.slice(0, colon), tag: name.slice(colon + 1) };
}

/** Docker's rule: the first component is a registry when it could not be a directory of Docker Hub. */
function splitRegistry(name: string): { registry: string; path: string } {
  const slash = name.indexOf("/");
  const first = slash === -1 ? "" : name.slice(0, slash);
  const isHost = first === "localhost" || /[.:]/.test(first) || first !== first.toLowerCase();
  if (!isHost) return { registry: DEFAULT_REGISTRY, path: name };
  return { registry: canonicalRegistry(first), path: name.slice(slash + 1) };
}

const invalid = (text: string, because: string): RegistryError =>
  new RegistryError(
    "Refused",
    `image reference ${JSON.stringify(text.slice(0, LONGEST_NAME))} is not valid: ${because}`,
  );
