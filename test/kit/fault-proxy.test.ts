import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, createServer, type IncomingMessage, type RequestListener, request } from "node:http";
import { createServer as createHttpsServer, request as httpsRequest } from "node:https";
import { connect } from "node:net";
import { test } from "node:test";
import { createAuthority, issue } from "../../hack/parts/certificates.ts";
import { type FaultProxy, startFaultProxy } from "./fault-proxy.ts";
import { eventually } from "./wait.ts";

interface Target extends AsyncDisposable {
  port: number;
  /** `METHOD target` of every request that arrived. */
  seen: string[];
}

async function target(handler: RequestListener = (_, response) => response.end("hello")): Promise<Target> {
  const seen: string[] = [];
  const server = createServer((incoming, response) => {
    seen.push(`${incoming.method} ${incoming.url}`);
    handler(incoming, response);
  });
  server.on("upgrade", (incoming, socket) => {
    seen.push(`UPGRADE ${incoming.url}`);
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    socket.pipe(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return {
    port: address.port,
    seen,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

function before(to: { port: number }): Promise<FaultProxy> {
  return startFaultProxy({ targetHost: "127.0.0.1", targetPort: to.port });
}

interface Got {
  status: number;
  headers: IncomingMessage["headers"];
  chunks: Buffer[];
  /** Code of the error that ended the body, undefined when it ended by itself. */
  broken: string | undefined;
}

function codeOf(error: Error): string {
  return "code" in error ? String(error.code) : error.message;
}

function get(url: string, options: { method?: string; body?: string; agent?: Agent } = {}): Promise<Got> {
  return new Promise((resolve, reject) => {
    const { method = "GET", body, agent } = options;
    const outgoing = request(url, { method, agent: agent ?? false, signal: AbortSignal.timeout(10_000) });
    outgoing.on("error", reject);
    outgoing.on("response", (incoming) => {
      // From here on the answer says how it ended; the request repeats it.
      outgoing.off("error", reject).on("error", () => undefined);
      const chunks: Buffer[] = [];
      const done = (broken?: string): void =>
        resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, chunks, broken });
      incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
      incoming.on("error", (error) => done(codeOf(error)));
      incoming.on("end", () => done());
    });
    outgoing.end(body);
  });
}

const textOf = (got: Got): string => Buffer.concat(got.chunks).toString("utf8");

test("without a rule, status, headers, body and the raw target pass unchanged", async () => {
  await using behind = await target((incoming, response) => {
    response.writeHead(
      201,
      "Made",
      [
        ["set-cookie", "a=1"],
        ["set-cookie", "b=2"],
        ["x-one", "1"],
      ].flat(),
    );
    incoming.pipe(response);
  });
  await using proxy = await before(behind);
  const outgoing = request({
    host: "127.0.0.1",
    port: proxy.port,
    method: "PUT",
    path: "/a/%2e%2e/../b?q=;x",
    agent: false,
  });
  outgoing.end("ünïcode");
  const [incoming]: IncomingMessage[] = await once(outgoing, "response");
  assert.ok(incoming !== undefined);
  assert.equal(incoming.statusMessage, "Made");
  assert.deepEqual(incoming.headers["set-cookie"], ["a=1", "b=2"]);
  assert.equal(Buffer.concat(await incoming.toArray()).toString(), "ünïcode");
  assert.deepEqual(behind.seen, ["PUT /a/%2e%2e/../b?q=;x"]);
});

test("a client's connection is kept alive across requests", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  for (let i = 0; i < 15; i += 1) assert.equal(textOf(await get(proxy.url, { agent })), "hello");
  assert.equal(proxy.connections, 1);
  agent.destroy();
});

test("a rule hits by method and path, after those it skips and as often as it says", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const rule = proxy.add({
    method: "GET",
    path: /^\/api\//,
    skip: 1,
    times: 2,
    fault: { kind: "respond", status: 429, headers: { "retry-after": "3" }, body: "slow down" },
  });
  const statuses = [];
  for (const path of ["/api/1", "/other", "/api/2", "/api/3", "/api/4"]) {
    statuses.push((await get(`${proxy.url}${path}`)).status);
  }
  statuses.push((await get(`${proxy.url}/api/5`, { method: "POST" })).status);
  assert.deepEqual(statuses, [200, 200, 429, 429, 200, 200]);
  assert.deepEqual([rule.hits, rule.applied], [2, 2]);
  assert.deepEqual(behind.seen, ["GET /api/1", "GET /other", "GET /api/4", "POST /api/5"]);
});

test("a fixed answer carries its headers and body, and a removed rule no longer answers", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const rule = proxy.add({ fault: { kind: "respond", status: 503, headers: { "retry-after": "1" }, body: "no" } });
  const got = await get(proxy.url, { method: "POST", body: "x".repeat(100_000) });
  assert.deepEqual([got.status, got.headers["retry-after"], textOf(got)], [503, "1", "no"]);
  rule.remove();
  assert.equal((await get(proxy.url)).status, 200);
});

