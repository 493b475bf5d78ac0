import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { answerBrokenRequest, MOST_HEADER_BYTES } from "./broken-request.ts";

/** Sends bytes to a server that is set up as the gateway is; returns all that it answers until it closes. */
async function answerTo(bytes: string): Promise<string> {
  const server = createServer({ maxHeaderSize: MOST_HEADER_BYTES }, (_request, response) => response.end("served"));
  server.on("clientError", answerBrokenRequest);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = server.address() as AddressInfo;
    const socket = connect(port, "127.0.0.1");
    socket.write(bytes);
    return await text(socket);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

const withHeaders = (bytes: number): string =>
  `GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: ${"x".repeat(bytes)}\r\n\r\n`;

test("60 KB of headers are served: kube-apiserver sends one for each group of the user", async () => {
  assert.match(await answerTo(withHeaders(60_000)), /^HTTP\/1\.1 200 OK[\s\S]*served$/);
});

const broken: [name: string, bytes: string, status: number, code: string][] = [
  ["more headers than that", withHeaders(MOST_HEADER_BYTES), 431, "HeadersTooLarge"],
  ["far more headers than that", withHeaders(4_000_000), 431, "HeadersTooLarge"],
  ["something that is no HTTP", "HELLO\r\n\r\n", 400, "MalformedRequest"],
];
for (const [name, bytes, status, code] of broken) {
  test(`${name}: the connection ends with a Status`, async () => {
    const answer = await answerTo(bytes);
    const [head = "", body = ""] = answer.split("\r\n\r\n");
    assert.match(head, new RegExp(`^HTTP/1\\.1 ${status} `));
    assert.match(head, new RegExp(`Content-Length: ${Buffer.byteLength(body)}\\b`));
    const { kind, code: said, details } = JSON.parse(body);
    assert.deepEqual([kind, said, details.code], ["Status", status, code]);
    assert.equal(typeof details.remediation, "string");
  });
}
