import type { Answer } from "./answer.ts";
import type { Descriptor, Digest } from "./contract.ts";
import { digestOf, finishDigest, newHash } from "./digest.ts";
import { isRegistryError, RegistryError } from "./errors.ts";
import type { RepositoryPaths } from "./paths.ts";
import type { Transport } from "./transport.ts";

/** A blob that breaks off is taken up again where it stopped, this many times. */
const MOST_RESUMPTIONS = 5;

/** Where a blob is read. */
export interface BlobSource {
  readonly transport: Transport;
  readonly paths: RepositoryPaths;
  readonly signal: AbortSignal;
}

type SizedDigest = Pick<Descriptor, "digest" | "size">;

/** The whole blob, digest checked. Throws `Refused` beyond `maxBytes`. */
export async function readBlob(source: BlobSource, digest: Digest, maxBytes: number): Promise<Uint8Array> {
  await using answer = await get(source, digest, { kind: "Call" });
  if (answer.status !== 200) throw await answer.failure(`blob ${digest}`);
  const bytes = await answer.bytes(maxBytes);
  const actual = digestOf(bytes);
  if (actual !== digest) throw mismatch(digest, `its bytes hash to ${actual}`);
  return bytes;
}

/**
 * The blob as a stream. A connection that breaks is resumed by range; the digest covers all of it. Throws
 * `DigestMismatch` at the latest at its end, so the last chunk must not be acted upon before the stream has ended.
 */
export async function* streamBlob(
  source: BlobSource,
  descriptor: SizedDigest,
): AsyncGenerator<Uint8Array, void, undefined> {
  const { digest, size } = descriptor;
  const hash = newHash();
  let received = 0;
  for (let resumptions = 0; ; resumptions += 1) {
    const startedAt = received;
    try {
      await using answer = await get(source, digest, { kind: "Stream", from: received });
      await requireBodyFrom(answer, received, descriptor);
      for await (const chunk of answer.chunks()) {
        received += chunk.length;
        if (received > size) throw mismatch(digest, `it is longer than ${size} bytes`);
        hash.update(chunk);
        yield chunk;
      }
      break;
    } catch (error) {
      const brokeOff = isRegistryError(error, "Unavailable") && received > startedAt && received < size;
      if (!brokeOff || resumptions === MOST_RESUMPTIONS) throw error;
    }
  }
  if (received !== size) throw mismatch(digest, `it has ${received} of ${size} bytes`);
  const actual = finishDigest(hash);
  if (actual !== digest) throw mismatch(digest, `its bytes hash to ${actual}`);
}

/**
 * Whether the registry really has the bytes: the first and the last one are read, and the total length is compared.
 * HEAD is not asked: after a garbage collection it was seen to say 200 for a blob that is gone. False is said of a
 * 404, of a wrong length, and of a body that breaks off twice; a registry that cannot be asked throws.
 */
export async function verifyBlob(source: BlobSource, descriptor: SizedDigest): Promise<boolean> {
  if (descriptor.size === 0) return proveWhole(source, descriptor);
  const positions = descriptor.size === 1 ? [0] : [0, descriptor.size - 1];
  for (const position of positions) {
    const proof = await retryBrokenBody(() => proveByte(source, descriptor, position));
    if (proof !== "Partial") return proof === "Whole";
  }
  return true;
}

type Proof = "Absent" | "Partial" | "Whole";

async function proveByte(source: BlobSource, descriptor: SizedDigest, position: number): Promise<Proof> {
  const { digest, size } = descriptor;
  await using answer = await get(source, digest, { kind: "Stream", from: position, to: position });
  // A registry that knows no ranges sends everything; then everything is read, and proved by its digest.
  if (answer.status === 200) return (await hashesTo(answer, descriptor)) ? "Whole" : "Absent";
  // 416: the file on disk is shorter than the blob should be.
  if (answer.status === 404 || answer.status === 416) return "Absent";
  if (answer.status !== 206) throw await answer.failure(`range of blob ${digest}`);
  const isRange = answer.header("content-range") === `bytes ${position}-${position}/${size}`;
  if (!isRange) return "Absent";
  let length = 0;
  for await (const chunk of answer.chunks()) length += chunk.length;
  return length === 1 ? "Partial" : "Absent";
}

async function proveWhole(source: BlobSource, descriptor: SizedDigest): Promise<boolean> {
  const proof = await retryBrokenBody(async () => {
    await using answer = await get(source, descriptor.digest, { kind: "Stream" });
    if (answer.status === 404) return "Absent";
    if (answer.status !== 200) throw await answer.failure(`blob ${descriptor.digest}`);
    return (await hashesTo(answer, descriptor)) ? "Whole" : "Absent";
  });
  return proof === "Whole";
}

async function hashesTo(answer: Answer, descriptor: SizedDigest): Promise<boolean> {
  if (answer.length !== undefined && answer.length !== descriptor.size) return false;
  const hash = newHash();
  let length = 0;
  for await (const chunk of answer.chunks()) {
    length += chunk.length;
    if (length > descriptor.size) return false;
    hash.update(chunk);
  }
  return length === descriptor.size && finishDigest(hash) === descriptor.digest;
}

/**
 * A body that breaks off after a good status is how a blob looks whose file is gone behind a stale cache, and how a
 * lost connection looks. Twice in a row it is taken for gone: the worst that follows is one needless upload.
 */
async function retryBrokenBody(prove: () => Promise<Proof>): Promise<Proof> {
  for (const isLast of [false, true]) {
    try {
      return await prove();
    } catch (error) {
      const isBrokenBody = isRegistryError(error, "Unavailable") && (error.status === 200 || error.status === 206);
      if (!isBrokenBody) throw error;
      if (isLast) return "Absent";
    }
  }
  return "Absent";
}

async function requireBodyFrom(answer: Answer, from: number, descriptor: SizedDigest): Promise<void> {
  const { digest, size } = descriptor;
  const expected = from === 0 ? 200 : 206;
  if (answer.status !== expected) {
    if (answer.status !== 200) throw await answer.failure(`blob ${digest}`);
    throw new RegistryError(
      "Unavailable",
      `blob ${digest} broke off at ${from} of ${size} bytes and cannot be resumed`,
    );
  }
  if (from > 0 && !(answer.header("content-range") ?? "").startsWith(`bytes ${from}-`)) {
    throw new RegistryError("Malformed", `blob ${digest} was resumed at another place than ${from}`);
  }
  if (answer.length !== undefined && answer.length !== size - from) {
    throw mismatch(digest, `the registry has ${from + answer.length} bytes of it, not ${size}`);
  }
}

function get(
  source: BlobSource,
  digest: Digest,
  how: { kind: "Call" | "Stream"; from?: number; to?: number },
): Promise<Answer> {
  const { transport, paths, signal } = source;
  const isRange = how.to !== undefined || (how.from ?? 0) > 0;
  return transport.send({
    method: "GET",
    url: paths.blob(digest),
    ...(isRange ? { headers: { range: `bytes=${how.from ?? 0}-${how.to ?? ""}` } } : {}),
    scopes: [{ repository: paths.repository, actions: ["pull"] }],
    repeat: "Always",
    kind: how.kind,
    signal,
  });
}

const mismatch = (digest: Digest, because: string): RegistryError =>
  new RegistryError("DigestMismatch", `blob ${digest} is not what it should be: ${because}`);
