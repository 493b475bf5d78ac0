import { ByteQueue } from "../frames.ts";

/** The engine's stream ended within a chunk, or is not one. */
export class BrokenMultiplex extends Error {
  override readonly name = "BrokenMultiplex";
}

export interface MultiplexedChunk {
  readonly stream: "stdout" | "stderr";
  readonly payload: Buffer;
}

const HEADER_BYTES = 8;
/** The engine copies in chunks of 32 KiB; anything near this is not its protocol. */
const MAX_CHUNK_BYTES = 64 << 20;

/** Splits an attached stream without a TTY: chunks of `[stream, 0, 0, 0, size (uint32)]` and that many bytes. */
export async function* demultiplex(source: AsyncIterable<Uint8Array>): AsyncGenerator<MultiplexedChunk> {
  const bytes = new ByteQueue();
  for await (const chunk of source) {
    bytes.push(chunk);
    for (let next = takeChunk(bytes); next !== undefined; next = takeChunk(bytes)) yield next;
  }
  if (bytes.length > 0) throw new BrokenMultiplex(`the stream ended ${bytes.length} bytes into a chunk`);
}

function takeChunk(bytes: ByteQueue): MultiplexedChunk | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const header = bytes.peek(HEADER_BYTES);
  const kind = header.readUInt8(0);
  const size = header.readUInt32BE(4);
  if (kind > 2 || size > MAX_CHUNK_BYTES) throw new BrokenMultiplex("the stream is not multiplexed");
  if (bytes.length < HEADER_BYTES + size) return undefined;
  bytes.take(HEADER_BYTES);
  return { stream: kind === 2 ? "stderr" : "stdout", payload: bytes.take(size) };
}
