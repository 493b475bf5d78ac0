import { createHash } from "node:crypto";
import { ConfigurationError } from "./errors.ts";

/** Most characters of a name of our kinds. */
const NAME_MAX = 63;
const SUFFIX = 10;

/**
 * The name of the Sandbox that belongs to a key: the same key of the same World is the same name, in any process.
 * `source` is the World's name, or the image of a throwaway session.
 */
export function nameForKey(source: { kind: "World" | "Image"; name: string }, key: string): string {
  const digest = createHash("sha256")
    .update(JSON.stringify([source.kind, source.name, key]))
    .digest("hex");
  // A label of DNS may not end in a dash before the suffix's own, nor hold a dot.
  const stem = source.kind === "World" ? source.name.replaceAll(".", "-") : "sandbox";
  const prefix = stem.slice(0, NAME_MAX - SUFFIX - 1).replace(/-+$/, "");
  return `${prefix}-${digest.slice(0, SUFFIX)}`;
}

/** What marks an object as the one that a key made; the key itself may be nobody else's business. */
export const fingerprintOfKey = (key: string): string => createHash("sha256").update(key).digest("hex");

/** The name as a path segment. Throws `ConfigurationError` for what is no name: a server might read `..` as a path. */
export function segment(name: string): string {
  if (name.length <= 253 && /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(name) && !name.includes("..")) return name;
  throw new ConfigurationError({
    code: "BadName",
    message: `${JSON.stringify(name)} is not a name that Kubernetes allows`,
    remediation: "use lower-case letters, digits and '-'",
  });
}
