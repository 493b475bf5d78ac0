import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import type { KubeObject, WatchEvent } from "../reconciler/list-watch.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { ApiError, ConnectionError, isAlreadyExists, isConflict } from "./errors.ts";
import { fakeApi, json } from "./fake-api.test-kit.ts";
import { NAMESPACES, RUNTIMES, SECRETS, WORLDS } from "./resource-types.ts";

const signal = new AbortController().signal;
const ref = { namespace: "team", name: "w" };
const object = (name: string, version: number) => ({
  metadata: { name, namespace: "team", uid: `uid-${name}`, resourceVersion: String(version) },
});
const ok = (response: ServerResponse) => json(response, 200, object("w", 1));

/** Fails with the error it was rejected with, or when it was not. */
async function rejection(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return assert.fail("it should have been rejected");
}

test("paths name the group, the namespace and the object; core resources live under /api", async () => {
  await using api = await fakeApi((_, response) => ok(response));
  const client = api.client();
  await client.resource(WORLDS).get(ref, { signal });
  await client.resource(SECRETS).get(ref, { signal });
  await client.resource(NAMESPACES).get({ name: "team" }, { signal });
  await client.resource(RUNTIMES).get({ name: "rt:1" }, { signal });
  assert.deepEqual(
    api.seen.map((request) => request.path),
    [
      "/apis/agentworlds.dev/v1alpha1/namespaces/team/worlds/w",
      "/api/v1/namespaces/team/secrets/w",
      "/api/v1/namespaces/team",
      "/apis/agentworlds.dev/v1alpha1/runtimes/rt%3A1",
    ],
  );
  assert.equal(api.seen[0]?.headers.authorization, "Bearer secret-token");
});

test("a name that would name something else is refused before anything is sent", async () => {
  await using api = await fakeApi((_, response) => ok(response));
  const worlds = api.client().resource(WORLDS);
  for (const name of ["", ".", ".."]) {
    assert.throws(() => worlds.get({ namespace: "team", name }, { signal }), TypeError);
  }
  assert.throws(() => worlds.get({ name: "w" }, { signal }), /needs a namespace/);
  await worlds.get({ namespace: "team", name: "a/../b" }, { signal });
  assert.equal(api.seen[0]?.path, "/apis/agentworlds.dev/v1alpha1/namespaces/team/worlds/a%2F..%2Fb");
});

// kubernetes-client/javascript#705, #862: patches went out with a content type that the server refuses.
test("each write carries its content type, the field manager and nothing else", async () => {
  await using api = await fakeApi((_, response) => ok(response));
  const worlds = api.client().resource(WORLDS);
  await worlds.create({ a: 1 }, { namespace: "team", signal });
  await worlds.patch(ref, { spec: { a: 1 } }, { signal });
  await worlds.patchStatus(ref, { status: { a: 1 }, metadata: { resourceVersion: "7" } }, { signal });
  await worlds.apply(ref, { kind: "World" }, { signal });
  await worlds.delete(ref, { signal, uid: "u", resourceVersion: "7" });
  const told = api.seen.map(({ method, path, headers, query, body }) => ({
    call: `${method} ${path.split("/worlds").at(-1)}`,
    type: headers["content-type"],
    query,
    body: JSON.parse(body),
  }));
  const manager = { fieldManager: "agent-worlds" };
  const merge = "application/merge-patch+json";
  assert.deepEqual(told, [
    { call: "POST ", type: "application/json", query: manager, body: { a: 1 } },
    { call: "PATCH /w", type: merge, query: manager, body: { spec: { a: 1 } } },
    {
      call: "PATCH /w/status",
      type: merge,
      query: manager,
      body: { status: { a: 1 }, metadata: { resourceVersion: "7" } },
    },
    {
      call: "PATCH /w",
      type: "application/apply-patch+yaml",
      query: { ...manager, force: "true" },
      body: { kind: "World" },
    },
    {
      call: "DELETE /w",
      type: "application/json",
      query: {},
      body: { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid: "u", resourceVersion: "7" } },
    },
  ]);
});

test("a list yields its items, its position and the token of the next page", async () => {
  await using api = await fakeApi((request, response) =>
    json(response, 200, {
      metadata: { resourceVersion: "9", continue: request.query["continue"] === undefined ? "more" : "" },
      items: [object("a", 1)],
    }),
  );
  const worlds = api.client().resource(WORLDS);
  const first = await worlds.list({ limit: 1, labelSelector: "x=y", signal });
  assert.deepEqual(first, { items: [object("a", 1)], resourceVersion: "9", continueToken: "more" });
  const last = await worlds.list({ namespace: "team", continueToken: "more", limit: 0, signal });
  assert.equal(last.continueToken, undefined);
  assert.deepEqual(api.seen[0]?.query, { labelSelector: "x=y", limit: "1" });
  assert.deepEqual(api.seen[1]?.query, { continue: "more" });
});

