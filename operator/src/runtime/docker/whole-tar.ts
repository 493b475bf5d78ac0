/**
 * An engine that fails in the middle of an export ends its answer in order all the same (it has sent 200 already). Only the
 * archive itself tells: it ends with two blocks of zeros.
 */
import { RuntimeError } from "../errors.ts";

const END_BYTES = 1_024;

/** Passes a tar on; throws at its end when that is not the end of an archive. */
export async function* wholeTar(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let tail = Buffer.alloc(0);
  for await (const chunk of content) {
    tail = Buffer.concat([tail, chunk.subarray(-END_BYTES)]).subarray(-END_BYTES);
    yield chunk;
  }
  if (tail.length < END_BYTES || tail.some((byte) => byte !== 0)) {
    throw new RuntimeError("HostRefused", "the export ended before the end of the archive");
  }
}
