import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { type Clock, systemClock } from "../reconciler/clock.ts";
import { createTestClock, settle } from "../reconciler/test-clock.test-kit.ts";
import { createRegistryClient, type RegistryClientOptions } from "./client.ts";
import type { RegistryClient, RegistryEndpoint } from "./contract.ts";
import { digestOf } from "./digest.ts";
import { isRegistryError, RegistryError, type RegistryErrorCode } from "./errors.ts";
import { fakeRegistry, fakeServer, impatientClock, refuse } from "./fake-registry.test-kit.ts";
import { DEVELOPMENT_SOURCES, PUBLIC_SOURCES } from "./source-policy.ts";
import { retryAfterMs } from "./transport.ts";

const { signal } = new AbortController();
const login = { username: "me", password: "hunter2" };
const ok = (response: ServerResponse, body: object) => {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
};
const failsAs =
  (code: RegistryErrorCode, pattern = /./) =>
  (error: unknown) => {
    assert.ok(error instanceof RegistryError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, pattern);
    assert.ok(!error.message.includes("hunter2"));
    return true;
  };

function connect(
  endpoint: RegistryEndpoint | string,
  options: RegistryClientOptions = {},
): RegistryClient & AsyncDisposable {
  const client = createRegistryClient(typeof endpoint === "string" ? { url: endpoint } : endpoint, {
    clock: impatientClock,
    ...options,
  });
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() });
}

test("a redirect to another host does not see Authorization, the registry itself does", async () => {
  const blob = Buffer.from("the blob");
  await using storage = await fakeServer((_request, response) => response.writeHead(200).end(blob));
  await using registry = await fakeRegistry((request, response) => {
    if (request.headers.authorization === undefined)
      refuse(response, 401, "UNAUTHORIZED", { "www-authenticate": "Basic realm=r" });
    else response.writeHead(307, { location: `${storage.url}/bucket?signature=abc` }).end();
    return true;
  });
  await using client = connect({ url: registry.url, login });
  assert.deepEqual(Buffer.from(await client.getBlob("a/b", { digest: digestOf(blob) }, signal)), blob);
  assert.equal(
    registry.requests.at(-1)?.headers.authorization,
    `Basic ${Buffer.from("me:hunter2").toString("base64")}`,
  );
  assert.deepEqual(
    storage.requests.map((request) => request.headers.authorization),
    [undefined],
  );
});

test("another host that asks for a login gets none", async () => {
  await using storage = await fakeServer((_request, response) =>
    refuse(response, 401, "UNAUTHORIZED", { "www-authenticate": "Basic realm=r" }),
  );
  await using registry = await fakeServer((request, response) => {
    if (request.headers.authorization === undefined)
      refuse(response, 401, "UNAUTHORIZED", { "www-authenticate": "Basic realm=r" });
    else response.writeHead(302, { location: `${storage.url}/x` }).end();
  });
  await using client = connect({ url: registry.url, login });
  await assert.rejects(client.getBlob("a/b", { digest: digestOf(Buffer.alloc(0)) }, signal), failsAs("Unauthorized"));
  assert.deepEqual(
    storage.requests.map((request) => request.headers.authorization),
    [undefined],
  );
});

test("another host's challenge does not lead the login to its own token realm", async () => {
  await using thief = await fakeServer((_request, response) => ok(response, { token: "t" }));
  const challenge = { "www-authenticate": `Bearer realm="${thief.url}/token",service="s"` };
  await using storage = await fakeServer((_request, response) => refuse(response, 401, "UNAUTHORIZED", challenge));
  await using registry = await fakeServer((request, response) => {
    if (request.headers.authorization === undefined) {
      refuse(response, 401, "UNAUTHORIZED", { "www-authenticate": "Basic realm=r" });
    } else if (request.target.includes("/tags/")) ok(response, { tags: [] });
    else response.writeHead(302, { location: `${storage.url}/x` }).end();
  });
  await using client = connect({ url: registry.url, login });
  // The first call learns how the registry authenticates, so that the next one is redirected at its first try.
  await client.listTags("a/b", signal);
  await assert.rejects(client.getBlob("a/b", { digest: digestOf(Buffer.alloc(0)) }, signal), failsAs("Unauthorized"));
  assert.equal(storage.requests.length, 1);
  assert.equal(thief.requests.length, 0);
});

test("redirects end after five hops", async () => {
  await using registry = await fakeServer((_request, response) =>
    response.writeHead(302, { location: "/again" }).end(),
  );
  await using client = connect(registry.url);
  await assert.rejects(client.listTags("a/b", signal), failsAs("Malformed", /too often/));
  assert.equal(registry.requests.length, 6);
});

