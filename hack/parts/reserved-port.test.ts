import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { freePort } from "./ports.ts";
import { attempt } from "./process.ts";
import { listeningInodes, reservePort, whyTaken } from "./reserved-port.ts";

const signal = (): AbortSignal => AbortSignal.timeout(20_000);
const wish = (port: number) => ({ port, by: "make demo", toEnd: "wait until it ends", signal: signal() });

test("a reserved port is refused to the next one with who holds it and what to do, before anybody listens on it", async () => {
  const port = await freePort();
  await using _ = await reservePort(wish(port));
  const sentence = `port ${port} of 127.0.0.1 is taken by \`make demo\` (process ${process.pid}): wait until it ends`;
  await assert.rejects(reservePort(wish(port)), { message: `registry: ${sentence}` });
  assert.equal(await whyTaken(port, signal()), sentence);
});

test("another process is told the same", async () => {
  const port = await freePort();
  await using _ = await reservePort(wish(port));
  const module = new URL("./reserved-port.ts", import.meta.url).href;
  const script = `const { whyTaken } = await import("${module}");
    console.log(await whyTaken(${port}, AbortSignal.timeout(5000)));`;
  const { stdout } = await attempt([process.execPath, "--input-type=module", "-e", script], { signal: signal() });
  assert.match(stdout, new RegExp(`taken by .make demo. \\(process ${process.pid}\\): wait until it ends`));
});

test("of many at once one gets the port, and the next one after it has let go", async () => {
  const port = await freePort();
  const tries = await Promise.allSettled(Array.from({ length: 8 }, () => reservePort(wish(port))));
  const got = tries.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  assert.equal(got.length, 1);
  await got[0]?.[Symbol.asyncDispose]();
  assert.equal(await whyTaken(port, signal()), undefined);
  await using _ = await reservePort(wish(port));
});

test("a port that a stranger listens on is refused with its process, and nothing stays reserved", async () => {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const { port } = address;
  try {
    await assert.rejects(reservePort(wish(port)), {
      message: new RegExp(`port ${port} of 127.0.0.1 is taken by .+ \\(process ${process.pid}\\): end that first`),
    });
  } finally {
    server.close();
    await once(server, "close");
  }
  assert.equal(await whyTaken(port, signal()), undefined);
});

test("the table of sockets is read by port and state", () => {
  const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:13BF 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 75164 1 0 100 0 0 10 0
   1: 0100007F:13BF 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 75165 1 0 20 4 30 10 -1
   2: 0100007F:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 635 1 0 100 0 0 10 0\n`;
  assert.deepEqual(listeningInodes(table, 5055), ["75164"]);
});
