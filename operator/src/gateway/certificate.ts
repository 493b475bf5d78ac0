import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from "node:crypto";
import { isIP } from "node:net";
import * as der from "./der.ts";

/** A certificate and its key, both PEM. */
export interface KeyPair {
  readonly certificate: string;
  readonly key: string;
}

/** A certificate authority of its own, EC P-256, for nothing but the gateway's serving certificates. */
export function makeAuthority(options: { commonName: string; notBefore: number; notAfter: number }): KeyPair {
  const { privateKey, publicKey } = newKey();
  const subject = nameOf(options.commonName);
  const certificate = signed({
    subject,
    issuer: subject,
    subjectKey: publicKey,
    signingKey: privateKey,
    notBefore: options.notBefore,
    notAfter: options.notAfter,
    extensions: [
      extension(OID.basicConstraints, der.sequence(der.boolean(true), der.integer(Buffer.of(0))), { critical: true }),
      // keyCertSign and cRLSign: bits 5 and 6.
      extension(OID.keyUsage, der.bitString(Buffer.of(0b0000_0110), 1), { critical: true }),
      extension(OID.subjectKeyIdentifier, der.octetString(keyIdentifier(publicKey))),
    ],
  });
  return { certificate, key: pemOf(privateKey) };
}

/** A serving certificate for `names` (DNS names and IP addresses), signed by `authority`. */
export function makeServingCertificate(
  authority: KeyPair & { commonName: string },
  options: { names: readonly string[]; notBefore: number; notAfter: number },
): KeyPair {
  const { privateKey, publicKey } = newKey();
  const authorityKey = createPrivateKey(authority.key);
  const certificate = signed({
    subject: nameOf(options.names[0] ?? "gateway"),
    issuer: nameOf(authority.commonName),
    subjectKey: publicKey,
    signingKey: authorityKey,
    notBefore: options.notBefore,
    notAfter: options.notAfter,
    extensions: [
      extension(OID.basicConstraints, der.sequence(), { critical: true }),
      // digitalSignature: bit 0.
      extension(OID.keyUsage, der.bitString(Buffer.of(0b1000_0000), 7), { critical: true }),
      extension(OID.extendedKeyUsage, der.sequence(der.objectIdentifier(OID.serverAuth))),
      extension(OID.subjectAlternativeName, der.sequence(...options.names.map(alternativeName))),
      extension(
        OID.authorityKeyIdentifier,
        der.sequence(der.implicitPrimitive(0, keyIdentifier(createPublicKey(authorityKey)))),
      ),
    ],
  });
  return { certificate, key: pemOf(privateKey) };
}

const OID = {
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  commonName: "2.5.4.3",
  subjectKeyIdentifier: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAlternativeName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKeyIdentifier: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
  serverAuth: "1.3.6.1.5.5.7.3.1",
} as const;

interface Unsigned {
  readonly subject: Buffer;
  readonly issuer: Buffer;
  readonly subjectKey: KeyObject;
  readonly signingKey: KeyObject;
  /** Epoch milliseconds. */
  readonly notBefore: number;
  readonly notAfter: number;
  readonly extensions: readonly Buffer[];
}

/** RFC 5280 §4.1: version 3, signed with ECDSA over SHA-256. */
function signed(parts: Unsigned): string {
  const algorithm = der.sequence(der.objectIdentifier(OID.ecdsaWithSha256));
  const body = der.sequence(
    der.explicit(0, der.integer(Buffer.of(2))),
    der.integer(randomBytes(16)),
    algorithm,
    parts.issuer,
    der.sequence(der.time(parts.notBefore), der.time(parts.notAfter)),
    parts.subject,
    parts.subjectKey.export({ type: "spki", format: "der" }),
    der.explicit(3, der.sequence(...parts.extensions)),
  );
  const signature = sign("sha256", body, { key: parts.signingKey, dsaEncoding: "der" });
  const certificate = der.sequence(body, algorithm, der.bitString(signature));
  const lines = certificate.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

const newKey = (): { privateKey: KeyObject; publicKey: KeyObject } =>
  generateKeyPairSync("ec", { namedCurve: "P-256" });

const pemOf = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }).toString();

const nameOf = (commonName: string): Buffer =>
  der.sequence(der.setOf(der.sequence(der.objectIdentifier(OID.commonName), der.utf8String(commonName))));

const extension = (oid: string, value: Buffer, options?: { critical: boolean }): Buffer =>
  der.sequence(
    der.objectIdentifier(oid),
    ...(options?.critical === true ? [der.boolean(true)] : []),
    der.octetString(value),
  );

/** RFC 7093 §2 (1): the leftmost 160 bits of the SHA-256 of the public key. */
const keyIdentifier = (key: KeyObject): Buffer =>
  createHash("sha256")
    .update(key.export({ type: "spki", format: "der" }))
    .digest()
    .subarray(0, 20);

function alternativeName(name: string): Buffer {
  if (isIP(name) === 0) return der.implicitPrimitive(2, Buffer.from(name, "latin1"));
  return der.implicitPrimitive(7, addressBytes(name));
}

function addressBytes(address: string): Buffer {
  if (isIP(address) === 4) return Buffer.from(address.split(".").map(Number));
  const [head = "", tail] = address.split("::");
  const groups = (text: string): number[] =>
    text === "" ? [] : text.split(":").map((part) => Number.parseInt(part, 16));
  const before = groups(head);
  const after = tail === undefined ? [] : groups(tail);
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => 0);
  return Buffer.from([...before, ...zeros, ...after].flatMap((group) => [group >> 8, group & 0xff]));
}