const forbidden: [target: string, because: RegExp][] = [
  ["https://169.254.169.254/latest/meta-data", /metadata/],
  ["http://169.254.169.254/latest/meta-data", /not https/],
  ["https://[fe80::1]/", /link-local/],
  ["https://10.0.0.1/", /private/],
  ["https://metadata.google.internal/", /metadata/],
  ["https://me:pw@example.com/", /carries credentials/],
];
for (const [target, because] of forbidden) {
  test(`neither a redirect nor a token realm leads to ${target}`, async () => {
    await using redirecting = await fakeServer((_request, response) =>
      response.writeHead(302, { location: target }).end(),
    );
    await using one = connect(redirecting.url, { policy: DEVELOPMENT_SOURCES });
    await assert.rejects(one.listTags("a/b", signal), failsAs("SourceNotAllowed", because));

    const challenge = { "www-authenticate": `Bearer realm="${target}",service="s"` };
    await using challenging = await fakeServer((_request, response) =>
      refuse(response, 401, "UNAUTHORIZED", challenge),
    );
    await using two = connect({ url: challenging.url, login }, { policy: DEVELOPMENT_SOURCES });
    await assert.rejects(two.listTags("a/b", signal), failsAs("SourceNotAllowed", because));
  });
}

test("a name that resolves to a forbidden address is not connected to, whatever it resolved to before", async () => {
  await using inside = await fakeServer((_request, response) => ok(response, { tags: ["secret"] }));
  const asked: string[] = [];
  const lookup: NonNullable<RegistryClientOptions["lookup"]> = (hostname, _options, callback) => {
    asked.push(hostname);
    callback(null, [
      { address: "8.8.8.8", family: 4 },
      { address: "127.0.0.1", family: 4 },
    ]);
  };
  const { port } = new URL(inside.url);
  await using client = connect(`https://rebinding.example:${port}`, { policy: PUBLIC_SOURCES, lookup });
  await assert.rejects(client.listTags("a/b", signal), failsAs("SourceNotAllowed", /127\.0\.0\.1.*loopback/));
  assert.deepEqual(asked, ["rebinding.example"]);
  assert.equal(inside.requests.length, 0);
});

test("the address that was judged is the address that is connected to", async () => {
  await using inside = await fakeServer((_request, response) => ok(response, { tags: ["v1"] }));
  let answers = 0;
  const lookup: NonNullable<RegistryClientOptions["lookup"]> = (_hostname, _options, callback) => {
    answers += 1;
    callback(null, [{ address: "127.0.0.1", family: 4 }]);
  };
  await using client = connect(`http://localhost:${new URL(inside.url).port}`, { policy: DEVELOPMENT_SOURCES, lookup });
  assert.deepEqual(await client.listTags("a/b", signal), ["v1"]);
  assert.equal(answers, 1, "one connection is one resolution");
});

for (const [url, code] of [
  ["http://registry.example", "SourceNotAllowed"],
  ["https://10.0.0.1", "SourceNotAllowed"],
  ["https://example.com/path", "Refused"],
  ["https://me:pw@example.com", "Refused"],
  ["nonsense", "Refused"],
] as const) {
  test(`the endpoint ${url} is refused`, () => {
    assert.throws(() => createRegistryClient({ url }, { policy: PUBLIC_SOURCES }), failsAs(code));
  });
}

test("a busy registry is asked again, and after Retry-After if it says so", async () => {
  let answers = 0;
  await using registry = await fakeServer((_request, response) => {
    answers += 1;
    if (answers === 1) refuse(response, 429, "TOOMANYREQUESTS", { "retry-after": "7" });
    else if (answers === 2) refuse(response, 503, "UNAVAILABLE");
    else ok(response, { tags: ["v1"] });
  });
  const pauses: number[] = [];
  const clock: Clock = {
    now: () => 0,
    sleep: (milliseconds, inner) => {
      if (milliseconds < 30_000) pauses.push(milliseconds);
      return systemClock.sleep(milliseconds < 30_000 ? 0 : milliseconds, inner);
    },
  };
  await using client = connect(registry.url, { clock, random: () => 0.5 });
  assert.deepEqual(await client.listTags("a/b", signal), ["v1"]);
  assert.deepEqual(pauses, [7_000, 600]);
});

// distribution answers so while the same manifest is put a second time: its link is empty for a moment.
for (const status of [500, 507, 520]) {
  test(`a read answered with ${status} is made once more, and then it is an answer`, async () => {
    let broken = 1;
    await using registry = await fakeServer((_request, response) => {
      if (broken-- > 0) refuse(response, status, "UNKNOWN");
      else ok(response, { tags: ["v1"] });
    });
    await using client = connect(registry.url);
    assert.deepEqual(await client.listTags("a/b", signal), ["v1"]);
    assert.equal(registry.requests.length, 2);

    broken = Number.POSITIVE_INFINITY;
    await assert.rejects(client.listTags("a/b", signal), failsAs("Unavailable", new RegExp(`answered ${status}`)));
    assert.equal(registry.requests.length, 4, "no third try");
  });
}

