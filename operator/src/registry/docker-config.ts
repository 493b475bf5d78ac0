import { z } from "zod";
import type { RegistryLogin } from "./contract.ts";
import { RegistryError } from "./errors.ts";
import { canonicalRegistry } from "./reference.ts";

/** The logins of a docker `config.json`, as a Secret of type `kubernetes.io/dockerconfigjson` carries it. */
export interface DockerConfig {
  readonly entries: readonly DockerConfigEntry[];
}

/** One key of `auths`, taken apart. */
export interface DockerConfigEntry {
  /** `host[:port]`; a label may be `*`, as the kubelet allows. */
  readonly registry: string;
  /** Repositories below this path; empty: all of the registry. */
  readonly path: string;
  /** Absent: the entry holds no username and password (an identity token, a credential helper). */
  readonly login: RegistryLogin | undefined;
}

const entrySchema = z.object({
  auth: z.string().optional(),
  username: z.string().optional(),
  password: z.string().optional(),
});
const configSchema = z.object({ auths: z.record(z.string(), entrySchema).default({}) });

/** The key of the Secret's data that holds the config. */
export const DOCKER_CONFIG_KEY = ".dockerconfigjson";

/**
 * Reads the text of a docker config. Throws `Refused` when it is not one; the message quotes nothing of it, because
 * every part of it may be a secret.
 */
export function parseDockerConfig(text: string): DockerConfig {
  const parsed = configSchema.safeParse(jsonOrUndefined(text));
  if (!parsed.success) throw new RegistryError("Refused", "the registry credentials are not a docker config.json");
  return { entries: Object.entries(parsed.data.auths).map(([key, entry]) => parseEntry(key, entry)) };
}

/**
 * The login for a repository: the entry with the longest matching path, an exact host before a pattern. Undefined:
 * the config has no entry for it. Throws `Refused` when the entry holds no username and password.
 */
export function findLogin(config: DockerConfig, registry: string, repository: string): RegistryLogin | undefined {
  const wanted = canonicalRegistry(registry);
  const [best] = config.entries
    .filter((entry) => matchesHost(entry.registry, wanted) && matchesPath(entry.path, repository))
    .sort((a, b) => Number(isPattern(a)) - Number(isPattern(b)) || b.path.length - a.path.length);
  if (best !== undefined && best.login === undefined) {
    throw new RegistryError("Refused", `the credentials for ${best.registry} hold no username and password`);
  }
  return best?.login;
}

function parseEntry(key: string, entry: z.infer<typeof entrySchema>): DockerConfigEntry {
  const withoutScheme = key.replace(/^https?:\/\//i, "");
  const slash = withoutScheme.indexOf("/");
  const host = slash === -1 ? withoutScheme : withoutScheme.slice(0, slash);
  const path = slash === -1 ? "" : withoutScheme.slice(slash + 1).replace(/\/+$/, "");
  return {
    registry: canonicalRegistry(host),
    // `https://index.docker.io/v1/` is how docker login writes Docker Hub: an API version, not a repository.
    path: /^v[12]$/.test(path) ? "" : path,
    login: loginOf(key, entry),
  };
}

function loginOf(key: string, entry: z.infer<typeof entrySchema>): RegistryLogin | undefined {
  if (entry.username !== undefined && entry.password !== undefined && entry.username !== "") {
    return { username: entry.username, password: entry.password };
  }
  if (entry.auth === undefined || entry.auth === "") return undefined;
  const decoded = Buffer.from(entry.auth, "base64").toString("utf8");
  const colon = decoded.indexOf(":");
  // Docker's own rule: the password may hold colons, the username may not.
  if (colon < 1) throw new RegistryError("Refused", `the auth of ${key} is not base64 of username:password`);
  return { username: decoded.slice(0, colon), password: decoded.slice(colon + 1).replace(/\0+$/, "") };
}

function matchesHost(pattern: string, registry: string): boolean {
  if (pattern === registry) return true;
  const [wanted, given] = [pattern.split("."), registry.split(".")];
  if (!pattern.includes("*") || wanted.length !== given.length) return false;
  return wanted.every((label, index) => label === "*" || label === given[index]);
}

const matchesPath = (path: string, repository: string): boolean =>
  path === "" || repository === path || repository.startsWith(`${path}/`);

const isPattern = (entry: DockerConfigEntry): boolean => entry.registry.includes("*");

/** JSON.parse quotes its input in the error, which here is a secret: so no cause is kept. */
function jsonOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
