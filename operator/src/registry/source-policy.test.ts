import assert from "node:assert/strict";
import { test } from "node:test";
import { parseReference } from "./reference.ts";
import {
  type AddressClass,
  classifyAddress,
  DEVELOPMENT_SOURCES,
  INSTALLATION_REGISTRY,
  judgeAddress,
  judgeReference,
  judgeRegistry,
  judgeUrl,
  PUBLIC_SOURCES,
  type SourcePolicy,
} from "./source-policy.ts";

const classes: Record<string, AddressClass | undefined> = {
  "8.8.8.8": "public",
  "172.15.255.255": "public",
  "172.32.0.1": "public",
  "2606:4700::6810:1": "public",
  "10.0.0.1": "private",
  "172.16.0.1": "private",
  "192.168.255.255": "private",
  "100.64.0.1": "private",
  "198.18.0.1": "private",
  "fd12:3456::1": "private",
  "127.0.0.1": "loopback",
  "127.255.0.9": "loopback",
  "::1": "loopback",
  "169.254.1.1": "link-local",
  "fe80::1": "link-local",
  "fe80::1%eth0": "link-local",
  "febf::1": "link-local",
  "169.254.169.254": "metadata",
  "169.254.170.2": "metadata",
  "100.100.100.200": "metadata",
  "168.63.129.16": "metadata",
  "fd00:ec2::254": "metadata",
  "FD00:0EC2:0:0:0:0:0:254": "metadata",
  "0.0.0.0": "special",
  "::": "special",
  "224.0.0.1": "special",
  "255.255.255.255": "special",
  "ff02::1": "special",
  "2001:db8::1": "special",
  // The same places in other clothes: mapped, compatible, NAT64, 6to4.
  "::ffff:169.254.169.254": "metadata",
  "::ffff:a9fe:a9fe": "metadata",
  "::ffff:127.0.0.1": "loopback",
  "::127.0.0.1": "loopback",
  "64:ff9b::a9fe:a9fe": "metadata",
  "64:ff9b::10.0.0.1": "private",
  "2002:7f00:1::": "loopback",
  "::ffff:8.8.8.8": "public",
  "[::1]": "loopback",
  "999.1.1.1": undefined,
  "example.com": undefined,
  "": undefined,
};
for (const [address, want] of Object.entries(classes)) {
  test(`${JSON.stringify(address)} is ${want ?? "no address"}`, () => assert.equal(classifyAddress(address), want));
}

const listed: SourcePolicy = {
  ...PUBLIC_SOURCES,
  hosts: ["docker.io", "registry.corp.example:5000", "*.trusted.example"],
};
const ranged: SourcePolicy = { ...PUBLIC_SOURCES, ranges: ["10.1.0.0/16"] };

const registries: [policy: SourcePolicy, url: string, allowed: boolean, why: string][] = [
  [PUBLIC_SOURCES, "https://ghcr.io", true, "any public host without a list"],
  [PUBLIC_SOURCES, "https://127.0.0.1:5000", false, "loopback in production"],
  [DEVELOPMENT_SOURCES, "http://127.0.0.1:5000", true, "loopback in development"],
  [DEVELOPMENT_SOURCES, "http://2130706433:5000", true, "loopback as one number is loopback"],
  [PUBLIC_SOURCES, "https://0x7f.1", false, "loopback in hex is loopback"],
  [DEVELOPMENT_SOURCES, "https://10.0.0.1", false, "private in development"],
  [DEVELOPMENT_SOURCES, "https://169.254.169.254", false, "metadata in development"],
  [DEVELOPMENT_SOURCES, "https://[fd00:ec2::254]", false, "metadata over IPv6"],
  [DEVELOPMENT_SOURCES, "https://metadata.google.internal", false, "metadata by name"],
  [DEVELOPMENT_SOURCES, "https://METADATA.google.internal.", false, "metadata by name, fully qualified"],
  [INSTALLATION_REGISTRY, "https://10.0.0.1", true, "the installation's own registry may be private"],
  [INSTALLATION_REGISTRY, "https://169.254.0.1", false, "but not link-local"],
  [listed, "https://registry-1.docker.io", true, "Docker Hub is listed under its short name"],
  [listed, "https://registry.corp.example:5000", true, "a listed port"],
  [listed, "https://registry.corp.example", false, "another port"],
  [listed, "https://a.trusted.example", true, "a suffix"],
  [listed, "https://trusted.example", false, "the suffix itself"],
  [listed, "https://nottrusted.example", false, "a look-alike"],
  [listed, "https://ghcr.io", false, "not listed"],
  [ranged, "https://10.1.2.3", true, "in a listed range"],
  [ranged, "https://10.2.0.1", false, "outside the listed range"],
  [
    { ...ranged, ranges: ["169.254.0.0/16", "::/0", "0.0.0.0/0"] },
    "https://169.254.169.254",
    false,
    "no list opens metadata",
  ],
  [{ ...listed, hosts: ["169.254.169.254"] }, "https://169.254.169.254", false, "no name opens metadata"],
];
for (const [policy, url, allowed, why] of registries) {
  test(`registry ${url}: ${allowed ? "allowed" : "refused"}, ${why}`, () => {
    assert.equal(judgeRegistry(policy, new URL(url)).kind, allowed ? "allowed" : "refused");
  });
}

test("redirect targets and token realms need no place on the list, but must be public", () => {
  assert.equal(judgeUrl(listed, new URL("https://auth.docker.io/token")).kind, "allowed");
  assert.equal(judgeUrl(listed, new URL("https://10.0.0.1/token")).kind, "refused");
});

test("a name is judged by what it resolves to, and a listed name may be private", () => {
  const hosts = { public: new URL("https://public.example"), listed: new URL("https://registry.corp.example:5000") };
  assert.equal(judgeAddress(PUBLIC_SOURCES, hosts.public, "10.0.0.1").kind, "refused");
  assert.equal(judgeAddress(DEVELOPMENT_SOURCES, hosts.public, "169.254.169.254").kind, "refused");
  assert.equal(judgeAddress(listed, hosts.listed, "10.0.0.1").kind, "allowed");
  assert.equal(judgeAddress(listed, hosts.listed, "169.254.169.254").kind, "refused");
  assert.equal(judgeAddress(listed, hosts.listed, "not an address").kind, "refused");
});

test("the repositories of the installation are no image source, under none of its registry's names", () => {
  const policy: SourcePolicy = {
    ...DEVELOPMENT_SOURCES,
    own: { registries: ["127.0.0.1:5055", "r.example"], prefix: "worlds", installation: "i" },
  };
  const verdicts = [
    "127.0.0.1:5055/worlds/i/ns/w:v1",
    "r.example/worlds/i/ns/w",
    "127.0.0.1:5055/base/busybox",
    "r.example/worldsend/x",
  ];
  assert.deepEqual(
    verdicts.map((text) => judgeReference(policy, parseReference(text)).kind),
    ["refused", "refused", "allowed", "allowed"],
  );
});