test("latency holds a request back before the target sees it", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const rule = proxy.add({ times: 1, fault: { kind: "latency", milliseconds: 60_000 } });
  const held = get(proxy.url);
  await eventually(() => rule.hits === 1);
  await get(`${proxy.url}/second`);
  assert.deepEqual(behind.seen, ["GET /second"]);
  proxy.cut();
  await assert.rejects(held, { code: "ECONNRESET" });
});

test("reset at the request: the target never saw it; reset at the answer: it did", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  proxy.add({ path: /early/, fault: { kind: "reset", at: "request" } });
  proxy.add({ path: /late/, fault: { kind: "reset", at: "answer" } });
  await assert.rejects(get(`${proxy.url}/early`), { code: "ECONNRESET" });
  await assert.rejects(get(`${proxy.url}/late`), { code: "ECONNRESET" });
  assert.deepEqual(behind.seen, ["GET /late"]);
});

test("reset after N bytes: exactly N bytes of the body arrive, in mid-line", async () => {
  await using behind = await target((_, response) => response.end('{"type":"ADDED"}\n{"type":"MODIFIED"}\n'));
  await using proxy = await before(behind);
  const rule = proxy.add({ fault: { kind: "reset", afterBytes: 23 } });
  const got = await get(proxy.url);
  assert.equal(got.broken, "ECONNRESET");
  assert.equal(textOf(got), '{"type":"ADDED"}\n{"type');
  assert.equal(rule.applied, 1);
});

test("a reset beyond the end of the body hits but is not counted as applied", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const rule = proxy.add({ fault: { kind: "reset", afterBytes: 1_000 } });
  assert.equal(textOf(await get(proxy.url)), "hello");
  assert.deepEqual([rule.hits, rule.applied], [1, 0]);
});

test("half-open: N bytes arrive, then nothing, and the connection stays open", async () => {
  await using behind = await target((_, response) => response.end("0123456789"));
  await using proxy = await before(behind);
  const rule = proxy.add({ fault: { kind: "half-open", afterBytes: 4 } });
  const outgoing = request(proxy.url, { agent: false });
  outgoing.end();
  const [incoming]: IncomingMessage[] = await once(outgoing, "response");
  outgoing.on("error", () => undefined);
  assert.ok(incoming !== undefined);
  const seen: Buffer[] = [];
  incoming.on("data", (chunk: Buffer) => seen.push(chunk));
  const broken = once(incoming, "error");
  await eventually(() => rule.applied === 1 && Buffer.concat(seen).length === 4);
  // Everything else goes on, so that only this answer is stuck.
  proxy.clear();
  assert.equal(textOf(await get(proxy.url)), "0123456789");
  assert.deepEqual([Buffer.concat(seen).toString(), incoming.complete, proxy.connections], ["0123", false, 1]);
  proxy.cut();
  await broken;
});

test("silence: the request is taken, never answered and never reaches the target", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const rule = proxy.add({ times: 1, fault: { kind: "silence" } });
  const silent = get(`${proxy.url}/silent`, { method: "POST", body: "x" });
  await eventually(() => rule.applied === 1);
  assert.equal(textOf(await get(`${proxy.url}/loud`)), "hello");
  assert.deepEqual([behind.seen, proxy.connections], [["GET /loud"], 1]);
  proxy.cut();
  await assert.rejects(silent, { code: "ECONNRESET" });
});

