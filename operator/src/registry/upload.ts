import type { Clock } from "../reconciler/clock.ts";
import type { Answer } from "./answer.ts";
import { verifyBlob } from "./blobs.ts";
import { ContentReader } from "./content-reader.ts";
import type { Digest } from "./contract.ts";
import { digestOf, finishDigest, newHash } from "./digest.ts";
import { isRegistryError, RegistryError } from "./errors.ts";
import type { RepositoryPaths } from "./paths.ts";
import { startProgressDeadline } from "./progress.ts";
import type { Transport } from "./transport.ts";
import { UploadSession } from "./upload-session.ts";

/** Chunks of a streamed upload; what fits into one is sent in one piece. A chunk is kept in memory to be sent again. */
export const CHUNK_BYTES = 16 * 1024 * 1024;
/** A registry that wants larger chunks than this is refused: they are kept in memory. */
const LARGEST_MIN_CHUNK = 256 * 1024 * 1024;
/** How long a chunk on its way may still take after an abort, so that the session can be cancelled in order. */
const ABANDON_GRACE_MS = 5_000;
/** A chunk that fails this often without one byte getting through ends the upload. */
const MOST_FAILURES_IN_PLACE = 2;
/** Bytes that are in memory anyway are sent again in a second session when the first one was lost. */
const SESSIONS_PER_BLOB = 2;

/** Where a blob is uploaded to. */
export interface BlobTarget {
  readonly transport: Transport;
  readonly paths: RepositoryPaths;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly chunkBytes: number;
  /** Told when a session could not be cancelled; the registry then purges it by itself, after days. */
  readonly onOrphan: (orphan: OrphanedUpload) => void;
}

/** An upload session that stays in the registry until the registry purges it. */
export interface OrphanedUpload {
  readonly repository: string;
  readonly cause: unknown;
}

interface StoredBlob {
  readonly digest: Digest;
  readonly size: number;
}

/**
 * Whether a blob was proved to be there. A registry that fails over this one blob is sent it again: a disk that was full
 * leaves its record of the blob empty, and nothing but an upload or a mount writes that anew (seen on distribution 3.0.0).
 */
export async function needsNoUpload(prove: () => Promise<boolean>): Promise<boolean> {
  try {
    return await prove();
  } catch (error) {
    if (isRegistryError(error, "Unavailable") && (error.status ?? 0) >= 500) return false;
    throw error;
  }
}

/** Uploads bytes in one piece unless the registry proves that it has them. */
export async function putBlob(target: BlobTarget, bytes: Uint8Array): Promise<StoredBlob> {
  const blob: StoredBlob = { digest: digestOf(bytes), size: bytes.length };
  if (await needsNoUpload(() => verifyBlob(target, blob))) return blob;
  for (let sessions = 1; ; sessions += 1) {
    try {
      await inSession(target, (session) => commit(target, session, { blob, body: bytes }));
      return blob;
    } catch (error) {
      if (sessions === SESSIONS_PER_BLOB || !isRegistryError(error, "Unavailable")) throw error;
    }
  }
}

/**
 * Uploads a stream of unknown length, computing its digest on the way. What fits into one chunk goes the way of
 * `putBlob`. Throws `UploadNotAdvancing` when the registry does not keep the chunks it accepts.
 */
export async function uploadStream(target: BlobTarget, content: AsyncIterable<Uint8Array>): Promise<StoredBlob> {
  await using reader = new ContentReader(content, target.signal);
  const buffer = Buffer.allocUnsafe(target.chunkBytes);
  const length = await reader.fill(buffer);
  if (length < buffer.length) return await putBlob(target, buffer.subarray(0, length));
  return await inSession(target, (session) => sendChunks(target, session, { reader, first: buffer }));
}

async function sendChunks(
  target: BlobTarget,
  session: UploadSession,
  source: { reader: ContentReader; first: Buffer },
): Promise<StoredBlob> {
  const hash = newHash();
  let buffer = source.first;
  let length = source.first.length;
  if (session.minChunk > buffer.length) {
    if (session.minChunk > LARGEST_MIN_CHUNK) {
      throw new RegistryError("Refused", `the registry wants chunks of at least ${session.minChunk} bytes`);
    }
    buffer = Buffer.allocUnsafe(session.minChunk);
    buffer.set(source.first);
    length += await source.reader.fill(buffer.subarray(source.first.length));
  }
  for (;;) {
    const chunk = buffer.subarray(0, length);
    hash.update(chunk);
    if (chunk.length > 0) await sendChunk(session, chunk);
    if (length < buffer.length) break;
    target.signal.throwIfAborted();
    length = await source.reader.fill(buffer);
  }
  const blob: StoredBlob = { digest: finishDigest(hash), size: session.offset };
  await commit(target, session, { blob });
  return blob;
}

