import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime, Sandbox, World } from "@agentworlds/crds";
import {
  INSTALLATION_SECRET,
  InstallationForgotten,
  InstallationMismatch,
  InstallationUnreadable,
  installationId,
} from "./installation.ts";
import type { KubeClient, ResourceClient } from "./kube/contract.ts";
import { RUNTIMES, SANDBOXES, SECRETS, type Secret, WORLDS } from "./kube/resource-types.ts";
import type { KubeObject } from "./reconciler/list-watch.ts";
import { memoryResource } from "./runtime/memory-resource.test-kit.ts";
import { at, runtimeOf, sandboxOf, worldOf } from "./runtime/test-objects.test-kit.ts";

const { signal } = new AbortController();
const NAMESPACE = "agent-worlds-system";
const ref = { namespace: NAMESPACE, name: INSTALLATION_SECRET };

const secretOf = (id: string | undefined): Secret => ({
  metadata: { ...ref, uid: "u", resourceVersion: "1" },
  ...(id === undefined ? {} : { data: { id: Buffer.from(id).toString("base64") } }),
});

interface Known {
  readonly worlds?: readonly World[];
  readonly sandboxes?: readonly Sandbox[];
  readonly runtimes?: readonly Runtime[];
}

function setup(...known: Secret[]) {
  return setupWith({}, ...known);
}

function setupWith({ worlds = [], sandboxes = [], runtimes = [] }: Known, ...known: Secret[]) {
  const secrets = memoryResource<Secret>(SECRETS, known);
  /** The map under the type that is asked for, as the real client gives it. */
  const typed = <T extends KubeObject>(client: unknown): ResourceClient<T> => client as ResourceClient<T>;
  const clients = new Map<string, unknown>([
    [SECRETS.plural, secrets],
    [WORLDS.plural, memoryResource<World>(WORLDS, worlds)],
    [SANDBOXES.plural, memoryResource<Sandbox>(SANDBOXES, sandboxes)],
    [RUNTIMES.plural, memoryResource<Runtime>(RUNTIMES, runtimes)],
  ]);
  const kube: KubeClient = {
    resource: ({ plural }) => typed(clients.get(plural)),
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

const worldOfInstallation = (id: string, name = "lab"): World =>
  worldOf({
    metadata: { name, uid: `${name}-uid` },
    status: { repository: `registry.example.com/team/worlds/${id}/team/${name}-${name}-uid` },
  });
const running = sandboxOf({
  spec: { image: "busybox:1" },
  status: { boot: 1, compute: { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 } },
});
const keeper = runtimeOf({
  status: {
    rescues: [
      {
        operation: "publish-1",
        namespace: "team",
        sandbox: { name: "one", uid: "sandbox-uid" },
        host: "a",
        computeId: "aw-sandbox-uid-1",
        reason: "SnapshotFailed",
        message: "",
        since: at(0),
      },
    ],
  },
});

const forgotten: [name: string, known: Known, wanted: string | undefined, message: RegExp][] = [
  [
    "a World that lives under an id",
    { worlds: [worldOfInstallation("acme1234")] },
    undefined,
    /World team\/lab .*acme1234.*set installation to acme1234/,
  ],
  [
    "Worlds under two ids",
    { worlds: [worldOfInstallation("acme1234"), worldOfInstallation("other567", "web")] },
    undefined,
    /acme1234 \(World team\/lab\), other567 \(World team\/web\)/,
  ],
  [
    "a World that lives under another id than the settings name",
    { worlds: [worldOfInstallation("acme1234")] },
    "other567",
    /the setting installation is other567.*acme1234/,
  ],
  [
    "a session that has a container",
    { sandboxes: [running] },
    undefined,
    /Sandbox team\/one .*agentworlds.dev\/installation/,
  ],
  ["work that is kept on a host", { runtimes: [keeper] }, undefined, /Runtime local .*agentworlds.dev\/installation/],
  [
    "a World whose repository names no id",
    { worlds: [worldOf({ status: { repository: "somewhere" } })] },
    undefined,
    /World team\/lab/,
  ],
];
for (const [name, known, wanted, message] of forgotten) {
  test(`the Secret is gone and there is ${name}: nothing starts under a new id, and the message says what to do`, async () => {
    const { secrets, id } = setupWith(known);
    await assert.rejects(id(wanted), (error) => error instanceof InstallationForgotten && message.test(error.message));
    assert.deepEqual(secrets.writes, []);
  });
}

test("the Secret is gone and the settings name the id that the Worlds live under: it is written down again", async () => {
  const worlds = [worldOfInstallation("acme1234"), worldOfInstallation("other567", "web")];
  const { secrets, id } = setupWith({ worlds, sandboxes: [running], runtimes: [keeper] });
  assert.equal(await id("acme1234"), "acme1234");
  assert.equal(Buffer.from(secrets.peek(ref)?.data?.["id"] ?? "", "base64").toString(), "acme1234");
});

test("the Secret is gone, containers are there, and only the settings can say whose: they are believed", async () => {
  assert.equal(await setupWith({ sandboxes: [running] }).id("acme1234"), "acme1234");
});

test("objects that nothing has been made for yet stand in no first start's way", async () => {
  const known = { worlds: [worldOf()], sandboxes: [sandboxOf()], runtimes: [runtimeOf()] };
  assert.match(await setupWith(known).id(), /^[0-9a-f]{10}$/);
});

test("a Secret that is there is not compared with what the Worlds say", async () => {
  assert.equal(await setupWith({ worlds: [worldOfInstallation("other567")] }, secretOf("acme1234")).id(), "acme1234");
});