test("respond and half-open: the proxy's own answer stops, the socket staying open", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  proxy.add({ fault: { kind: "respond", status: 503, body: "busy" } });
  const rule = proxy.add({ fault: { kind: "half-open", afterBytes: 2 } });
  const stopped = get(proxy.url);
  await eventually(() => rule.applied === 1);
  assert.equal(proxy.connections, 1);
  proxy.cut();
  const { status, broken, chunks } = await stopped;
  assert.deepEqual([status, Buffer.concat(chunks).toString(), broken], [503, "bu", "ECONNRESET"]);
  assert.deepEqual(behind.seen, []);
});

test("split: pieces of the given sizes arrive one by one, in the middle of a UTF-8 character too", async () => {
  await using behind = await target((_, response) => response.end("aé€😀"));
  await using proxy = await before(behind);
  proxy.add({ fault: { kind: "split", sizes: [2, 1, 4], pauseMs: 20 } });
  const got = await get(proxy.url);
  assert.equal(textOf(got), "aé€😀");
  assert.deepEqual(
    got.chunks.map((chunk) => chunk.length),
    [2, 1, 4, 2, 1],
  );
});

test("duplicated lines: each complete line comes twice, and the length says so", async () => {
  await using behind = await target((_, response) => {
    response.setHeader("content-length", 11);
    response.end("one\ntwo\nend");
  });
  await using proxy = await before(behind);
  proxy.add({ fault: { kind: "duplicate-lines" } });
  assert.equal(textOf(await get(proxy.url)), "one\none\ntwo\ntwo\nend");
});

test("stale lines: each line is followed by the one before it", async () => {
  await using behind = await target((_, response) => response.end("one\ntwo\nthree\nend"));
  await using proxy = await before(behind);
  const rule = proxy.add({ fault: { kind: "stale-lines" } });
  assert.equal(textOf(await get(proxy.url)), "one\ntwo\none\nthree\ntwo\nend");
  assert.equal(rule.applied, 2);
});

test("rules add up: duplicated, then cut", async () => {
  await using behind = await target((_, response) => response.end("one\ntwo\n"));
  await using proxy = await before(behind);
  proxy.add({ fault: { kind: "duplicate-lines" } });
  proxy.add({ fault: { kind: "reset", afterBytes: 10 } });
  assert.equal(textOf(await get(proxy.url)), "one\none\ntw");
});

test("the target's own break is passed on as a break", async () => {
  await using behind = await target((_, response) => {
    response.write("half");
    setImmediate(() => response.socket?.resetAndDestroy());
  });
  await using proxy = await before(behind);
  const got = await get(proxy.url);
  assert.notEqual(got.broken, undefined);
  assert.equal(textOf(got), "half");
});

test("the client's break ends the request at the target", async () => {
  const closed = Promise.withResolvers<void>();
  await using behind = await target((_, response) => {
    response.write("first");
    response.on("close", () => closed.resolve());
  });
  await using proxy = await before(behind);
  const outgoing = request(proxy.url, { agent: false });
  outgoing.on("error", () => undefined);
  outgoing.end();
  await once(outgoing, "response");
  outgoing.destroy();
  await closed.promise;
});

test("a stream's bytes come when they are sent, not when it ends", async () => {
  const proceed = Promise.withResolvers<void>();
  await using behind = await target(async (_, response) => {
    response.write("first\n");
    await proceed.promise;
    response.end("second\n");
  });
  await using proxy = await before(behind);
  const outgoing = request(proxy.url, { agent: false });
  outgoing.end();
  const [incoming]: IncomingMessage[] = await once(outgoing, "response");
  assert.ok(incoming !== undefined);
  const [first]: Buffer[] = await once(incoming, "data");
  assert.equal(String(first), "first\n");
  proceed.resolve();
  const [second]: Buffer[] = await once(incoming, "data");
  assert.equal(String(second), "second\n");
});

test("partition: connections stay, nothing passes, and healing delivers what was held", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  proxy.partition();
  const held = get(proxy.url);
  await eventually(() => proxy.connections === 1);
  assert.deepEqual(behind.seen, []);
  proxy.heal();
  assert.equal(textOf(await held), "hello");
});

