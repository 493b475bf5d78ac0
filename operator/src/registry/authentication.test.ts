import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { unite } from "./authentication.ts";
import { createRegistryClient } from "./client.ts";
import { digestOf } from "./digest.ts";
import { isRegistryError, RegistryError } from "./errors.ts";
import {
  type FakeServer,
  fakeRegistry,
  fakeServer,
  type Intercept,
  impatientClock,
  refuse,
} from "./fake-registry.test-kit.ts";

const { signal } = new AbortController();
const login = { username: "me", password: "hunter2" };

/** A token server that numbers its tokens: `token-1`, `token-2` … */
async function tokenServer(answer: (token: string) => object): Promise<FakeServer> {
  let issued = 0;
  return fakeServer((_request, response) => {
    issued += 1;
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer(`token-${issued}`)));
  });
}

/** Lets through only requests with a token that `isValid`. */
function guarded(realm: string, isValid: (token: string) => boolean): Intercept {
  return (request, response) => {
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1];
    if (token !== undefined && isValid(token)) return false;
    const scope = request.method === "GET" ? "repository:a/b:pull" : "repository:a/b:pull,push";
    refuse(response, 401, "UNAUTHORIZED", {
      "www-authenticate": `Bearer realm="${realm}/token",service="s",scope="${scope}"`,
    });
    return true;
  };
}

const scopesOf = (server: FakeServer): string[][] =>
  server.requests.map(({ target }) => new URL(target, "http://x").searchParams.getAll("scope"));

async function* pieces(count: number, size: number): AsyncGenerator<Uint8Array> {
  for (let index = 0; index < count; index += 1) yield Buffer.alloc(size, index);
}

test("a token that nears its end in mid-push is renewed before the next chunk", async () => {
  const clock = createTestClock();
  await using tokens = await tokenServer((token) => ({ token, expires_in: 300 }));
  await using registry = await fakeRegistry(guarded(tokens.url, () => true));
  const client = createRegistryClient({ url: registry.url, login }, { clock, chunkBytes: 1000 });
  async function* slow() {
    for await (const piece of pieces(3, 1000)) {
      yield piece;
      // The clock jumps rather than advances: no deadline of a call may fire meanwhile.
      clock.jump(200_000);
    }
  }
  const stored = await client.uploadBlob("a/b", slow(), signal);
  assert.equal(registry.blobs.get(stored.digest)?.length, 3000);
  assert.ok(!registry.requests.some((request, index) => index > 0 && request.headers.authorization === undefined));
  assert.ok(scopesOf(tokens).length >= 2);
  await client.close();
});

test("a token that the registry rejects in mid-push is replaced once, and the chunk is sent again", async () => {
  await using tokens = await tokenServer((token) => ({ access_token: token }));
  let chunks = 0;
  const revoked = new Set<string>();
  await using registry = await fakeRegistry((request, response) => {
    if (request.method === "PATCH") chunks += 1;
    if (request.method === "PATCH" && chunks === 2)
      revoked.add((request.headers.authorization ?? "").slice("Bearer ".length));
    return guarded(tokens.url, (token) => !revoked.has(token))(request, response);
  });
  const client = createRegistryClient({ url: registry.url, login }, { chunkBytes: 1000 });
  const stored = await client.uploadBlob("a/b", pieces(3, 1000), signal);
  assert.equal(registry.blobs.get(stored.digest)?.length, 3000);
  assert.equal(chunks, 4);
  await client.close();
});

test("a token is fetched once per scope, with the login, and kept until it nears its end", async () => {
  const clock = createTestClock();
  await using tokens = await tokenServer((token) => ({ token, expires_in: 100 }));
  await using registry = await fakeRegistry(guarded(tokens.url, () => true));
  const client = createRegistryClient({ url: registry.url, login }, { clock });
  const missing = { digest: digestOf(Buffer.from("nothing")), size: 7 };
  for (const jump of [0, 89_000, 2_000]) {
    clock.jump(jump);
    assert.equal(await client.verifyBlob("a/b", missing, signal), false);
  }
  assert.deepEqual(scopesOf(tokens), [["repository:a/b:pull"], ["repository:a/b:pull"]]);
  const basic = `Basic ${Buffer.from("me:hunter2").toString("base64")}`;
  assert.ok(tokens.requests.every((request) => request.headers.authorization === basic));
  await client.close();
});

