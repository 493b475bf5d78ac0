import { createHash, type Hash } from "node:crypto";
import type { Digest } from "./contract.ts";

const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** Whether `text` is a sha256 digest in its canonical form, the only kind we publish and accept. */
export const isDigest = (text: string): text is Digest => DIGEST.test(text);

/** The digest in `repository@sha256:…`; undefined where the name has none. */
export function digestInName(image: string | undefined): Digest | undefined {
  const [, digest] = image?.split("@") ?? [];
  return digest !== undefined && isDigest(digest) ? digest : undefined;
}

/** The digest of `bytes`. */
export const digestOf = (bytes: Uint8Array): Digest => finishDigest(newHash().update(bytes));

/** A running sha256; `finishDigest` turns it into a digest. */
export const newHash = (): Hash => createHash("sha256");

/** Ends a running hash. */
export const finishDigest = (hash: Hash): Digest => `sha256:${hash.digest("hex")}`;
