import { BlockList } from "node:net";
import { isOwnRepository, type OwnRepositories, readsOwnRepository } from "./own-repositories.ts";
import type { ImageReference } from "./reference.ts";
import { canonicalRegistry } from "./reference.ts";

/**
 * Which addresses a registry client may talk to. It holds for the registry, for every redirect target and for every
 * token realm, first by name and then again by the address the name resolved to (pinned-connect.ts).
 */
export interface SourcePolicy {
  /** Registries that may be read: `host`, `host:port` or `*.suffix`. Empty: every public host. */
  readonly hosts: readonly string[];
  /** Ranges of private or loopback addresses that may be reached without naming hosts, in CIDR form. */
  readonly ranges: readonly string[];
  /** Whether this machine may be a source although nobody listed it. */
  readonly loopback: "Allowed" | "Listed";
  /** Whether private addresses (RFC 1918, RFC 6598, unique local) may be reached although nobody listed them. */
  readonly private: "Allowed" | "Listed";
  readonly own?: OwnRepositories;
}

/** Public hosts only: the default in production. */
export const PUBLIC_SOURCES: SourcePolicy = { hosts: [], ranges: [], loopback: "Listed", private: "Listed" };

/** Public hosts and this machine: the default in development. */
export const DEVELOPMENT_SOURCES: SourcePolicy = { ...PUBLIC_SOURCES, loopback: "Allowed" };

/** For the installation's own registry, whose address an administrator chose. Link-local and metadata stay closed. */
export const INSTALLATION_REGISTRY: SourcePolicy = { ...PUBLIC_SOURCES, loopback: "Allowed", private: "Allowed" };

/** What the policy says. `because` completes the sentence "… is not allowed: ". */
export type SourceVerdict = { kind: "allowed" } | { kind: "refused"; because: string };

/** What kind of place an address is. */
export type AddressClass = "public" | "private" | "loopback" | "link-local" | "metadata" | "special";

const ALLOWED: SourceVerdict = { kind: "allowed" };
const refused = (because: string): SourceVerdict => ({ kind: "refused", because });
const OWN = refused("the repositories of this installation hold Worlds and are no image source");

/** Names that cloud machines give their metadata service. */
const METADATA_NAMES = new Set([
  "metadata.google.internal",
  "metadata.goog",
  "metadata",
  "instance-data",
  "instance-data.ec2.internal",
]);

/** Whether an image may be read as a source at all, before any connection is made. */
export function judgeReference(policy: SourcePolicy, reference: ImageReference): SourceVerdict {
  const registry = canonicalRegistry(reference.registry);
  if (policy.own && isOwnRepository(policy.own, reference)) return OWN;
  return judgeRegistry(policy, new URL(`https://${registry}`));
}

/** Whether this registry may be read: the allow list, then what holds for every host. */
export function judgeRegistry(policy: SourcePolicy, url: URL): SourceVerdict {
  if (policy.hosts.length > 0 && !isListed(policy, url.hostname, url.port)) {
    return refused(`${url.host} is not on the list of source registries`);
  }
  return judgeUrl(policy, url);
}

/**
 * Whether a connection to this URL may be tried: registry, redirect target or token realm alike. A name passes here and
 * is judged again by its addresses; the port may be absent when it is the scheme's own.
 */
export function judgeUrl(policy: SourcePolicy, url: URL): SourceVerdict {
  if (policy.own && readsOwnRepository(policy.own, url)) return OWN;
  const hostname = bare(url.hostname);
  if (METADATA_NAMES.has(hostname.replace(/\.$/, ""))) return refused(`${hostname} is a metadata service`);
  return classifyAddress(hostname) === undefined ? ALLOWED : judgeAddress(policy, url, hostname);
}

/** Whether the connection may go to this address, which the host of the URL resolved to. */
export function judgeAddress(
  policy: SourcePolicy,
  url: Pick<URL, "hostname" | "port">,
  address: string,
): SourceVerdict {
  const kind = classifyAddress(address);
  switch (kind) {
    case undefined:
      return refused(`${address} is not an IP address`);
    case "public":
      return ALLOWED;
    case "private":
    case "loopback":
      if (policy[kind] === "Allowed" || isListed(policy, url.hostname, url.port) || inRanges(policy, address))
        return ALLOWED;
      return refused(
        `${describe(url.hostname, address)} is a ${kind} address and not on the list of source registries`,
      );
    default:
      return refused(`${describe(url.hostname, address)} is a ${kind} address`);
  }
}

/** The kind of an IP address in text form, IPv4 inside IPv6 included; undefined when it is no address. */
export function classifyAddress(text: string): AddressClass | undefined {
  const address = parseAddress(text);
  if (address === undefined) return undefined;
  for (const [kind, list] of RANGES) if (list.check(address.text, address.family)) return kind;
  return "public";
}