test("a token without expires_in is good for sixty seconds, as specified", async () => {
  const clock = createTestClock();
  await using tokens = await tokenServer((token) => ({ token }));
  await using registry = await fakeRegistry(guarded(tokens.url, () => true));
  const client = createRegistryClient({ url: registry.url }, { clock });
  const missing = { digest: digestOf(Buffer.from("nothing")), size: 7 };
  for (const jump of [0, 49_000, 2_000]) {
    clock.jump(jump);
    await client.verifyBlob("a/b", missing, signal);
  }
  assert.equal(tokens.requests.length, 2);
  assert.ok(
    tokens.requests.every((request) => request.headers.authorization === undefined),
    "no login, no header",
  );
  await client.close();
});

test("a mount asks for one token with both repositories", async () => {
  await using tokens = await tokenServer((token) => ({ token }));
  await using registry = await fakeRegistry((request, response) => {
    if (guarded(tokens.url, () => true)(request, response)) return true;
    response.writeHead(201).end();
    return true;
  });
  const client = createRegistryClient({ url: registry.url, login });
  assert.equal(await client.mountBlob("a/b", { from: "source/c", digest: digestOf(Buffer.from("x")) }, signal), true);
  assert.deepEqual(scopesOf(tokens), [["repository:a/b:pull,push", "repository:source/c:pull"]]);
  await client.close();
});

test("a 401 after authentication is Unauthorized, after one try anew and no more", async () => {
  await using tokens = await tokenServer((token) => ({ token }));
  await using registry = await fakeRegistry(guarded(tokens.url, () => false));
  const client = createRegistryClient({ url: registry.url, login });
  await assert.rejects(client.listTags("a/b", signal), (error) => isRegistryError(error, "Unauthorized"));
  assert.equal(registry.requests.length, 2);
  assert.equal(tokens.requests.length, 1);
  await client.close();
});

test("a token server that is down for a moment is asked once more", async () => {
  let answers = 0;
  await using tokens = await fakeServer((_request, response) => {
    answers += 1;
    if (answers === 1) response.writeHead(503).end();
    else response.writeHead(200).end('{"token":"t"}');
  });
  await using registry = await fakeRegistry(guarded(tokens.url, (token) => token === "t"));
  const client = createRegistryClient({ url: registry.url, login }, { clock: impatientClock });
  await assert.rejects(client.listTags("a/b", signal), (error) => isRegistryError(error, "NotFound"), "let in");
  assert.equal(tokens.requests.length, 2);
  await client.close();
});

const refusals: [name: string, status: number, body: string, code: string][] = [
  ["refuses the login", 401, "{}", "Unauthorized"],
  ["is down", 503, "", "Unavailable"],
  ["answers with a page", 200, "<html>token: hunter2</html>", "Malformed"],
  ["answers without a token", 200, '{"token":""}', "Malformed"],
  ["answers with a token of another type", 200, '{"token":{"hunter2":1}}', "Malformed"],
  ["redirects", 302, "", "Unauthorized"],
];
for (const [name, status, body, code] of refusals) {
  test(`a token server that ${name} is ${code}, and nothing secret is in the message`, async () => {
    await using elsewhere = await fakeServer((_request, response) => response.writeHead(200).end('{"token":"stolen"}'));
    await using tokens = await fakeServer((_request, response) => {
      response.writeHead(status, status === 302 ? { location: `${elsewhere.url}/token` } : {}).end(body);
    });
    await using registry = await fakeRegistry(guarded(tokens.url, () => true));
    const client = createRegistryClient({ url: registry.url, login });
    await assert.rejects(client.listTags("a/b", signal), (error) => {
      assert.ok(error instanceof RegistryError);
      assert.equal(error.code, code, error.message);
      return !`${error.message} ${String(error.cause)}`.includes("hunter2");
    });
    assert.equal(elsewhere.requests.length, 0, "the login follows no redirect");
    await client.close();
  });
}

test("a registry that wants a login names that when there is none", async () => {
  await using registry = await fakeServer((_request, response) => {
    refuse(response, 401, "UNAUTHORIZED", { "www-authenticate": 'Basic realm="r"' });
  });
  const client = createRegistryClient({ url: registry.url });
  await assert.rejects(client.listTags("a/b", signal), /wants a login and none is configured/);
  await client.close();
});

const unions: [scopes: string[], want: string[]][] = [
  [[], []],
  [["repository:a:pull", "repository:a:push,pull"], ["repository:a:pull,push"]],
  [
    ["repository:b:pull", "repository:a:pull"],
    ["repository:a:pull", "repository:b:pull"],
  ],
  [["repository:host:5000/a:pull"], ["repository:host:5000/a:pull"]],
  [["registry:catalog:*"], ["registry:catalog:*"]],
  [["nonsense"], []],
];
for (const [scopes, want] of unions) {
  test(`scopes ${scopes.join(" ")} unite to ${want.join(" ")}`, () => assert.deepEqual(unite(scopes), want));
}
