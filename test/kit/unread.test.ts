import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { nothingUnread, readByPeer } from "./unread.ts";

const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
const line = (local: string, remote: string, queues: string): string =>
  `   0: 0100007F:${local} 0100007F:${remote} 01 ${queues} 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1\n`;

// 0x1F90 = 8080, 0xC350 = 50000
const cases: [name: string, table: string, want: boolean][] = [
  ["both queues empty", line("1F90", "C350", "00000000:00000000") + line("C350", "1F90", "00000000:00000000"), true],
  ["bytes still being sent", line("1F90", "C350", "00000001:00000000"), false],
  ["bytes unread by the peer", line("C350", "1F90", "00000000:00000004"), false],
  ["bytes unread on our side do not count", line("1F90", "C350", "00000000:00000009"), true],
  ["another connection does not count", line("1F90", "C351", "00000007:00000000"), true],
  ["a closed connection holds nothing", "", true],
];
for (const [name, table, want] of cases) {
  test(`unread bytes: ${name}`, () => assert.equal(nothingUnread(heading + table, { near: 8080, far: 50000 }), want));
}

test("waits for a real reader that begins late", async () => {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const reader = connect(address.port, "127.0.0.1").pause();
  const [writer]: Socket[] = await once(server, "connection");
  assert.ok(writer !== undefined);
  writer.write("x".repeat(10));
  let done = false;
  const waiting = readByPeer(writer, AbortSignal.timeout(10_000)).then(() => {
    done = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(done, false);
  reader.resume();
  await waiting;
  reader.destroy();
  writer.destroy();
  server.close();
});
