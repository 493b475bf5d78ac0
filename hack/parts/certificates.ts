import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { isIPv4 } from "node:net";

/** A certificate with its private key, both PEM (PKCS#8 for the key, EC P-256). */
export interface CertifiedKey {
  certPem: string;
  keyPem: string;
}

/** A certificate authority of the local parts. */
export interface Authority extends CertifiedKey {
  /** Common name, repeated as issuer in what it signs. */
  commonName: string;
}

/** What a signed certificate says. */
export interface CertificateRequest {
  /** User name in Kubernetes. */
  commonName: string;
  /** Groups in Kubernetes. */
  organizations?: readonly string[];
  /** DNS names and IPv4 addresses. */
  names?: readonly string[];
  usage: "server" | "client";
  /** Default: now − 5 min. */
  notBefore?: Date;
  /** Default: now + 1 year. */
  notAfter?: Date;
}

/** A fresh key pair as PEM, for signing service-account tokens. */
export function keyPair(): { privatePem: string; publicPem: string } {
  const pair = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  return {
    privatePem: pair.privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    publicPem: pair.publicKey.export({ type: "spki", format: "pem" }).toString(),
  };
}

/** A new self-signed authority, valid for ten years. */
export function createAuthority(commonName: string): Authority {
  const { privatePem } = keyPair();
  const now = Date.now();
  const certPem = certificate({
    subject: distinguishedName(commonName, []),
    issuer: distinguishedName(commonName, []),
    subjectKeyPem: privatePem,
    issuerKeyPem: privatePem,
    notBefore: new Date(now - 300_000),
    notAfter: new Date(now + 10 * 365 * 86_400_000),
    extensions: [
      extension(oids.basicConstraints, true, sequence(tlv(0x01, Buffer.from([0xff])))),
      // digitalSignature, keyCertSign, cRLSign
      extension(oids.keyUsage, true, tlv(0x03, Buffer.from([1, 0x86]))),
    ],
  });
  return { commonName, certPem, keyPem: privatePem };
}

/** A certificate for a new key, signed by `authority`. */
export function issue(authority: Authority, request: CertificateRequest): CertifiedKey {
  const { privatePem } = keyPair();
  const now = Date.now();
  const extensions = [
    extension(oids.basicConstraints, true, sequence()),
    // digitalSignature
    extension(oids.keyUsage, true, tlv(0x03, Buffer.from([7, 0x80]))),
    extension(
      oids.extendedKeyUsage,
      false,
      sequence(objectId(request.usage === "server" ? oids.serverAuth : oids.clientAuth)),
    ),
  ];
  const names = request.names ?? [];
  if (names.length > 0) extensions.push(extension(oids.subjectAltName, false, sequence(...names.map(generalName))));
  const certPem = certificate({
    subject: distinguishedName(request.commonName, request.organizations ?? []),
    issuer: distinguishedName(authority.commonName, []),
    subjectKeyPem: privatePem,
    issuerKeyPem: authority.keyPem,
    notBefore: request.notBefore ?? new Date(now - 300_000),
    notAfter: request.notAfter ?? new Date(now + 365 * 86_400_000),
    extensions,
  });
  return { certPem, keyPem: privatePem };
}

// X.509 v3 (RFC 5280) in DER: as little of it as the parts need, so that nothing has to be installed.

const oids = {
  commonName: [2, 5, 4, 3],
  organization: [2, 5, 4, 10],
  ecdsaWithSha256: [1, 2, 840, 10045, 4, 3, 2],
  subjectKeyIdentifier: [2, 5, 29, 14],
  keyUsage: [2, 5, 29, 15],
  subjectAltName: [2, 5, 29, 17],
  basicConstraints: [2, 5, 29, 19],
  authorityKeyIdentifier: [2, 5, 29, 35],
  extendedKeyUsage: [2, 5, 29, 37],
  serverAuth: [1, 3, 6, 1, 5, 5, 7, 3, 1],
  clientAuth: [1, 3, 6, 1, 5, 5, 7, 3, 2],
} as const;

interface CertificateFields {
  subject: Buffer;
  issuer: Buffer;
  subjectKeyPem: string;
  issuerKeyPem: string;
  notBefore: Date;
  notAfter: Date;
  extensions: readonly Buffer[];
}

function certificate(fields: CertificateFields): string {
  const algorithm = sequence(objectId(oids.ecdsaWithSha256));
  const subjectKey = publicKeyInfo(fields.subjectKeyPem);
  const body = sequence(
    tlv(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([0x40]), randomBytes(15)])),
    algorithm,
    fields.issuer,
    sequence(time(fields.notBefore), time(fields.notAfter)),
    fields.subject,
    subjectKey,
    tlv(
      0xa3,
      sequence(
        ...fields.extensions,
        extension(oids.subjectKeyIdentifier, false, tlv(0x04, keyIdentifier(subjectKey))),
        extension(
          oids.authorityKeyIdentifier,
          false,
          sequence(tlv(0x80, keyIdentifier(publicKeyInfo(fields.issuerKeyPem)))),
        ),
      ),
    ),
  );
  const signature = sign("sha256", body, createPrivateKey(fields.issuerKeyPem));
  const der = sequence(body, algorithm, tlv(0x03, Buffer.concat([Buffer.from([0]), signature])));
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

function publicKeyInfo(privatePem: string): Buffer {
  return createPublicKey(privatePem).export({ type: "spki", format: "der" });
}

function keyIdentifier(spki: Buffer): Buffer {
  return createHash("sha256").update(spki).digest().subarray(0, 20);
}

function distinguishedName(commonName: string, organizations: readonly string[]): Buffer {
  const attribute = (oid: readonly number[], value: string): Buffer =>
    tlv(0x31, sequence(objectId(oid), tlv(0x0c, Buffer.from(value, "utf8"))));
  return sequence(
    ...organizations.map((name) => attribute(oids.organization, name)),
    attribute(oids.commonName, commonName),
  );
}

function generalName(name: string): Buffer {
  if (isIPv4(name)) return tlv(0x87, Buffer.from(name.split(".").map(Number)));
  return tlv(0x82, Buffer.from(name, "ascii"));
}

function extension(oid: readonly number[], critical: boolean, value: Buffer): Buffer {
  const flag = critical ? [tlv(0x01, Buffer.from([0xff]))] : [];
  return sequence(objectId(oid), ...flag, tlv(0x04, value));
}

function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/[-:T]|\.\d+/g, "");
  // RFC 5280, 4.1.2.5: UTCTime through 2049, GeneralizedTime from 2050 on.
  return date.getUTCFullYear() < 2050 ? tlv(0x17, Buffer.from(digits.slice(2))) : tlv(0x18, Buffer.from(digits));
}

function integer(bytes: Buffer): Buffer {
  return tlv(0x02, bytes);
}

function objectId(parts: readonly number[]): Buffer {
  const [first = 0, second = 0, ...rest] = parts;
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const groups = [part & 0x7f];
    for (let left = part >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tlv(0x06, Buffer.from(bytes));
}

function sequence(...items: readonly Buffer[]): Buffer {
  return tlv(0x30, Buffer.concat(items));
}

function tlv(tag: number, value: Buffer): Buffer {
  return Buffer.concat([Buffer.from([tag]), derLength(value.length), value]);
}

function derLength(length: number): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  if (length < 0x100) return Buffer.from([0x81, length]);
  return Buffer.from([0x82, length >>> 8, length & 0xff]);
}
