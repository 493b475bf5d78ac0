import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { demultiplex } from "./docker/multiplex.ts";
import { contentFrames, decodeFrames, encodeFrame, FRAME, TruncatedFrame } from "./frames.ts";

async function* cut(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let at = 0;
  for (const size of sizes) {
    yield bytes.subarray(at, at + size);
    at += size;
  }
  yield bytes.subarray(at);
}

const sizes = fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 60 });

test("frames arrive as they were sent, however the connection cuts them", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 8 }), sizes, async (payloads, cuts) => {
      const wire = Buffer.concat(payloads.map((payload) => encodeFrame(FRAME.data, payload)));
      const frames = await Array.fromAsync(decodeFrames(cut(wire, cuts)));
      assert.deepEqual(
        frames.map((frame) => [...frame.payload]),
        payloads.map((payload) => [...payload]),
      );
    }),
  );
});

test("an end anywhere within a frame throws", async () => {
  const wire = encodeFrame(FRAME.data, Buffer.from("hello"));
  for (let length = 1; length < wire.length; length++)
    await assert.rejects(Array.fromAsync(decodeFrames(cut(wire.subarray(0, length), []))), TruncatedFrame);
});

test("a claimed length above the limit throws before it is waited for", async () => {
  await assert.rejects(
    Array.fromAsync(decodeFrames(cut(Buffer.from([FRAME.data, 255, 255, 255, 255]), []))),
    TruncatedFrame,
  );
});

test("content is cut into frames that join to it", () => {
  const content = Buffer.alloc(200_000, 7);
  const joined = Buffer.concat([...contentFrames(content)].map((frame) => frame.subarray(5)));
  assert.ok(joined.equals(content));
});

test("an engine's chunks arrive whole and by stream, however they are cut", async () => {
  const chunk = fc.record({ stream: fc.constantFrom(1, 2), payload: fc.uint8Array({ maxLength: 40 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(chunk, { maxLength: 8 }), sizes, async (chunks, cuts) => {
      const wire = Buffer.concat(
        chunks.map(({ stream, payload }) => {
          const header = Buffer.alloc(8);
          header[0] = stream;
          header.writeUInt32BE(payload.length, 4);
          return Buffer.concat([header, payload]);
        }),
      );
      const got = await Array.fromAsync(demultiplex(cut(wire, cuts)));
      assert.deepEqual(
        got.map(({ stream, payload }) => [stream, ...payload]),
        chunks.map(({ stream, payload }) => [stream === 1 ? "stdout" : "stderr", ...payload]),
      );
    }),
  );
});
