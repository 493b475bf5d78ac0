import assert from "node:assert/strict";
import { test } from "node:test";
import { INSTALLATION_SECRET, InstallationMismatch, InstallationUnreadable, installationId } from "./installation.ts";
import type { KubeClient, ResourceClient } from "./kube/contract.ts";
import { SECRETS, type Secret } from "./kube/resource-types.ts";
import type { KubeObject } from "./reconciler/list-watch.ts";
import { memoryResource } from "./runtime/memory-resource.test-kit.ts";

const { signal } = new AbortController();
const NAMESPACE = "agent-worlds-system";
const ref = { namespace: NAMESPACE, name: INSTALLATION_SECRET };

const secretOf = (id: string | undefined): Secret => ({
  metadata: { ...ref, uid: "u", resourceVersion: "1" },
  ...(id === undefined ? {} : { data: { id: Buffer.from(id).toString("base64") } }),
});

function setup(...known: Secret[]) {
  const secrets = memoryResource<Secret>(SECRETS, known);
  /** The map under the type that is asked for, as the real client gives it. */
  const typed = <T extends KubeObject>(client: unknown): ResourceClient<T> => client as ResourceClient<T>;
  const kube: KubeClient = {
    resource: () => typed(secrets),
    request: async () => assert.fail("the id needs no other call"),
    close: async () => undefined,
  };
  return { secrets, id: (wanted?: string) => installationId(kube, { namespace: NAMESPACE, wanted }, signal) };
}

test("a first start generates an id and keeps it; a later start reads the same", async () => {
  const { secrets, id } = setup();
  const first = await id();
  assert.match(first, /^[0-9a-f]{10}$/);
  assert.equal(await id(), first);
  assert.equal(secrets.writes.length, 1);
  assert.equal(Buffer.from(secrets.peek(ref)?.data?.["id"] ?? "", "base64").toString(), first);
});

test("two installations get two ids", async () => {
  assert.notEqual(await setup().id(), await setup().id());
});

test("an id that is there is used as it is", async () => {
  const { secrets, id } = setup(secretOf("acme1234"));
  assert.equal(await id(), "acme1234");
  assert.deepEqual(secrets.writes, []);
});

test("two replicas that start at once agree on the one that was written", async () => {
  const { secrets, id } = setup();
  secrets.interfere(() => secrets.put(secretOf("theirs42")));
  assert.equal(await id(), "theirs42");
});

test("the id that the settings name is taken on a first start, so that a cluster built anew finds its Worlds again", async () => {
  const { secrets, id } = setup();
  assert.equal(await id("acme1234"), "acme1234");
  assert.equal(Buffer.from(secrets.peek(ref)?.data?.["id"] ?? "", "base64").toString(), "acme1234");
  assert.equal(await id("acme1234"), "acme1234");
  assert.equal(await id(), "acme1234");
});

test("another id than the one that is there stops the start: nothing runs as somebody else", async () => {
  const { secrets, id } = setup(secretOf("acme1234"));
  await assert.rejects(id("other567"), InstallationMismatch);
  assert.deepEqual(secrets.writes, []);
});

test("of two replicas with different settings one starts, the other stops", async () => {
  const { secrets, id } = setup();
  secrets.interfere(() => secrets.put(secretOf("theirs42")));
  await assert.rejects(id("ours1234"), InstallationMismatch);
});

for (const [name, value] of [
  ["no data", undefined],
  ["an empty id", ""],
  ["an id that no repository could carry", "../Other"],
  ["an id too long", "x".repeat(33)],
] as const) {
  test(`a Secret with ${name} stops the start: nothing runs under a guessed id`, async () => {
    const { secrets, id } = setup(secretOf(value));
    await assert.rejects(id(), InstallationUnreadable);
    assert.deepEqual(secrets.writes, []);
  });
}

test("an API server that does not answer is no absent Secret", async () => {
  const { secrets, id } = setup();
  secrets.loseNextAnswer(false);
  await assert.rejects(id(), { name: "ConnectionError" });
});
