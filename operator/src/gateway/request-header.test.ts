import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { makeAuthority, makeServingCertificate } from "./certificate.ts";
import { forwardedIdentity, maySpeakForOthers, parseTrust, type RequestHeaderTrust } from "./request-header.ts";

const DAY = 86_400_000;
const now = Date.now();
const span = { notBefore: now - DAY, notAfter: now + DAY };
const authority = (commonName: string) => ({ commonName, ...makeAuthority({ commonName, ...span }) });
const front = authority("front-proxy");
const other = authority("front-proxy");
const leafOf = (issuer: typeof front, name: string): X509Certificate =>
  new X509Certificate(makeServingCertificate(issuer, { names: [name], ...span }).certificate);

const trust = (change: Partial<RequestHeaderTrust> = {}): RequestHeaderTrust => ({
  ca: front.certificate,
  allowedNames: ["aggregator"],
  userHeaders: ["x-remote-user"],
  uidHeaders: ["x-remote-uid"],
  groupHeaders: ["x-remote-group"],
  extraPrefixes: ["x-remote-extra-"],
  ...change,
});
const aggregator = leafOf(front, "aggregator");

const certificates: [
  name: string,
  leaf: X509Certificate,
  options: Partial<Parameters<typeof maySpeakForOthers>[1]>,
  may: boolean,
][] = [
  ["of the request-header CA with an allowed name", aggregator, {}, true],
  ["with another name", leafOf(front, "somebody"), {}, false],
  ["of another CA of the same name", leafOf(other, "aggregator"), {}, false],
  ["that OpenSSL did not verify", aggregator, { verified: false }, false],
  ["that has expired", aggregator, { now: now + 2 * DAY }, false],
  ["that is not valid yet", aggregator, { now: now - 2 * DAY }, false],
  [
    "with any name where every name is allowed",
    leafOf(front, "somebody"),
    { trust: trust({ allowedNames: [] }) },
    true,
  ],
  [
    "of a CA that has left the bundle since the handshake",
    aggregator,
    { trust: trust({ ca: other.certificate }) },
    false,
  ],
  [
    "of one of two CAs in the bundle",
    aggregator,
    { trust: trust({ ca: other.certificate + front.certificate }) },
    true,
  ],
];
for (const [name, leaf, options, may] of certificates) {
  test(`a certificate ${name} may ${may ? "" : "not "}speak for others`, () => {
    assert.equal(maySpeakForOthers(leaf, { trust: trust(), verified: true, now, ...options }), may);
  });
}

test("the forwarded identity keeps groups with commas apart and decodes extra keys", () => {
  const raw = [
    ["X-Remote-User", "ada"],
    ["X-Remote-Uid", "42"],
    ["X-Remote-Group", "dev,ops"],
    ["x-remote-group", "system:authenticated"],
    ["X-Remote-Extra-Example.org%2fscope", "a"],
    ["X-Remote-Extra-Example.org%2fscope", "b"],
    ["X-Remote-Extra-__proto__", "c"],
  ].flat();
  const identity = forwardedIdentity(raw, trust());
  assert.equal(identity?.user, "ada");
  assert.equal(identity?.uid, "42");
  assert.equal(identity?.via, "Proxied");
  assert.deepEqual(identity?.groups, ["dev,ops", "system:authenticated"]);
  assert.deepEqual(Object.entries(identity?.extra ?? {}), [
    ["example.org/scope", ["a", "b"]],
    ["__proto__", ["c"]],
  ]);
});

test("headers without a user are nobody", () => {
  assert.equal(forwardedIdentity(["X-Remote-User", "", "X-Remote-Group", "system:masters"], trust()), undefined);
});

test("a ConfigMap without a CA trusts nobody, and lists that are no lists are an error", () => {
  assert.equal(parseTrust(undefined), undefined);
  assert.equal(parseTrust({ "requestheader-allowed-names": "[]" }), undefined);
  const parsed = parseTrust({
    "requestheader-client-ca-file": front.certificate,
    "requestheader-allowed-names": '["aggregator"]',
    "requestheader-username-headers": '["X-Remote-User"]',
  });
  assert.deepEqual(parsed?.userHeaders, ["x-remote-user"]);
  assert.deepEqual(parsed?.groupHeaders, []);
  assert.throws(
    () => parseTrust({ "requestheader-client-ca-file": "x", "requestheader-allowed-names": '"a"' }),
    TypeError,
  );
});