test("an error answer becomes an ApiError with the server's sentence and reason, and no header or body in it", async () => {
  await using api = await fakeApi((request, response) =>
    json(response, 409, {
      kind: "Status",
      message: "the object has been modified",
      reason: request.method === "POST" ? "AlreadyExists" : "Conflict",
      code: 409,
    }),
  );
  const worlds = api.client().resource(WORLDS);
  const conflict = await rejection(worlds.patch(ref, { spec: { token: "s3cret" } }, { signal }));
  assert.ok(conflict instanceof ApiError);
  assert.equal(conflict.message, "the object has been modified");
  assert.ok(isConflict(conflict) && !isAlreadyExists(conflict));
  assert.ok(!JSON.stringify({ ...conflict, stack: conflict.stack }).includes("secret-token"));
  assert.ok(isAlreadyExists(await rejection(worlds.create({}, { namespace: "team", signal }))));
});

test("an answer that is no Status still becomes an ApiError", async () => {
  await using api = await fakeApi((_, response) => {
    response.writeHead(502);
    response.end("bad gateway");
  });
  const error = await rejection(api.client().resource(WORLDS).get(ref, { signal }));
  assert.ok(error instanceof ApiError);
  assert.deepEqual([error.status, error.reason, error.message], [502, "", "bad gateway"]);
});

test("an answer that is not JSON where it says so, or too large, or cut, is a ConnectionError", async () => {
  const answers: ((response: ServerResponse) => void)[] = [
    (response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end('{"half":');
    },
    (response) => json(response, 200, { large: "x".repeat(5_000) }),
    (response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "1000" });
      response.write('{"cut');
      setImmediate(() => response.destroy());
    },
  ];
  for (const answer of answers) {
    await using api = await fakeApi((_, response) => answer(response));
    const error = await rejection(api.client({ maxAnswerBytes: 4_096 }).resource(WORLDS).get(ref, { signal }));
    assert.ok(error instanceof ConnectionError, String(error));
    assert.equal(error.outcomeUnknown, true);
  }
});

test("text that is no JSON is handed over as text", async () => {
  await using api = await fakeApi((_, response) => response.end("ok"));
  assert.equal(await api.client().request<string>("GET", "/readyz", { signal }), "ok");
});

test("a server that never answers costs one deadline; the outcome of the write is unknown", async () => {
  await using api = await fakeApi(() => undefined);
  const worlds = api.client({ deadlineMs: 50 }).resource(WORLDS);
  const error = await rejection(worlds.patch(ref, {}, { signal }));
  assert.ok(error instanceof ConnectionError);
  assert.equal(error.outcomeUnknown, true);
  assert.match(error.message, /deadline of 50 ms/);
});

test("nobody listening is a ConnectionError, and the write was certainly not carried out", async () => {
  const api = await fakeApi(() => undefined);
  const client = api.client();
  await api[Symbol.asyncDispose]();
  const closed = await rejection(client.resource(WORLDS).get(ref, { signal }));
  assert.match(String(closed), /was closed/);

  const { createKubeClient } = await import("./client.ts");
  const { plainKubeconfig } = await import("./fake-api.test-kit.ts");
  // Port 1 of loopback: reserved, and nobody listens there.
  const dead = createKubeClient({ source: { kind: "kubeconfigText", text: plainKubeconfig(1) } });
  const error = await rejection(dead.resource(WORLDS).patch(ref, {}, { signal }));
  assert.ok(error instanceof ConnectionError);
  assert.equal(error.outcomeUnknown, false);
  await dead.close();
});

test("the caller's abort comes back as the caller's own reason", async () => {
  await using api = await fakeApi(() => undefined);
  const stop = new AbortController();
  const reason = new Error("lease lost");
  const pending = rejection(api.client().resource(WORLDS).get(ref, { signal: stop.signal }));
  stop.abort(reason);
  assert.equal(await pending, reason);
});

