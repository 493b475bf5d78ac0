/** Which references mean the repositories of this installation's Worlds, whatever name they use for its registry. */
import { canonicalRegistry, type ImageReference } from "./reference.ts";

/** Where this installation keeps its Worlds: never an image source (DESIGN §11). */
export interface OwnRepositories {
  /** `host[:port]` under which the operator and the container hosts know the registry. */
  readonly registries: readonly string[];
  /** First path component of every World's repository. */
  readonly prefix: string;
  /** Id of the installation, the second one. */
  readonly installation: string;
}

/**
 * Below the prefix on the own registry, and below the installation's own path on every host: names can be made in DNS that
 * lead to the own registry, and no comparison of names would find those.
 */
export function isOwnRepository(own: OwnRepositories, { registry, repository }: ImageReference): boolean {
  if (`${repository}/`.startsWith(`${own.prefix}/${own.installation}/`)) return true;
  const place = placeOf(registry);
  return `${repository}/`.startsWith(`${own.prefix}/`) && own.registries.some((name) => placeOf(name) === place);
}

/** Whether a URL of the distribution API reads such a repository: the target of a redirect, say. */
export function readsOwnRepository(own: OwnRepositories, { pathname }: URL): boolean {
  // Bytes that cannot be decoded are in no repository's name.
  const path = pathname.replace(/%(?:[2-6][0-9a-f]|7[0-9a-e])/gi, (octet) => decodeURIComponent(octet));
  return `${path}/`.includes(`/${own.prefix}/${own.installation}/`);
}

/** Ports at which a registry answers that names none: one reads `r.example` as https, another as http. */
const UNSAID_PORTS = new Set(["", "443", "80"]);

/** One name for all spellings of a place: case, final dot, the port that goes without saying, and this machine's many names. */
function placeOf(registry: string): string {
  const canonical = canonicalRegistry(registry);
  const text = `http://${canonical}`;
  if (!URL.canParse(text)) return canonical;
  const url = new URL(text);
  const hostname = canonicalRegistry(url.hostname.replace(/\.$/, ""));
  return `${isThisMachine(hostname) ? "localhost" : hostname}:${UNSAID_PORTS.has(url.port) ? "" : url.port}`;
}

/** The URL parser has written every IPv4 address as four numbers and every IPv6 address in its shortest form. */
const isThisMachine = (hostname: string): boolean =>
  hostname === "localhost" ||
  hostname.endsWith(".localhost") ||
  /^(?:127|0)(?:\.\d{1,3}){3}$/.test(hostname) ||
  /^\[::(?:1?|(?:ffff:)?(?:7f[0-9a-f]{2}|0):[0-9a-f]{1,4})\]$/.test(hostname);
