import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { z } from "zod";
import { isRuntimeError, RuntimeError } from "../errors.ts";
import { EngineRefused } from "./engine-errors.ts";
import { followProgress } from "./progress.ts";
import { httpAnswer, type Script, scriptedEngine } from "./scripted-engine.test-kit.ts";
import { type EngineCall, EngineTransport } from "./transport.ts";

const never = new AbortController().signal;
const answerSchema = z.object({ Id: z.string() });
const call = { method: "GET", path: "/thing", ms: 300 } as const;
const isUnreachable = (error: unknown) => isRuntimeError(error, "HostUnreachable");

async function against(script: Script, use: (transport: EngineTransport) => Promise<void>, pong?: string) {
  await using engine = await scriptedEngine(script, pong);
  const transport = new EngineTransport({ kind: "unix", path: engine.path });
  try {
    await use(transport);
  } finally {
    await transport.close();
  }
}

const send =
  (bytes: string, then: "end" | "destroy" | "stay" = "stay"): Script =>
  (_, socket: Socket) => {
    socket.write(bytes, () => {
      if (then === "end") socket.end();
      if (then === "destroy") socket.destroy();
    });
  };

const brokenAnswers: [name: string, script: Script][] = [
  ["a body shorter than its length", send('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"Id":', "end")],
  [
    "a chunked body without its end",
    send('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"Id"\r\n', "end"),
  ],
  ["headers cut off", send("HTTP/1.1 200 OK\r\nContent-", "end")],
  ["a reset before the answer", send("", "destroy")],
  ["no answer at all", send("")],
  ["a body that stops and stays open", send('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"Id":')],
  ["something that is not HTTP", send("SSH-2.0-OpenSSH_9.2\r\n")],
  ["a 200 that is not JSON", send(httpAnswer(200, "<html>"))],
  ["JSON of another shape", send(httpAnswer(200, '{"id":3}'))],
];
for (const [name, script] of brokenAnswers)
  test(`${name} is an unreachable host, in time, and never a value`, async () => {
    await against(script, async (transport) => {
      await assert.rejects(transport.json(answerSchema, call, never), isUnreachable);
    });
  });

test("fields that are not known are let through", async () => {
  await against(send(httpAnswer(200, '{"Id":"a","New":1}')), async (transport) => {
    assert.deepEqual(await transport.json(answerSchema, call, never), { Id: "a" });
  });
});

test("an error status is a refusal in the engine's own words, also when a proxy answers with HTML", async () => {
  const refusals: [number, string, RegExp][] = [
    [404, '{"message":"No such container: x"}', /^No such container: x$/],
    [500, '{"message":"disk full"}', /^disk full$/],
    [502, "<html>bad gateway</html>", /HTTP 502: <html>bad/],
    [302, "<html>log in</html>", /HTTP 302: <html>log/],
  ];
  for (const [status, body, words] of refusals)
    await against(send(httpAnswer(status, body)), async (transport) => {
      await assert.rejects(
        transport.json(answerSchema, call, never),
        (error) => error instanceof EngineRefused && error.status === status && words.test(error.message),
      );
    });
});

test("a redirect is no success of a call whose answer does not matter; 304, running already, is one", async () => {
  const start: EngineCall = { method: "POST", path: "/containers/x/start" };
  await against(send(httpAnswer(307, "")), async (transport) => {
    await assert.rejects(transport.done(start, never), { name: "EngineRefused", status: 307 });
  });
  await against(send("HTTP/1.1 304 Not Modified\r\n\r\n"), async (transport) => {
    await transport.done(start, never);
  });
});

test("the caller's abort ends a hanging call with the caller's reason", async () => {
  const abort = new AbortController();
  const reason = new Error("lease lost");
  await against(
    () => abort.abort(reason),
    async (transport) => {
      await assert.rejects(transport.json(answerSchema, { ...call, ms: 60_000 }, abort.signal), (e) => e === reason);
    },
  );
});

test("nothing listening is an unreachable host, and the next call asks anew", async () => {
  const transport = new EngineTransport({ kind: "unix", path: "/nonexistent/engine.sock" });
  try {
    for (let attempt = 0; attempt < 2; attempt++)
      await assert.rejects(transport.json(answerSchema, call, never), isUnreachable);
  } finally {
    await transport.close();
  }
});

test("the version both sides know is used", async () => {
  const pong = (version: string) => `HTTP/1.1 200 OK\r\nApi-Version: ${version}\r\nContent-Length: 0\r\n\r\n`;
  for (const [offered, used] of [
    ["1.41", "/v1.41/thing"],
    ["1.99", "/v1.47/thing"],
  ] as const)
    await against(
      ({ line }, socket) => socket.write(httpAnswer(200, JSON.stringify({ Id: line }))),
      async (transport) => {
        const { Id } = await transport.json(answerSchema, call, never);
        assert.equal(Id.split(" ")[1], used);
      },
      pong(offered),
    );
});