test("429 is waited out as asked and then carried out, for writes too", async () => {
  let asked = 0;
  await using api = await fakeApi((_, response) => {
    asked += 1;
    if (asked === 1) json(response, 429, { kind: "Status", code: 429 }, { "retry-after": "7" });
    else ok(response);
  });
  const clock = createTestClock();
  const pending = api
    .client({ clock, random: () => 0 })
    .resource(WORLDS)
    .patch(ref, {}, { signal });
  while (!clock.pending().includes(7_000)) await new Promise<void>((resolve) => setImmediate(resolve));
  assert.equal(asked, 1);
  await clock.advance(7_000);
  await pending;
  assert.equal(asked, 2);
});

test("429 that asks for more than the deadline leaves is thrown with the time asked for", async () => {
  await using api = await fakeApi((_, response) => json(response, 429, { details: { retryAfterSeconds: 60 } }));
  const error = await rejection(api.client({ deadlineMs: 1_000 }).resource(WORLDS).get(ref, { signal }));
  assert.ok(error instanceof ApiError);
  assert.equal(error.retryAfterMs, 60_000);
  assert.equal(api.seen.length, 1);
});

test("401 is tried once more, and then thrown", async () => {
  await using api = await fakeApi((_, response) => json(response, 401, { reason: "Unauthorized" }));
  const error = await rejection(api.client().resource(WORLDS).get(ref, { signal }));
  assert.ok(error instanceof ApiError && error.status === 401);
  assert.equal(api.seen.length, 2);
});

test("a read whose connection broke is tried once more; a write is not", async () => {
  await using api = await fakeApi((_, response) => response.destroy());
  const worlds = api.client().resource(WORLDS);
  assert.ok((await rejection(worlds.get(ref, { signal }))) instanceof ConnectionError);
  assert.equal(api.seen.length, 2);
  assert.ok((await rejection(worlds.patch(ref, {}, { signal }))) instanceof ConnectionError);
  assert.equal(api.seen.length, 3);
});

// kubernetes-client/javascript#2893: a new agent for each request, until file descriptors ran out.
test("a thousand calls use no more connections than the pool has", async () => {
  await using api = await fakeApi((_, response) => ok(response));
  const worlds = api.client({ poolSize: 4 }).resource(WORLDS);
  for (let round = 0; round < 20; round++) {
    await Promise.all(Array.from({ length: 50 }, () => worlds.get(ref, { signal })));
  }
  assert.equal(api.seen.length, 1_000);
  assert.ok(api.connections() <= 4, `${api.connections()} connections`);
});

test("open watches do not starve calls", async () => {
  await using api = await fakeApi((request, response) => {
    if (request.query["watch"] === undefined) ok(response);
    else response.writeHead(200, { "content-type": "application/json" }).flushHeaders();
  });
  const stop = new AbortController();
  const worlds = api.client({ poolSize: 1 }).resource(WORLDS);
  const watches = Array.from({ length: 5 }, () =>
    rejection(collect(worlds.watch({ resourceVersion: "1", timeoutSeconds: 60, signal: stop.signal }))),
  );
  await worlds.get(ref, { signal });
  stop.abort(new Error("stop"));
  for (const error of await Promise.all(watches)) assert.equal(String(error), "Error: stop");
});

async function collect<T extends KubeObject>(events: AsyncIterable<WatchEvent<T>>): Promise<WatchEvent<T>[]> {
  const all: WatchEvent<T>[] = [];
  for await (const event of events) all.push(event);
  return all;
}

