import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { splitBundle } from "./request-header.ts";
import { joinedBundle, renewed } from "./serving-material.ts";

const DAY = 86_400_000;
const now = Date.UTC(2031, 4, 1);
const names = ["localhost", "127.0.0.1", "::1", "gateway.agent-worlds-system.svc"];
const first = renewed(undefined, { names, now });

test("good material is kept as it is", () => {
  assert.equal(renewed(first, { names, now: now + 30 * DAY }), first);
});

test("the serving certificate is renewed under the same authority when a third of its life is left", () => {
  const next = renewed(first, { names, now: now + 61 * DAY });
  assert.notEqual(next.certificate, first.certificate);
  assert.equal(next.caBundle, first.caBundle);
  assert.ok(new X509Certificate(next.certificate).verify(new X509Certificate(next.caBundle).publicKey));
});

test("a renewed authority keeps the old one in the bundle, so that replicas can change one after another", () => {
  const next = renewed(first, { names, now: now + 2_500 * DAY });
  const bundle = splitBundle(next.caBundle);
  assert.equal(bundle.length, 2);
  assert.equal(bundle[1], splitBundle(first.caBundle)[0]);
  assert.ok(new X509Certificate(next.certificate).verify(new X509Certificate(bundle[0] ?? "").publicKey));
});

test("an authority that has expired leaves the bundle", () => {
  assert.equal(splitBundle(renewed(first, { names, now: now + 4_000 * DAY }).caBundle).length, 1);
});

test("a name that is asked for joins, and none is ever taken away", () => {
  const joined = renewed(first, { names: ["other.example"], now });
  assert.match(new X509Certificate(joined.certificate).subjectAltName ?? "", /localhost.*other\.example/);
  assert.equal(renewed(joined, { names, now }), joined);
});

const damages: [name: string, damaged: typeof first][] = [
  ["a certificate that is no certificate", { ...first, certificate: "nonsense" }],
  ["a key of another certificate", { ...first, key: first.caKey }],
  ["an authority without its key", { ...first, caKey: "" }],
  ["an empty bundle", { ...first, caBundle: "" }],
];
for (const [name, damaged] of damages) {
  test(`${name} is replaced by working material`, () => {
    const next = renewed(damaged, { names, now });
    assert.ok(new X509Certificate(next.certificate).verify(new X509Certificate(next.caBundle).publicKey));
    assert.equal(renewed(next, { names, now }), next);
  });
}

test("bundles are joined without repeating a certificate, the first one's first", () => {
  const second = renewed(undefined, { names, now });
  const both = joinedBundle(second.caBundle, first.caBundle);
  assert.deepEqual(splitBundle(both), [...splitBundle(second.caBundle), ...splitBundle(first.caBundle)]);
  assert.equal(joinedBundle(both, first.caBundle), both);
  assert.equal(joinedBundle(first.caBundle, first.caBundle), first.caBundle);
});
