import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { makeAuthority, makeServingCertificate } from "./certificate.ts";
import * as der from "./der.ts";

const DAY = 86_400_000;
const now = Date.now();
const commonName = "Agent Worlds gateway CA";
const authority = { commonName, ...makeAuthority({ commonName, notBefore: now - DAY, notAfter: now + 3_650 * DAY }) };
const names = ["localhost", "gateway.agent-worlds-system.svc", "127.0.0.1", "::1", "fd00::12:3"];
const serving = makeServingCertificate(authority, { names, notBefore: now - DAY, notAfter: now + 90 * DAY });

test("openssl verifies the serving certificate as a TLS server under the authority, for each of its names", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "aw-certificate-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "ca.pem"), authority.certificate);
  await writeFile(join(folder, "leaf.pem"), serving.certificate);
  const verify = (...flags: string[]): string =>
    execFileSync(
      "openssl",
      ["verify", "-x509_strict", "-purpose", "sslserver", ...flags, "-CAfile", "ca.pem", "leaf.pem"],
      {
        cwd: folder,
        stdio: "pipe",
      },
    ).toString();
  assert.match(verify("-verify_hostname", "localhost"), /leaf.pem: OK/);
  assert.match(verify("-verify_hostname", "gateway.agent-worlds-system.svc"), /leaf.pem: OK/);
  for (const address of ["127.0.0.1", "::1", "fd00::12:3"]) assert.match(verify("-verify_ip", address), /leaf.pem: OK/);
  assert.throws(() => verify("-verify_hostname", "elsewhere"));
});

test("node reads both certificates as what they were made as", () => {
  const ca = new X509Certificate(authority.certificate);
  const leaf = new X509Certificate(serving.certificate);
  assert.equal(ca.ca, true);
  assert.equal(leaf.ca, false);
  assert.ok(leaf.checkIssued(ca) && leaf.verify(ca.publicKey) && ca.verify(ca.publicKey));
  assert.equal(leaf.checkHost("localhost"), "localhost");
  assert.equal(leaf.checkIP("::1"), "::1");
  assert.equal(leaf.validToDate.getTime(), Math.floor((now + 90 * DAY) / 1000) * 1000);
});

test("a certificate that outlives 2049 carries a four-digit year", () => {
  const far = makeAuthority({ commonName, notBefore: now, notAfter: Date.UTC(2051, 0, 2, 3, 4, 5) });
  assert.equal(new X509Certificate(far.certificate).validToDate.toISOString(), "2051-01-02T03:04:05.000Z");
});

const encodings: [name: string, got: Buffer, hex: string][] = [
  ["an integer with a leading one bit gets a zero byte", der.integer(Buffer.of(0x80)), "02020080"],
  ["an integer is minimal", der.integer(Buffer.of(0, 0, 5)), "020105"],
  ["zero is one byte", der.integer(Buffer.of(0)), "020100"],
  [
    "an object identifier with arcs of several bytes",
    der.objectIdentifier("1.2.840.10045.4.3.2"),
    "06082a8648ce3d040302",
  ],
  ["a long length", der.octetString(Buffer.alloc(200)).subarray(0, 3), "0481c8"],
  ["a longer length", der.octetString(Buffer.alloc(70_000)).subarray(0, 5), "0483011170"],
  ["time in this half of the century", der.time(Date.UTC(2031, 1, 3, 4, 5, 6)), "170d3331303230333034303530365a"],
];
for (const [name, got, hex] of encodings) test(`DER: ${name}`, () => assert.equal(got.toString("hex"), hex));