test("an engine older than Docker 19.03, and what is no engine, are refused", async () => {
  const old = "HTTP/1.1 200 OK\r\nApi-Version: 1.39\r\nContent-Length: 0\r\n\r\n";
  await against(
    () => undefined,
    async (transport) => {
      await assert.rejects(
        transport.json(answerSchema, call, never),
        (error) => isRuntimeError(error, "HostRefused") && error instanceof Error && error.message.includes("19.03"),
      );
    },
    old,
  );
  await against(
    () => undefined,
    async (transport) => {
      await assert.rejects(transport.json(answerSchema, call, never), isUnreachable);
    },
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
  );
});

const chunked = (body: string, end = "0\r\n\r\n") =>
  `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n${end}`;

test("a progress stream with an error in it is a refusal although it began with 200", async () => {
  const body = '{"status":"Pushing"}\n{"errorDetail":{"message":"no space left"},"error":"no space left"}\n';
  await against(send(chunked(body)), async (transport) => {
    await assert.rejects(
      followProgress(transport.stream({ ...call, method: "POST" }, never)),
      (error) => error instanceof EngineRefused && error.message === "no space left",
    );
  });
});

test("a progress stream that is cut off, in a line or between two, is no success", async () => {
  const cuts = [
    send(chunked('{"status":"Pushing"}\n', ""), "end"),
    send(chunked('{"status":"Pushing"}\n{"sta', ""), "end"),
    send(chunked('{"status":"Pushing"}\n{"sta')),
    send(chunked('{"status":"Pushing"}\n', "")),
  ];
  for (const script of cuts)
    await against(script, async (transport) => {
      await assert.rejects(followProgress(transport.stream(call, never)), isUnreachable);
    });
});

test("a refused upgrade carries the engine's words; a hanging one ends with the caller's abort", async () => {
  await against(send(httpAnswer(409, '{"message":"Container x is paused"}')), async (transport) => {
    await assert.rejects(
      transport.upgrade("/exec/x/start", {}, never),
      (error) => error instanceof EngineRefused && error.status === 409 && error.message === "Container x is paused",
    );
  });
  const abort = new AbortController();
  await against(
    () => abort.abort(new RuntimeError("HostRefused", "enough")),
    async (transport) => {
      await assert.rejects(transport.upgrade("/exec/x/start", {}, abort.signal), (e) =>
        isRuntimeError(e, "HostRefused"),
      );
    },
  );
});

test("an upgraded connection carries both directions, from the first byte sent with the answer", async () => {
  const script: Script = ({ body }, socket) => {
    socket.removeAllListeners("data");
    socket.on("data", (chunk) => socket.end(`echo ${chunk}`));
    socket.write(`HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nfirst ${body} `);
  };
  await against(script, async (transport) => {
    const { socket } = await transport.upgrade("/exec/x/start", { Tty: false }, never);
    socket.write("hello");
    const received = Buffer.concat(await Array.fromAsync(socket)).toString();
    assert.equal(received, 'first {"Tty":false} echo hello');
  });
});

for (const isPatient of [true, false])
  test(`closing ${isPatient ? "with patience lets a call in flight end" : "without patience cuts a call in flight"}, and refuses the next`, async () => {
    const asked = Promise.withResolvers<Socket>();
    await using engine = await scriptedEngine((_, socket) => asked.resolve(socket));
    const transport = new EngineTransport({ kind: "unix", path: engine.path });
    const inFlight = transport.json(answerSchema, { ...call, ms: 30_000 }, never);
    const outcome = inFlight.catch((error: unknown) => error);
    const socket = await asked.promise;
    const closed = isPatient ? transport.close(AbortSignal.timeout(30_000)) : transport.close();
    if (isPatient) socket.write(httpAnswer(200, '{"Id":"a"}'));
    if (isPatient) assert.deepEqual(await outcome, { Id: "a" });
    else assert.ok(isUnreachable(await outcome));
    await closed;
    await assert.rejects(transport.json(answerSchema, call, never), isUnreachable);
  });

test("a close whose patience ends cuts what is still in flight", async () => {
  const asked = Promise.withResolvers<void>();
  await using engine = await scriptedEngine(() => asked.resolve());
  const transport = new EngineTransport({ kind: "unix", path: engine.path });
  const outcome = transport.json(answerSchema, { ...call, ms: 30_000 }, never).catch((error: unknown) => error);
  await asked.promise;
  const patience = new AbortController();
  const closed = transport.close(patience.signal);
  patience.abort();
  await closed;
  assert.ok(isUnreachable(await outcome));
});
