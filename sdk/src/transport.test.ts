import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { answer, type FakeServer, fakeServer, type Script, status } from "../test/fake-server.ts";
import { AgentWorlds } from "./client.ts";
import { CredentialSource } from "./credentials.ts";
import { Endpoint } from "./endpoint.ts";
import {
  AgentWorldsError,
  ConfigurationError,
  ConflictError,
  ConnectionError,
  DeadlineError,
  ProtocolError,
  UnavailableError,
} from "./errors.ts";
import { type Call, Transport } from "./transport.ts";

/** A transport to a server that follows the script; pauses are noted, not waited for. */
async function scene(
  script: Script,
): Promise<AsyncDisposable & { transport: Transport; server: FakeServer; pauses: number[] }> {
  const server = await fakeServer(script);
  const access = { server: server.url, ca: { kind: "Inline", pem: server.caPem }, insecureSkipVerify: false } as const;
  const endpoint = new Endpoint({ server: access, credentials: new CredentialSource({ token: "s3cret" }, {}) });
  const pauses: number[] = [];
  const transport = new Transport({
    endpoint,
    isSession: (path) => path.startsWith("/session"),
    sleep: async (milliseconds, signal) => {
      signal.throwIfAborted();
      pauses.push(milliseconds);
    },
  });
  return {
    transport,
    server,
    pauses,
    async [Symbol.asyncDispose]() {
      await endpoint.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

const command: Call = {
  method: "POST",
  path: "/session/exec",
  body: { json: {} },
  repetition: "Once",
  timeoutMs: 10_000,
};
const read: Call = { method: "GET", path: "/objects", repetition: "Repeatable", timeoutMs: 10_000 };

/** Answers in turn; the last one again and again. */
const inTurn = (...answers: ((response: ServerResponse) => void)[]): Script => {
  return ({ response, index }) => (answers[index] ?? answers.at(-1))?.(response);
};
const ok = (response: ServerResponse): void => answer(response, 200, { fine: true });
const refuse = (code: number, details: Record<string, unknown>, headers?: Record<string, string>) => {
  return (response: ServerResponse): void =>
    answer(response, code, status(code, { cause: "c", remediation: "r", ...details }), headers);
};
const cut = (response: ServerResponse): void => void response.destroy();

test("a call carries the token, and its answer is JSON", async () => {
  await using at = await scene(inTurn(ok));
  assert.deepEqual(await at.transport.json(read), { fine: true });
  assert.equal(at.server.seen[0]?.headers.authorization, "Bearer s3cret");
});

test("a command whose connection breaks was sent once, and the error says that the outcome is unknown", async () => {
  await using at = await scene(inTurn(cut, ok));
  await assert.rejects(at.transport.json(command), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.equal(error.code, "ConnectionLost");
    assert.equal(error.outcomeUnknown, true);
    assert.match(error.remediation ?? "", /look at what was done/);
    return true;
  });
  assert.equal(at.server.seen.length, 1);
});

test("a read whose connection breaks is sent again", async () => {
  await using at = await scene(inTurn(cut, cut, ok));
  assert.deepEqual(await at.transport.json(read), { fine: true });
  assert.equal(at.server.seen.length, 3);
});

test("an answer that is cut off is never taken for a whole one", async () => {
  const half = (response: ServerResponse): void => {
    response.writeHead(200, { "content-length": "10" });
    response.write("12345", () => response.destroy());
  };
  await using at = await scene(inTurn(half, half, (response) => response.end("0123456789")));
  assert.equal(Buffer.from(await at.transport.bytes(read, 100)).toString(), "0123456789");
  assert.equal(at.server.seen.length, 3);
});

test("a command answered 504 by a hop on the way is not repeated", async () => {
  await using at = await scene(inTurn((response) => answer(response, 504, { reason: "Timeout", message: "cut" }), ok));
  await assert.rejects(
    at.transport.json(command),
    (error) => error instanceof UnavailableError && error.outcomeUnknown && /60 s/.test(error.remediation ?? ""),
  );
  assert.equal(at.server.seen.length, 1);
});

test("NotReady right after Ready is waited out before a command", async () => {
  await using at = await scene(inTurn(refuse(409, { code: "NotReady" }), refuse(409, { code: "NotReady" }), ok));
  assert.deepEqual(await at.transport.json(command), { fine: true });
  assert.ok(at.pauses.every((pause) => pause <= 400));
});

test("another conflict is told at once, with code, cause and remediation", async () => {
  await using at = await scene(
    inTurn(refuse(409, { code: "Hibernated", cause: "it sleeps", remediation: "touch it" })),
  );
  await assert.rejects(at.transport.json(command), (error) => {
    assert.ok(error instanceof ConflictError && error instanceof AgentWorldsError);
    assert.deepEqual([error.code, error.cause, error.remediation], ["Hibernated", "it sleeps", "touch it"]);
    return true;
  });
});

test("429 is waited out as long as the server says", async () => {
  await using at = await scene(inTurn(refuse(429, { code: "Busy" }, { "retry-after": "2" }), ok));
  await at.transport.json(command);
  assert.deepEqual(at.pauses, [2_000]);
});

test("a pause that would outlast the deadline is not begun: the refusal is told", async () => {
  await using at = await scene(inTurn(refuse(429, { code: "Busy", retryAfterSeconds: 60 })));
  await assert.rejects(
    at.transport.json(command),
    (error) => error instanceof UnavailableError && error.code === "Busy",
  );
  assert.deepEqual(at.pauses, []);
});

test("a server that refuses connections is named Unreachable, and nothing was done", async () => {
  const gone = await fakeServer(inTurn(ok));
  await gone[Symbol.asyncDispose]();
  await using client = new AgentWorlds({ server: gone.url, token: "t", ca: gone.caPem });
  await assert.rejects(client.worlds.list(), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.equal(error.code, "Unreachable");
    assert.equal(error.outcomeUnknown, false);
    return true;
  });
});

test("a server whose certificate is not trusted is not spoken to", async () => {
  await using server = await fakeServer(inTurn(ok));
  await using other = await fakeServer(inTurn(ok));
  await using client = new AgentWorlds({ server: server.url, token: "t", ca: other.caPem });
  await assert.rejects(client.worlds.list(), ConnectionError);
  assert.equal(server.seen.length, 0);
});

test("silence ends at the deadline; for a command with an unknown outcome", async () => {
  await using at = await scene(() => undefined);
  await assert.rejects(
    at.transport.json({ ...command, timeoutMs: 100 }),
    (error) => error instanceof DeadlineError && error.outcomeUnknown,
  );
  await assert.rejects(
    at.transport.json({ ...read, timeoutMs: 100 }),
    (error) => error instanceof DeadlineError && !error.outcomeUnknown,
  );
});

test("the caller's abort ends the call with the caller's reason", async () => {
  const caller = new AbortController();
  const reason = new Error("enough");
  await using at = await scene(() => caller.abort(reason));
  await assert.rejects(at.transport.json({ ...command, signal: caller.signal }), (error) => error === reason);
  await assert.rejects(at.transport.json({ ...command, signal: caller.signal }), (error) => error === reason);
  assert.equal(at.server.seen.length, 1);
});

test("an answer above the limit is an error, not a cut", async () => {
  await using at = await scene(({ response }) => response.end(Buffer.alloc(1_000)));
  await assert.rejects(
    at.transport.bytes(read, 999),
    (error) => error instanceof ProtocolError && error.code === "AnswerTooLarge",
  );
});

test("a streamed answer is read line by line, characters split between chunks included", async () => {
  const bytes = Buffer.from(`{"a":"é"}\n{"a":2}\n{"cut`);
  await using at = await scene(({ response }) => {
    response.writeHead(200);
    response.write(bytes.subarray(0, 7), () => response.end(bytes.subarray(7)));
  });
  assert.deepEqual(await Array.fromAsync(at.transport.lines(read)), [{ a: "é" }, { a: 2 }]);
});

test("a gateway's own endpoint needs a token, and that is said before anything is sent", async () => {
  await using server = await fakeServer(inTurn(ok));
  const endpoint = new Endpoint({
    server: { server: server.url, insecureSkipVerify: true },
    credentials: new CredentialSource({ certificate: { kind: "Inline", pem: "x" } }, {}),
    bearerOnly: true,
  });
  await assert.rejects(
    endpoint.lease(),
    (error) => error instanceof ConfigurationError && error.code === "TokenNeeded",
  );
});

test("proxy-url is honoured: the server is reached through its tunnel", async () => {
  await using server = await fakeServer(inTurn(ok));
  const tunnels: string[] = [];
  const proxy = createServer().on("connect", (request, socket, head) => {
    tunnels.push(request.url ?? "");
    const upstream = connect(Number(new URL(server.url).port), "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connection Established\r\n\r\n");
      upstream.write(head);
      upstream.pipe(socket).pipe(upstream);
    });
    upstream.on("error", () => socket.destroy());
    socket.on("error", () => upstream.destroy());
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const { port } = proxy.address() as AddressInfo;
  const endpoint = new Endpoint({
    server: {
      server: server.url,
      ca: { kind: "Inline", pem: server.caPem },
      insecureSkipVerify: false,
      proxyUrl: `http://127.0.0.1:${port}`,
    },
    credentials: new CredentialSource({}, {}),
  });
  try {
    assert.deepEqual(await new Transport({ endpoint, isSession: () => false }).json(read), { fine: true });
    assert.deepEqual(tunnels, [new URL(server.url).host]);
  } finally {
    await endpoint.close();
    await new Promise((resolve) => proxy.close(resolve));
  }
});

test("a closed client says so", async () => {
  await using server = await fakeServer(inTurn(ok));
  const client = new AgentWorlds({ server: server.url, token: "t", ca: server.caPem });
  await client.close();
  await assert.rejects(
    client.worlds.list(),
    (error) => error instanceof ConfigurationError && error.code === "ClientClosed",
  );
});