test("down refuses and up listens on the same port", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const { port } = proxy;
  await proxy.down();
  await assert.rejects(get(proxy.url), { code: "ECONNREFUSED" });
  await proxy.up();
  assert.equal(proxy.port, port);
  assert.equal((await get(proxy.url)).status, 200);
});

test("upgrades pass both ways, and can be cut after N bytes", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  const echo = async (text: string, want: number): Promise<string> => {
    const outgoing = request(`${proxy.url}/ws`, { headers: { connection: "Upgrade", upgrade: "echo" }, agent: false });
    outgoing.end();
    const [, socket] = await once(outgoing, "upgrade");
    outgoing.on("error", () => undefined);
    let heard = "";
    socket.on("data", (chunk: Buffer) => {
      heard += chunk.toString();
      if (heard.length === want) socket.destroy();
    });
    socket.on("error", () => undefined);
    socket.write(text);
    await new Promise((resolve) => socket.once("close", resolve));
    return heard;
  };
  assert.equal(await echo("ping", 4), "ping");
  const rule = proxy.add({ path: /ws/, fault: { kind: "reset", afterBytes: 3 } });
  assert.equal(await echo("abcdef", 6), "abc");
  assert.equal(rule.applied, 1);
});

test("an upgrade that the target refuses is an ordinary answer", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  proxy.add({ fault: { kind: "respond", status: 403, body: "no" } });
  const outgoing = request(proxy.url, { headers: { connection: "Upgrade", upgrade: "echo" }, agent: false });
  outgoing.end();
  const [incoming]: IncomingMessage[] = await once(outgoing, "response");
  assert.equal(incoming?.statusCode, 403);
  incoming?.resume();
});

test("TLS ends at the proxy on both sides, and its certificate can be rotated while it runs", async () => {
  const [authority, next] = [createAuthority("one"), createAuthority("two")];
  const serving = { commonName: "localhost", usage: "server", names: ["127.0.0.1", "localhost"] } as const;
  const inner = issue(authority, serving);
  const server = createHttpsServer({ cert: inner.certPem, key: inner.keyPem }, (_, response) => response.end("secret"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const outer = issue(authority, serving);
  {
    await using proxy = await startFaultProxy({
      targetHost: "127.0.0.1",
      targetPort: address.port,
      serverTls: { cert: outer.certPem, key: outer.keyPem },
      clientTls: { ca: authority.certPem },
    });
    const fetchWith = async (ca: string): Promise<string> => {
      const outgoing = httpsRequest(proxy.url, { ca, agent: false });
      outgoing.end();
      const [incoming]: IncomingMessage[] = await once(outgoing, "response");
      outgoing.on("error", () => undefined);
      return Buffer.concat((await incoming?.toArray()) ?? []).toString();
    };
    assert.equal(await fetchWith(authority.certPem), "secret");
    const rotated = issue(next, serving);
    proxy.rotateServerTls({ cert: rotated.certPem, key: rotated.keyPem });
    assert.equal(await fetchWith(next.certPem), "secret");
    await assert.rejects(fetchWith(authority.certPem), /certificate|self.signed|unable to verify/i);
    const rule = proxy.add({ fault: { kind: "reset", afterBytes: 3 } });
    await assert.rejects(fetchWith(next.certPem), { code: "ECONNRESET" });
    assert.equal(rule.applied, 1);
  }
  server.closeAllConnections();
  server.close();
});

test("closing the proxy ends stuck requests and idle connections", async () => {
  await using behind = await target();
  const proxy = await before(behind);
  proxy.add({ fault: { kind: "silence" } });
  const stuck = get(proxy.url);
  const idle = connect(proxy.port, "127.0.0.1");
  idle.on("error", () => undefined);
  await eventually(() => proxy.connections === 2);
  const idleClosed = new Promise((resolve) => idle.once("close", resolve));
  const rejected = assert.rejects(stuck, { code: "ECONNRESET" });
  await proxy[Symbol.asyncDispose]();
  await Promise.all([rejected, idleClosed]);
});

test("a split without a positive size is refused", async () => {
  await using behind = await target();
  await using proxy = await before(behind);
  assert.throws(() => proxy.add({ fault: { kind: "split", sizes: [] } }), RangeError);
  assert.throws(() => proxy.add({ fault: { kind: "split", sizes: [0] } }), RangeError);
});
