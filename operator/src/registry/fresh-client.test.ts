import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test } from "node:test";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import type { RegistryClient, RegistryEndpoint, RegistryLogin } from "./contract.ts";
import { RegistryError } from "./errors.ts";
import { createFreshClient, type RegistryCredentials } from "./fresh-client.ts";

const { signal } = new AbortController();
const login = (password: string): RegistryLogin => ({ username: "operator", password });
const DIGEST = `sha256:${"0".repeat(64)}` as const;
const blob = { mediaType: "", digest: DIGEST, size: 1 };

/** A registry that takes one password, a Secret that holds one, and a client between them. */
function setup() {
  const clock = createTestClock();
  const state = { accepted: "old", secret: "old", readings: 0, unreadable: false };
  const opened: { endpoint: RegistryEndpoint; closed: boolean; finish: PromiseWithResolvers<void> }[] = [];
  const unused = () => assert.fail("not called here");
  const client = createFreshClient({
    url: "https://registry.example",
    first: { login: login("old") },
    read: async (): Promise<RegistryCredentials> => {
      state.readings += 1;
      if (state.unreadable) throw new Error("Secret system/registry does not exist");
      return { login: login(state.secret) };
    },
    open: (endpoint): RegistryClient => {
      const one = { endpoint, closed: false, finish: Promise.withResolvers<void>() };
      opened.push(one);
      const demand = () => {
        if (endpoint.login?.password !== state.accepted) throw new RegistryError("Unauthorized", "401");
      };
      return {
        endpoint,
        listTags: async () => {
          demand();
          return [endpoint.login?.password ?? ""];
        },
        listRepositories: async () => [endpoint.login?.password ?? ""],
        async *streamBlob() {
          demand();
          yield new Uint8Array([1]);
          await one.finish.promise;
        },
        uploadBlob: async () => {
          demand();
          return { digest: DIGEST, size: 0 };
        },
        getManifest: unused,
        putManifest: unused,
        deleteManifest: unused,
        getBlob: unused,
        verifyBlob: unused,
        putBlob: unused,
        mountBlob: unused,
        close: async () => {
          one.closed = true;
        },
      };
    },
    clock,
  });
  const rotate = (password: string) => {
    state.accepted = password;
    state.secret = password;
  };
  return { clock, state, opened, client, rotate };
}

test("a rotated Secret is taken up by the call that the registry refuses, without a restart", async () => {
  const { clock, client, opened, rotate } = setup();
  rotate("new");
  await clock.advance(5_000);
  assert.deepEqual(await client.listTags("lab", signal), ["new"]);
  assert.equal(client.endpoint.login?.password, "new");
  assert.deepEqual(
    opened.map(({ closed }) => closed),
    [true, false],
  );
});

test("a stream that is refused before its first byte begins anew with the rotated credentials", async () => {
  const { clock, client, opened, rotate } = setup();
  rotate("new");
  await clock.advance(5_000);
  const stream = client.streamBlob("lab", blob, signal)[Symbol.asyncIterator]();
  assert.deepEqual((await stream.next()).value, new Uint8Array([1]));
  opened[1]?.finish.resolve();
  assert.equal((await stream.next()).done, true);
});

test("an upload that is refused is not repeated, and the next one is made with the rotated credentials", async () => {
  const { clock, client, rotate } = setup();
  rotate("new");
  await clock.advance(5_000);
  const upload = () => client.uploadBlob("lab", Readable.from([]), signal);
  await assert.rejects(upload(), { code: "Unauthorized" });
  await upload();
});

test("the Secret is read once in 60 seconds when nothing is refused, and the client stays while it is the same", async () => {
  const { clock, client, state, opened } = setup();
  for (let second = 0; second < 120; second += 10) {
    await client.listTags("lab", signal);
    await clock.advance(10_000);
  }
  assert.equal(state.readings, 1);
  assert.equal(opened.length, 1);
});

test("a registry that refuses for ever does not have the Secret read with every call", async () => {
  const { clock, client, state } = setup();
  state.accepted = "nobody knows";
  await clock.advance(5_000);
  for (let call = 0; call < 10; call++) await assert.rejects(client.listTags("lab", signal), { code: "Unauthorized" });
  assert.equal(state.readings, 1);
});

test("who only passes the login on gets the rotated one too, the second time at the latest", async () => {
  const { clock, client, rotate } = setup();
  rotate("new");
  await clock.advance(60_000);
  assert.equal(client.endpoint.login?.password, "old");
  await clock.advance(0);
  assert.equal(client.endpoint.login?.password, "new");
});

test("a client in use is not closed under its stream", async () => {
  const { clock, client, opened, rotate } = setup();
  const stream = client.streamBlob("lab", blob, signal)[Symbol.asyncIterator]();
  await stream.next();
  rotate("new");
  await clock.advance(60_000);
  await client.listTags("lab", signal);
  assert.equal(opened[0]?.closed, false);
  opened[0]?.finish.resolve();
  assert.equal((await stream.next()).done, true);
  assert.equal(opened[0]?.closed, true);
  await client.close();
  assert.equal(opened[1]?.closed, true);
});

test("a Secret that cannot be read leaves the old credentials in use, and a refusal says what is the matter", async () => {
  const { clock, client, state } = setup();
  state.unreadable = true;
  await clock.advance(60_000);
  assert.deepEqual(await client.listTags("lab", signal), ["old"]);
  state.accepted = "new";
  await assert.rejects(client.listTags("lab", signal), /cannot be read anew: Secret system\/registry does not exist/);
});