/** Checked in this order; whatever matches nothing is public. Sources: IANA special-purpose registries. */
const RANGES: readonly (readonly [AddressClass, BlockList])[] = [
  // Azure's wire server and Alibaba's metadata service sit in ordinary ranges.
  [
    "metadata",
    blockList([
      "169.254.169.254/32",
      "169.254.170.2/32",
      "168.63.129.16/32",
      "100.100.100.200/32",
      "192.0.0.192/32",
      "fd00:ec2::/64",
      "fd20:ce::254/128",
      "fd00:c1::a9fe:a9fe/128",
    ]),
  ],
  ["link-local", blockList(["169.254.0.0/16", "fe80::/10"])],
  ["loopback", blockList(["127.0.0.0/8", "::1/128"])],
  [
    "private",
    blockList([
      "10.0.0.0/8",
      "172.16.0.0/12",
      "192.168.0.0/16",
      "100.64.0.0/10",
      "198.18.0.0/15",
      "fc00::/7",
      "fec0::/10",
    ]),
  ],
  // Connecting to 0.0.0.0 or :: reaches this machine; Teredo (2001::/32) hides an IPv4 address by inversion.
  [
    "special",
    blockList([
      "0.0.0.0/8",
      "192.0.0.0/24",
      "192.0.2.0/24",
      "198.51.100.0/24",
      "203.0.113.0/24",
      "224.0.0.0/3",
      "::/128",
      "64:ff9b:1::/48",
      "100::/64",
      "2001::/23",
      "2001:db8::/32",
      "3fff::/20",
      "ff00::/8",
    ]),
  ],
];

function blockList(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", prefix = ""] = range.split("/");
    const parsed = parseAddress(address);
    if (parsed === undefined || !/^\d{1,3}$/.test(prefix)) throw new RangeError(`${range} is not an address range`);
    list.addSubnet(parsed.text, Number(prefix), parsed.family);
  }
  return list;
}

const inRanges = (policy: SourcePolicy, text: string): boolean => {
  const address = parseAddress(text);
  return (
    address !== undefined && policy.ranges.length > 0 && blockList(policy.ranges).check(address.text, address.family)
  );
};

function isListed(policy: SourcePolicy, hostname: string, port: string): boolean {
  const host = canonicalRegistry(hostname.replace(/\.$/, ""));
  return policy.hosts.some((entry) => {
    const listed = canonicalRegistry(entry);
    if (listed.startsWith("*.")) return host.endsWith(listed.slice(1));
    return listed === host || listed === `${host}:${port === "" ? "443" : port}`;
  });
}

/** The address in canonical text; an IPv4 address carried inside IPv6 (mapped, compatible, NAT64, 6to4) is taken out. */
function parseAddress(text: string): { text: string; family: "ipv4" | "ipv6" } | undefined {
  const plain = bare(text).replace(/%.*$/, "");
  if (/^\d{1,3}(?:\.\d{1,3}){3}$/.test(plain)) {
    return plain.split(".").every((part) => Number(part) <= 255) ? { text: plain, family: "ipv4" } : undefined;
  }
  if (!plain.includes(":") || !URL.canParse(`http://[${plain}]`)) return undefined;
  const canonical = bare(new URL(`http://[${plain}]`).hostname);
  const embedded = embeddedIpv4(expand(canonical));
  return embedded === undefined ? { text: canonical, family: "ipv6" } : { text: embedded, family: "ipv4" };
}

function embeddedIpv4(groups: readonly number[]): string | undefined {
  const [a = 0, b = 0, c = 0] = groups;
  const high = groups.slice(0, 5).every((group) => group === 0);
  const [sixth = 0, seventh = 0, eighth = 0] = groups.slice(5);
  const isMapped = high && sixth === 0xffff;
  const isCompatible = high && sixth === 0 && seventh !== 0;
  const isNat64 = a === 0x64 && b === 0xff9b && c === 0;
  if (isMapped || isCompatible || isNat64) return dotted(seventh, eighth);
  return a === 0x2002 ? dotted(b, c) : undefined;
}

function dotted(high: number, low: number): string {
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}

/** The eight groups of an IPv6 address in the URL parser's canonical form (which has no dotted part). */
function expand(canonical: string): number[] {
  const [head = "", tail] = canonical.split("::");
  const groups = (part: string) => (part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16)));
  if (tail === undefined) return groups(head);
  const [before, after] = [groups(head), groups(tail)];
  return [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after];
}

function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, "");
}
const describe = (hostname: string, address: string): string =>
  bare(hostname) === address ? address : `${hostname} (${address})`;
