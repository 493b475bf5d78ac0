import { createPrivateKey, X509Certificate } from "node:crypto";
import { type KeyPair, makeAuthority, makeServingCertificate } from "./certificate.ts";
import { splitBundle } from "./request-header.ts";

/** What the Secret holds, PEM each. */
export interface ServingMaterial {
  /** The serving certificate and its key. */
  readonly certificate: string;
  readonly key: string;
  /** Trust bundle: the authority in use first, then older ones that may still have certificates about. */
  readonly caBundle: string;
  readonly caKey: string;
}

const AUTHORITY_NAME = "agent-worlds-gateway-ca";
const DAY_MS = 86_400_000;
const AUTHORITY_DAYS = 3_650;
const SERVING_DAYS = 90;
/** Clocks of other machines may be behind. */
const BACKDATE_MS = 3_600_000;

/**
 * The material to serve with now: the present one while it is good, else a renewed one. A certificate is renewed when a
 * third of its life is left; names only ever join, so that two replicas with different names do not take turns.
 */
export function renewed(
  present: ServingMaterial | undefined,
  wish: { names: readonly string[]; now: number },
): ServingMaterial {
  const authority = usableAuthority(present, wish.now);
  if (present === undefined || authority === undefined)
    return issue(newAuthority(wish.now), olderBundle(present, wish.now), wish);
  const leaf = readCertificate(present.certificate);
  const covered = leaf === undefined ? [] : namesOf(leaf);
  const names = [...new Set([...covered, ...wish.names])];
  const good =
    leaf !== undefined &&
    names.length === covered.length &&
    lasts(leaf, wish.now) &&
    keyMatches(leaf, present.key) &&
    leaf.verify(new X509Certificate(authority.certificate).publicKey);
  if (good) return present;
  const others = splitBundle(present.caBundle).slice(1).join("\n");
  return issue(authority, others, { names, now: wish.now });
}

/** Every certificate of these bundles once, in order. */
export const joinedBundle = (...bundles: readonly string[]): string =>
  `${[...new Set(bundles.flatMap(splitBundle))].join("\n")}\n`;

function newAuthority(now: number): KeyPair {
  return makeAuthority({
    commonName: AUTHORITY_NAME,
    notBefore: now - BACKDATE_MS,
    notAfter: now + AUTHORITY_DAYS * DAY_MS,
  });
}

function issue(authority: KeyPair, older: string, wish: { names: readonly string[]; now: number }): ServingMaterial {
  const serving = makeServingCertificate(
    { ...authority, commonName: AUTHORITY_NAME },
    { names: wish.names, notBefore: wish.now - BACKDATE_MS, notAfter: wish.now + SERVING_DAYS * DAY_MS },
  );
  return {
    certificate: serving.certificate,
    key: serving.key,
    caBundle: `${authority.certificate.trim()}\n${older === "" ? "" : `${older.trim()}\n`}`,
    caKey: authority.key,
  };
}

function usableAuthority(present: ServingMaterial | undefined, now: number): KeyPair | undefined {
  const pem = splitBundle(present?.caBundle ?? "")[0];
  const certificate = pem === undefined ? undefined : readCertificate(pem);
  if (present === undefined || pem === undefined || certificate === undefined) return undefined;
  const usable = certificate.ca && lasts(certificate, now) && keyMatches(certificate, present.caKey);
  return usable ? { certificate: pem, key: present.caKey } : undefined;
}

/** Authorities of the present bundle that are still valid: replicas may serve their certificates for a while. */
function olderBundle(present: ServingMaterial | undefined, now: number): string {
  return splitBundle(present?.caBundle ?? "")
    .filter((pem) => (readCertificate(pem)?.validToDate.getTime() ?? 0) > now)
    .slice(0, 2)
    .join("\n");
}

/** More than a third of its life is left. */
function lasts(certificate: X509Certificate, now: number): boolean {
  const from = certificate.validFromDate.getTime();
  const to = certificate.validToDate.getTime();
  return now >= from && to - now > (to - from) / 3;
}

function readCertificate(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem);
  } catch (error) {
    // A Secret somebody damaged is replaced, not served.
    if (error instanceof Error) return undefined;
    throw error;
  }
}

function keyMatches(certificate: X509Certificate, key: string): boolean {
  try {
    return certificate.checkPrivateKey(createPrivateKey(key));
  } catch (error) {
    if (error instanceof Error) return false;
    throw error;
  }
}

const namesOf = (leaf: X509Certificate): string[] =>
  (leaf.subjectAltName ?? "")
    .split(", ")
    .filter((entry) => entry !== "")
    .map((entry) => entry.slice(entry.indexOf(":") + 1))
    .map((name) => (name.includes(":") ? compressed(name) : name));

/** Node prints IPv6 names in full; one spelling is needed to compare them. */
const compressed = (address: string): string => new URL(`http://[${address}]`).hostname.slice(1, -1);
