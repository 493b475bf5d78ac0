import assert from "node:assert/strict";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { pack } from "tar-stream";
import { isRuntimeError } from "../errors.ts";
import { wholeTar } from "./whole-tar.ts";

async function archiveOf(content: string): Promise<Buffer> {
  const archive = pack();
  archive.entry({ name: "work/notes" }, content);
  archive.finalize();
  return await buffer(archive);
}

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

for (const size of [1, 511, 512, 1_000, 1_000_000]) {
  test(`a whole archive in pieces of ${size} bytes passes as it is`, async () => {
    const archive = await archiveOf("x".repeat(3_000));
    assert.deepEqual(await buffer(wholeTar(inPieces(archive, size))), archive);
  });
}

const broken: [name: string, make: () => Promise<Buffer>][] = [
  ["nothing", async () => Buffer.alloc(0)],
  ["one that ends inside a file", async () => (await archiveOf("x".repeat(3_000))).subarray(0, 2_000)],
  ["one that lacks its last block", async () => (await archiveOf("x")).subarray(0, -1_024)],
  [
    "one with the engine's complaint behind it",
    async () => {
      const archive = await archiveOf("x".repeat(3_000));
      return Buffer.concat([archive.subarray(0, 2_000), Buffer.from(JSON.stringify({ message: "unexpected EOF" }))]);
    },
  ],
];
for (const [name, make] of broken) {
  test(`${name} is an error, not an archive`, async () => {
    const archive = await make();
    await assert.rejects(buffer(wholeTar(inPieces(archive, 700))), (error) => isRuntimeError(error, "HostRefused"));
  });
}