test("what is no read is not repeated after a 500", async () => {
  await using registry = await fakeServer((_request, response) => refuse(response, 500, "UNKNOWN"));
  await using client = connect(registry.url);
  const manifest = { mediaType: "application/vnd.oci.image.manifest.v1+json", bytes: Buffer.from("{}") };
  const digest = digestOf(manifest.bytes);
  await assert.rejects(client.putManifest("a/b", { reference: digest, ...manifest }, signal), failsAs("Unavailable"));
  await assert.rejects(client.deleteManifest("a/b", digest, signal), failsAs("Unavailable"));
  await assert.rejects(client.mountBlob("a/b", { from: "a/c", digest }, signal), failsAs("Unavailable"));
  assert.deepEqual(
    registry.requests.map(({ method }) => method),
    ["PUT", "DELETE", "POST"],
  );
});

test("a Retry-After beyond the deadline is reported instead of waited for", async () => {
  await using registry = await fakeServer((_request, response) =>
    refuse(response, 429, "TOOMANYREQUESTS", { "retry-after": "120" }),
  );
  await using client = connect(registry.url);
  await assert.rejects(client.listTags("a/b", signal), (error) => {
    return isRegistryError(error, "Unavailable") && error.status === 429 && error.retryAfterMs === 120_000;
  });
  assert.equal(registry.requests.length, 1);
});

test("a tag is not put a second time when the registry may have acted on the first", async () => {
  await using registry = await fakeServer((_request, response) => refuse(response, 503, "UNAVAILABLE"));
  await using client = connect(registry.url);
  const manifest = { mediaType: "application/vnd.oci.image.manifest.v1+json", bytes: Buffer.from("{}") };
  await assert.rejects(client.putManifest("a/b", { reference: "latest", ...manifest }, signal), failsAs("Unavailable"));
  assert.equal(registry.requests.length, 1);
  await assert.rejects(
    client.putManifest("a/b", { reference: digestOf(manifest.bytes), ...manifest }, signal),
    failsAs("Unavailable"),
  );
  assert.equal(registry.requests.length, 5, "under its digest it is");
});

test("a registry that never answers fails at the deadline, and an abort is the abort's own reason", async () => {
  await using registry = await fakeServer(() => undefined);
  const clock = createTestClock();
  await using client = connect(registry.url, { clock });
  const silent = client.listTags("a/b", signal);
  const outcome = assert.rejects(silent, failsAs("Unavailable", /nothing was heard for 30000 ms/));
  while (registry.requests.length === 0) await settle();
  await clock.advance(30_000);
  await outcome;

  const abort = new AbortController();
  const aborted = assert.rejects(client.listTags("a/b", abort.signal), /the lease is lost/);
  while (registry.requests.length === 1) await settle();
  abort.abort(new Error("the lease is lost"));
  await aborted;
  assert.deepEqual(clock.pending(), [], "no timer is left");
});

test("a body that stops moving fails although its headers came in time", async () => {
  await using registry = await fakeServer((_request, response) => {
    response.writeHead(200, { "content-length": 100 }).flushHeaders();
  });
  const clock = createTestClock();
  await using client = connect(registry.url, { clock });
  const descriptor = { mediaType: "x/y", digest: digestOf(Buffer.alloc(100)), size: 100 };
  const reading = client.streamBlob("a/b", descriptor, signal)[Symbol.asyncIterator]().next();
  const outcome = assert.rejects(reading, failsAs("Unavailable", /nothing was heard/));
  while (registry.requests.length === 0) await settle();
  await clock.advance(60_000);
  await outcome;
  assert.deepEqual(clock.pending(), [], "no timer is left");
});

test("a reader that takes its time is not a registry that is silent", async () => {
  const blob = Buffer.alloc(4_000_000, 7);
  await using registry = await fakeServer((_request, response) => response.writeHead(200).end(blob));
  const clock = createTestClock();
  await using client = connect(registry.url, { clock });
  const descriptor = { mediaType: "x/y", digest: digestOf(blob), size: blob.length };
  let received = 0;
  for await (const chunk of client.streamBlob("a/b", descriptor, signal)) {
    if (received === 0) await clock.advance(300_000);
    received += chunk.length;
  }
  assert.equal(received, blob.length);
});

const retryAfterCases: [header: string | undefined, want: number | undefined][] = [
  [undefined, undefined],
  ["0", 0],
  ["120", 120_000],
  ["Thu, 01 Jan 1970 00:00:10 GMT", 9_000],
  ["Thu, 01 Jan 1970 00:00:00 GMT", 0],
  ["soon", undefined],
];
for (const [header, want] of retryAfterCases) {
  test(`Retry-After ${header} is ${want} ms`, () => assert.equal(retryAfterMs(header, 1_000), want));
}
