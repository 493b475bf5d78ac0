import { ProtocolError } from "./errors.ts";

/** A tar ends with two blocks of zeros. */
const END_BYTES = 1_024;

/** Passes an archive on; throws at its end when that is not the end of an archive: some hop may have ended it in order. */
export async function* wholeTar(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let tail = Buffer.alloc(0);
  for await (const chunk of content) {
    tail = Buffer.concat([tail, chunk.subarray(-END_BYTES)]).subarray(-END_BYTES);
    yield chunk;
  }
  if (tail.length < END_BYTES || tail.some((byte) => byte !== 0)) {
    throw new ProtocolError({
      code: "ArchiveCut",
      message: "the archive ended before its end",
      remediation: "ask for it again; what was received is not the whole",
    });
  }
}
