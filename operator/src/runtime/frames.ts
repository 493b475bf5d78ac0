/**
 * Frames of the helper's protocol (operator/helper/frame.go): one type byte, a big-endian uint32 length, that many
 * bytes. Pure: bytes in, frames out.
 */
export const FRAME = {
  header: 0x48,
  data: 0x44,
  end: 0x45,
  ack: 0x41,
  stdout: 0x4f,
  stderr: 0x53,
  info: 0x49,
  record: 0x58,
  failure: 0x46,
} as const;

export interface Frame {
  readonly kind: number;
  readonly payload: Buffer;
}

const PREFIX_BYTES = 5;
/** The helper refuses longer frames. */
const MAX_FRAME_BYTES = 4 << 20;
/** Most bytes of content put into one frame. */
export const CONTENT_FRAME_BYTES = 64 << 10;

/** A payload that does not fit a frame. */
export class FrameTooLarge extends Error {
  override readonly name = "FrameTooLarge";
  readonly bytes: number;
  readonly limit = MAX_FRAME_BYTES;
  constructor(bytes: number) {
    super(`${bytes} bytes do not fit a frame of ${MAX_FRAME_BYTES}`);
    this.bytes = bytes;
  }
}

/** Throws `FrameTooLarge` when the payload does not fit a frame. */
export function encodeFrame(kind: number, payload: Uint8Array = new Uint8Array()): Buffer {
  if (payload.length > MAX_FRAME_BYTES) throw new FrameTooLarge(payload.length);
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + payload.length);
  frame.writeUInt8(kind, 0);
  frame.writeUInt32BE(payload.length, 1);
  frame.set(payload, PREFIX_BYTES);
  return frame;
}

export const encodeJsonFrame = (kind: number, value: unknown): Buffer =>
  encodeFrame(kind, Buffer.from(JSON.stringify(value)));

/** Content cut into frames. */
export function* contentFrames(content: Uint8Array): Generator<Buffer> {
  for (let at = 0; at < content.length; at += CONTENT_FRAME_BYTES)
    yield encodeFrame(FRAME.data, content.subarray(at, at + CONTENT_FRAME_BYTES));
}

/** The stream of frames ended within one. */
export class TruncatedFrame extends Error {
  override readonly name = "TruncatedFrame";
}

/** Reads frames until the source ends. An end within a frame throws `TruncatedFrame`, a length above the limit too. */
export async function* decodeFrames(source: AsyncIterable<Uint8Array>): AsyncGenerator<Frame> {
  const bytes = new ByteQueue();
  for await (const chunk of source) {
    bytes.push(chunk);
    for (let frame = takeFrame(bytes); frame !== undefined; frame = takeFrame(bytes)) yield frame;
  }
  if (bytes.length > 0) throw new TruncatedFrame(`the stream ended ${bytes.length} bytes into a frame`);
}

function takeFrame(bytes: ByteQueue): Frame | undefined {
  if (bytes.length < PREFIX_BYTES) return undefined;
  const prefix = bytes.peek(PREFIX_BYTES);
  const length = prefix.readUInt32BE(1);
  if (length > MAX_FRAME_BYTES) throw new TruncatedFrame(`a frame claims ${length} bytes`);
  if (bytes.length < PREFIX_BYTES + length) return undefined;
  bytes.take(PREFIX_BYTES);
  return { kind: prefix.readUInt8(0), payload: bytes.take(length) };
}

/** Bytes that arrive in any cut and leave in the cut asked for; large payloads are copied once. */
export class ByteQueue {
  readonly #chunks: Buffer[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#chunks.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length));
    this.#length += chunk.length;
  }

  /** The first bytes, which stay; the caller knows that they are there. */
  peek(count: number): Buffer {
    const first = this.#chunks[0];
    if (first !== undefined && first.length >= count) return first.subarray(0, count);
    const joined = Buffer.concat(this.#chunks.splice(0));
    this.#chunks.push(joined);
    return joined.subarray(0, count);
  }

  /** The first bytes, removed; the caller knows that they are there. */
  take(count: number): Buffer {
    const parts: Buffer[] = [];
    let missing = count;
    while (missing > 0) {
      const first = this.#chunks.shift();
      if (first === undefined) throw new RangeError(`${count} bytes taken of ${this.#length}`);
      if (first.length > missing) this.#chunks.unshift(first.subarray(missing));
      const part = first.subarray(0, missing);
      parts.push(part);
      missing -= part.length;
    }
    this.#length -= count;
    const [only] = parts;
    return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts, count);
  }
}
