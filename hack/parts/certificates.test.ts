import assert from "node:assert/strict";
import { createPrivateKey, X509Certificate } from "node:crypto";
import { test } from "node:test";
import { createAuthority, issue } from "./certificates.ts";

const authority = createAuthority("test-ca");

test("an authority is self-signed, may sign, and is valid for years", () => {
  const cert = new X509Certificate(authority.certPem);
  assert.ok(cert.ca);
  assert.ok(cert.verify(cert.publicKey));
  assert.ok(cert.checkPrivateKey(createPrivateKey(authority.keyPem)));
  assert.ok(cert.validToDate.getTime() > Date.now() + 9 * 365 * 86_400_000);
});

test("a server certificate is signed by its authority and holds its names", () => {
  const issued = issue(authority, { commonName: "srv", usage: "server", names: ["localhost", "127.0.0.1"] });
  const cert = new X509Certificate(issued.certPem);
  assert.ok(cert.verify(new X509Certificate(authority.certPem).publicKey));
  assert.ok(cert.checkIssued(new X509Certificate(authority.certPem)));
  assert.equal(cert.subjectAltName, "DNS:localhost, IP Address:127.0.0.1");
  assert.equal(cert.ca, false);
  assert.deepEqual(cert.keyUsage, ["1.3.6.1.5.5.7.3.1"]);
});

test("a client certificate carries user and groups as common name and organizations, in any script", () => {
  const issued = issue(authority, {
    commonName: "alice ünï",
    organizations: ["dev", "system:masters"],
    usage: "client",
  });
  const cert = new X509Certificate(issued.certPem);
  assert.equal(cert.toLegacyObject().subject.CN, "alice ünï");
  assert.deepEqual(cert.toLegacyObject().subject.O, ["dev", "system:masters"]);
  assert.deepEqual(cert.keyUsage, ["1.3.6.1.5.5.7.3.2"]);
});

test("the end of validity is what was asked for, past 2049 too", () => {
  for (const end of ["2030-01-02T03:04:05.000Z", "2061-05-06T07:08:09.000Z"]) {
    const issued = issue(authority, { commonName: "x", usage: "client", notAfter: new Date(end) });
    assert.equal(new X509Certificate(issued.certPem).validToDate.toISOString(), end);
  }
});

test("every certificate has a serial number and a key of its own", () => {
  const [a, b] = [1, 2].map(() => new X509Certificate(issue(authority, { commonName: "x", usage: "client" }).certPem));
  assert.notEqual(a?.serialNumber, b?.serialNumber);
  assert.notDeepEqual(
    a?.publicKey.export({ type: "spki", format: "der" }),
    b?.publicKey.export({ type: "spki", format: "der" }),
  );
});
