import { X509Certificate } from "node:crypto";
import type { Identity } from "./identity.ts";

/** What `kube-system/extension-apiserver-authentication` says about the aggregation layer's client certificate. */
export interface RequestHeaderTrust {
  /** PEM bundle; the only anchors for a certificate that may speak for others. */
  readonly ca: string;
  /** Common names that may; empty means every certificate of that CA. */
  readonly allowedNames: readonly string[];
  /** Lower case. */
  readonly userHeaders: readonly string[];
  readonly uidHeaders: readonly string[];
  readonly groupHeaders: readonly string[];
  readonly extraPrefixes: readonly string[];
}

/** Parses the ConfigMap's data; `undefined` when it names no CA (aggregation is off: nobody may speak for others). */
export function parseTrust(data: Readonly<Record<string, string>> | undefined): RequestHeaderTrust | undefined {
  const ca = data?.["requestheader-client-ca-file"];
  if (ca === undefined || ca.trim() === "") return undefined;
  const names = (key: string): string[] => {
    const parsed: unknown = JSON.parse(data?.[key] ?? "[]");
    if (!Array.isArray(parsed) || !parsed.every((name) => typeof name === "string")) {
      throw new TypeError(`${key} in extension-apiserver-authentication is not a list of strings`);
    }
    return parsed;
  };
  const headers = (key: string): string[] => names(key).map((name) => name.toLowerCase());
  return {
    ca,
    allowedNames: names("requestheader-allowed-names"),
    userHeaders: headers("requestheader-username-headers"),
    uidHeaders: headers("requestheader-uid-headers"),
    groupHeaders: headers("requestheader-group-headers"),
    extraPrefixes: headers("requestheader-extra-headers-prefix"),
  };
}

/** A bundle of PEM certificates as a list. */
export const splitBundle = (pem: string): string[] =>
  pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];

/**
 * Whether a client certificate is valid now and of an authority of the bundle. OpenSSL verified the chain at the handshake
 * (`verified`), but against every bundle of the listener as it was then, so the leaf's issuer is checked again against this
 * one as it is today: a removed CA ends its trust on open connections too. Chains through intermediates are not accepted; no
 * Kubernetes distribution issues them.
 */
export function isIssuedBy(
  leaf: X509Certificate,
  options: { bundle: string; verified: boolean; now: number },
): boolean {
  if (!options.verified) return false;
  if (options.now < leaf.validFromDate.getTime() || options.now > leaf.validToDate.getTime()) return false;
  return splitBundle(options.bundle).some((pem) => {
    const ca = new X509Certificate(pem);
    return ca.ca && leaf.checkIssued(ca) && leaf.verify(ca.publicKey);
  });
}

/** Whether a client certificate may speak for others: of the request-header CA, with an allowed name. */
export function maySpeakForOthers(
  leaf: X509Certificate,
  options: { trust: RequestHeaderTrust; verified: boolean; now: number },
): boolean {
  const { trust, ...rest } = options;
  if (!isIssuedBy(leaf, { bundle: trust.ca, ...rest })) return false;
  if (trust.allowedNames.length === 0) return true;
  const name = commonName(leaf);
  return name !== undefined && trust.allowedNames.includes(name);
}

/** The subject's single common name; two of them are nobody's. */
function commonName(leaf: X509Certificate): string | undefined {
  const name: unknown = leaf.toLegacyObject().subject?.CN;
  return typeof name === "string" ? name : undefined;
}

/**
 * The identity in the forwarded headers; `undefined` when they name no user. `rawHeaders` alternates names and values:
 * Node joins repeated headers with commas, and a group may hold a comma.
 */
export function forwardedIdentity(rawHeaders: readonly string[], trust: RequestHeaderTrust): Identity | undefined {
  const values = (names: readonly string[]): string[] => {
    for (const name of names) {
      const found = headerPairs(rawHeaders).filter((pair) => pair.name === name && pair.value !== "");
      if (found.length > 0) return found.map((pair) => pair.value);
    }
    return [];
  };
  const user = values(trust.userHeaders)[0];
  if (user === undefined) return undefined;
  const extra: Record<string, string[]> = Object.create(null);
  for (const { name, value } of headerPairs(rawHeaders)) {
    for (const prefix of trust.extraPrefixes) {
      if (!name.startsWith(prefix)) continue;
      const key = unescapeKey(name.slice(prefix.length));
      extra[key] = [...(extra[key] ?? []), value];
    }
  }
  return {
    user,
    uid: values(trust.uidHeaders)[0],
    groups: values(trust.groupHeaders),
    extra,
    via: "Proxied",
  };
}

function headerPairs(rawHeaders: readonly string[]): { name: string; value: string }[] {
  const pairs: { name: string; value: string }[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    // Node reads header bytes as latin1; kube-apiserver writes UTF-8.
    const value = Buffer.from(rawHeaders[at + 1] ?? "", "latin1").toString("utf8");
    pairs.push({ name: (rawHeaders[at] ?? "").toLowerCase(), value });
  }
  return pairs;
}

/** Extra keys are percent-encoded; one that is not is taken as it stands, as kube-apiserver does. */
function unescapeKey(key: string): string {
  try {
    return decodeURIComponent(key);
  } catch (error) {
    if (error instanceof URIError) return key;
    throw error;
  }
}
