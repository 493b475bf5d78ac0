/**
 * The few DER encodings an X.509 certificate needs. node:crypto signs and reads certificates but cannot make one; the
 * libraries that can pull in twenty packages and want a global Reflect polyfill.
 */
const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  objectIdentifier: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** Tag, length, content. */
function element(tag: number, content: Uint8Array): Buffer {
  return Buffer.concat([Buffer.of(tag), lengthOf(content.length), content]);
}

function lengthOf(length: number): Buffer {
  if (length < 0x80) return Buffer.of(length);
  const bytes: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  return Buffer.of(0x80 | bytes.length, ...bytes);
}

export const sequence = (...parts: Uint8Array[]): Buffer => element(TAG.sequence, Buffer.concat(parts));
export const setOf = (part: Uint8Array): Buffer => element(TAG.set, part);
export const octetString = (content: Uint8Array): Buffer => element(TAG.octetString, content);
export const utf8String = (text: string): Buffer => element(TAG.utf8String, Buffer.from(text, "utf8"));
export const boolean = (value: boolean): Buffer => element(TAG.boolean, Buffer.of(value ? 0xff : 0));

/** A non-negative integer from its big-endian bytes. */
export function integer(bytes: Uint8Array): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start++;
  const minimal = bytes.length === 0 ? Buffer.of(0) : Buffer.from(bytes.subarray(start));
  // A leading one bit would make it negative.
  return element(TAG.integer, (minimal[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.of(0), minimal]) : minimal);
}

/** `unusedBits` counts from the last byte's low end; named bit lists must not end in zero bits. */
export const bitString = (content: Uint8Array, unusedBits = 0): Buffer =>
  element(TAG.bitString, Buffer.concat([Buffer.of(unusedBits), content]));

/** From dotted notation. */
export function objectIdentifier(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const arc of rest) {
    const groups: number[] = [arc % 128];
    for (let left = Math.floor(arc / 128); left > 0; left = Math.floor(left / 128)) groups.unshift(0x80 | (left % 128));
    bytes.push(...groups);
  }
  return element(TAG.objectIdentifier, Buffer.from(bytes));
}

/** To the second; two-digit years until 2049, as RFC 5280 §4.1.2.5 demands. */
export function time(epochMs: number): Buffer {
  const digits = new Date(epochMs).toISOString().slice(0, 19).replaceAll(/[-T:]/g, "");
  const year = Number(digits.slice(0, 4));
  return year < 2050
    ? element(TAG.utcTime, Buffer.from(`${digits.slice(2)}Z`, "latin1"))
    : element(TAG.generalizedTime, Buffer.from(`${digits}Z`, "latin1"));
}

/** `[n] EXPLICIT`. */
export const explicit = (number: number, content: Uint8Array): Buffer => element(0xa0 | number, content);
/** `[n] IMPLICIT` of a primitive type. */
export const implicitPrimitive = (number: number, content: Uint8Array): Buffer => element(0x80 | number, content);