/** Serves a watch whose body is the given pieces, flushed one by one, ended well or by a reset. */
const stream =
  (pieces: readonly Uint8Array[], end: "end" | "reset") => async (_: unknown, response: ServerResponse) => {
    response.writeHead(200, { "content-type": "application/json" });
    for (const piece of pieces) {
      response.write(piece);
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    if (end === "end") response.end();
    else response.destroy();
  };

const watchOptions = { resourceVersion: "1", timeoutSeconds: 60, signal };
const line = (type: string, body: unknown): Buffer => Buffer.from(`${JSON.stringify({ type, object: body })}\n`);

test("watch events arrive whole although characters and lines are split anywhere", async () => {
  const named = { ...object("w", 2), note: "Wörld 🌍 λ" };
  const bytes = Buffer.concat([
    line("ADDED", named),
    line("BOOKMARK", { metadata: { resourceVersion: "5" } }),
    line("DELETED", object("w", 6)),
  ]);
  const pieces = Array.from({ length: bytes.length }, (_, at) => bytes.subarray(at, at + 1));
  await using api = await fakeApi(stream(pieces, "end"));
  const events = await collect(api.client().resource(WORLDS).watch(watchOptions));
  assert.deepEqual(events, [
    { type: "ADDED", object: named },
    { type: "BOOKMARK", resourceVersion: "5" },
    { type: "DELETED", object: object("w", 6) },
  ]);
  assert.deepEqual(api.seen[0]?.query, {
    watch: "1",
    allowWatchBookmarks: "true",
    resourceVersion: "1",
    timeoutSeconds: "60",
  });
});

// kubernetes-client/javascript#1496
test("half a line is no event, whether the stream ends or is reset", async () => {
  const half = line("MODIFIED", object("w", 3)).subarray(0, 30);
  for (const end of ["end", "reset"] as const) {
    await using api = await fakeApi(stream([line("ADDED", object("w", 2)), half], end));
    const events: string[] = [];
    const reading = (async () => {
      for await (const event of api.client().resource(WORLDS).watch(watchOptions)) events.push(event.type);
    })();
    if (end === "end") await reading;
    else assert.ok((await rejection(reading)) instanceof ConnectionError);
    assert.deepEqual(events, ["ADDED"]);
  }
});

test("an ERROR event is thrown as the ApiError it is", async () => {
  const status = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
  await using api = await fakeApi(stream([line("ERROR", status)], "end"));
  const error = await rejection(collect(api.client().resource(WORLDS).watch(watchOptions)));
  assert.ok(error instanceof ApiError);
  assert.deepEqual([error.status, error.reason], [410, "Expired"]);
});

test("a watch refused at once is thrown as the ApiError it is", async () => {
  await using api = await fakeApi((_, response) => json(response, 403, { reason: "Forbidden" }));
  const error = await rejection(collect(api.client().resource(WORLDS).watch(watchOptions)));
  assert.ok(error instanceof ApiError && error.status === 403);
});

for (const [what, status] of [
  ["an error", 503],
  ["a redirect", 302],
] as const) {
  test(`the head of ${what} and then silence costs a watch one deadline, and keeps neither socket nor listener`, async () => {
    const closed: Promise<void>[] = [];
    await using api = await fakeApi((_, response) => {
      closed.push(new Promise((resolve) => response.on("close", resolve)));
      response.writeHead(status, { "content-type": "application/json" }).write("{");
    });
    const stop = new AbortController();
    const worlds = api.client({ deadlineMs: 100 }).resource(WORLDS);
    const error = await rejection(collect(worlds.watch({ ...watchOptions, signal: stop.signal })));
    assert.ok(error instanceof ConnectionError, String(error));
    assert.match(error.message, /deadline of 100 ms/);
    assert.ok(closed.length > 0);
    await Promise.all(closed);
    assert.deepEqual(getEventListeners(stop.signal, "abort"), []);
  });
}

test("an answer that is no success is an error, for calls and for watches: a redirect and an answer from a cache, too", async () => {
  for (const status of [301, 302, 304, 307]) {
    await using api = await fakeApi((_, response) => response.writeHead(status, { location: "/login" }).end());
    const worlds = api.client().resource(WORLDS);
    for (const made of [
      worlds.patch(ref, { spec: {} }, { signal }),
      worlds.delete(ref, { signal }),
      collect(worlds.watch(watchOptions)),
    ]) {
      const error = await rejection(made);
      assert.ok(error instanceof ApiError, String(error));
      assert.deepEqual([error.status, error.message], [status, `HTTP ${status}`]);
    }
  }
});

// kubernetes-client/javascript#2127: a server that accepts and never answers.
test("a watch that gets no headers ends at the deadline", async () => {
  await using api = await fakeApi(() => undefined);
  const error = await rejection(collect(api.client({ deadlineMs: 50 }).resource(WORLDS).watch(watchOptions)));
  assert.ok(error instanceof ConnectionError);
});

test("lines that are no events are named, not skipped", async () => {
  for (const piece of [
    "not json\n",
    '{"type":"ADDED","object":{}}\n',
    '{"type":"NEW","object":{"metadata":{"resourceVersion":"1"}}}\n',
  ]) {
    await using api = await fakeApi(stream([Buffer.from(piece)], "end"));
    const error = await rejection(collect(api.client().resource(WORLDS).watch(watchOptions)));
    assert.ok(error instanceof ConnectionError, piece);
  }
});

test("leaving a watch early closes its connection", async () => {
  const closed = Promise.withResolvers<void>();
  await using api = await fakeApi((_, response) => {
    response.on("close", () => closed.resolve());
    response.writeHead(200, { "content-type": "application/json" });
    response.write(line("ADDED", object("w", 2)));
  });
  for await (const event of api.client().resource(WORLDS).watch(watchOptions)) {
    assert.equal(event.type, "ADDED");
    break;
  }
  await closed.promise;
});
