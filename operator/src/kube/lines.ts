import { ConnectionError } from "./errors.ts";

const NEWLINE = 0x0a;

/**
 * Splits a byte stream into lines. Works on bytes, since a chunk may end within a character but a newline byte never is part
 * of one. What follows the last newline is discarded: half an event is no event. Errors: `ConnectionError` when one line exceeds
 * `maxBytes`; those of the stream.
 */
export async function* readLines(chunks: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<string> {
  let parts: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      parts.push(chunk.subarray(start, end));
      const line = Buffer.concat(parts).toString("utf8");
      parts = [];
      size = 0;
      start = end + 1;
      if (line.trim() !== "") yield line;
    }
    if (start === chunk.length) continue;
    parts.push(chunk.subarray(start));
    size += chunk.length - start;
    if (size > maxBytes) {
      throw new ConnectionError(`a line of the watch exceeds ${maxBytes} bytes`, { outcomeUnknown: false });
    }
  }
}