/** Sends one chunk; after a failure that leaves open what arrived, asks and goes on from what the registry has. */
async function sendChunk(session: UploadSession, chunk: Uint8Array): Promise<void> {
  const start = session.offset;
  const end = start + chunk.length;
  let failuresInPlace = 0;
  while (session.offset < end) {
    const before = session.offset;
    try {
      await session.patch(chunk.subarray(before - start));
    } catch (error) {
      if (!isRegistryError(error, "Unavailable")) throw error;
      if (!(await session.resume({ from: start, to: end }))) throw error;
      failuresInPlace = session.offset > before ? 0 : failuresInPlace + 1;
      if (failuresInPlace === MOST_FAILURES_IN_PLACE) throw error;
    }
  }
}

/** Ends the session with the digest and proves that the registry has the blob. */
async function commit(
  target: BlobTarget,
  session: UploadSession,
  what: { blob: StoredBlob; body?: Uint8Array },
): Promise<void> {
  const { blob } = what;
  try {
    await session.commit(blob.digest, what.body);
  } catch (error) {
    // The answer to a commit can be lost, and the session is gone then: the blob itself knows whether it was stored.
    if (isRegistryError(error, "Unavailable") && (await verifyBlob(target, blob))) return;
    throw error;
  }
  if (await verifyBlob(target, blob)) return;
  throw new RegistryError("DigestMismatch", `the registry took blob ${blob.digest} and does not have it`);
}

/** Opens a session for `use`; whatever way that ends, no session stays open. */
async function inSession<T>(target: BlobTarget, use: (session: UploadSession) => Promise<T>): Promise<T> {
  target.signal.throwIfAborted();
  using grace = graceAfter(target);
  const { transport, paths } = target;
  const session = await UploadSession.open({ transport, paths, signal: target.signal, chunkSignal: grace.signal });
  try {
    target.signal.throwIfAborted();
    return await use(session);
  } catch (error) {
    await abandon(target, session);
    throw error;
  }
}

/** Cancels the session of a mount that the registry answered with 202, or of an upload that failed. */
export async function abandon(target: Omit<BlobTarget, "signal">, session: UploadSession): Promise<void> {
  // The caller's signal may be what ended the upload, so cancelling has a deadline of its own.
  const own = new AbortController();
  using deadline = startProgressDeadline({
    clock: target.clock,
    milliseconds: ABANDON_GRACE_MS,
    parent: own.signal,
    what: "cancel an upload",
  });
  try {
    await session.cancel(deadline.signal);
  } catch (cause) {
    target.onOrphan({ repository: target.paths.repository, cause });
  }
}

/**
 * A signal that follows the caller's with a delay. Distribution 2.8 cannot cancel a session in which a chunk was cut
 * off (its own record of the offset is stale then), so a chunk on its way may arrive before the session is cancelled.
 */
function graceAfter(target: BlobTarget): { signal: AbortSignal } & Disposable {
  const cut = new AbortController();
  const ended = new AbortController();
  const onAbort = () => {
    // The sleep rejects only because the disposal below ended it.
    target.clock.sleep(ABANDON_GRACE_MS, ended.signal).then(
      () => cut.abort(target.signal.reason),
      () => undefined,
    );
  };
  target.signal.addEventListener("abort", onAbort, { once: true });
  return {
    signal: cut.signal,
    [Symbol.dispose]: () => {
      target.signal.removeEventListener("abort", onAbort);
      ended.abort();
    },
  };
}

/** The session of a mount that was not made, from its 202. */
export const sessionOf = (target: Omit<BlobTarget, "signal">, answer: Answer, signal: AbortSignal): UploadSession =>
  UploadSession.from({ transport: target.transport, paths: target.paths, signal, chunkSignal: signal }, answer);
