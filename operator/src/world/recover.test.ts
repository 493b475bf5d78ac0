import assert from "node:assert/strict";
import { test } from "node:test";
import type { World, WorldStatus } from "@agentworlds/crds";
import { Waiting } from "../reconciler/policy.ts";
import { at, runtimeOf, type sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { publishedHistory, publishedVersion } from "./published-history.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

const history = publishedHistory([0, 1, 3, 4]);
const newest = history[3];
assert.ok(newest);

type Parts = ReturnType<typeof worldParts>;

/** What `kubectl replace --subresource status` with nothing leaves: the schema's default. */
const wipe = (parts: Parts): void => parts.change((world) => ({ ...world, status: { observedGeneration: -1 } }));

const lineageOf = (world: World | undefined): Partial<WorldStatus> => {
  const { conditions: _, observedGeneration: __, ...lineage } = world?.status ?? { observedGeneration: -1 };
  return lineage;
};

const genesis = { image: "busybox:1", digest: `sha256:${"9".repeat(64)}`, platform: "linux/amd64" } as const;
const GENESIS = { status: { genesis } };

const writing = (name: string, status: object = {}) => ({
  metadata: { name, uid: `${name}-uid` },
  status: {
    world: { uid: "world-uid" },
    compute: { runtime: "local", host: "a", id: `aw-${name}-uid-1`, boot: 1 },
    ...status,
  },
});

test("a status that was deleted by hand is rebuilt as it was, and announced", async () => {
  const parts = worldParts({ history, world: GENESIS });
  await parts.pass();
  const before = lineageOf(parts.world());
  wipe(parts);
  await parts.pass();
  assert.deepEqual(lineageOf(parts.world()), before);
  assert.equal(parts.condition("Ready")?.status, "True");
  const told = parts.events.find(({ reason }) => reason === "LineageRecovered");
  assert.equal(told?.type, "Normal", "nothing was lost");
  assert.match(told.message, /^the status was lost and is read back from .*: \d versions, head is version \d/);
});

test("a rebuilt World rests: the next passes write nothing and read no versions", async () => {
  const parts = worldParts({ history, world: GENESIS });
  wipe(parts);
  await parts.pass();
  await parts.pass();
  const { writes } = parts.worlds;
  const before = writes.length;
  const reads = parts.registry.reads.length;
  await parts.pass();
  assert.equal(writes.length, before);
  assert.ok(parts.registry.reads.length - reads <= 2, "head and latest");
  assert.deepEqual(parts.registry.writes, []);
});

test("a session that runs is the holder again, and no second one", async () => {
  const parts = worldParts({ history, world: GENESIS, sandboxes: [writing("one")] });
  wipe(parts);
  await parts.pass();
  assert.deepEqual(parts.world()?.status.holder, {
    sandbox: "one",
    uid: "one-uid",
    causedBy: { user: "system:unknown" },
    acquiredAt: at(0),
  });
});

const nobody: [name: string, sandbox: Parameters<typeof sandboxOf>[0]][] = [
  ["of a World of the same name that is gone", writing("one", { world: { uid: "another-uid" } })],
  ["without compute", { metadata: { name: "one", uid: "one-uid" }, status: { world: { uid: "world-uid" } } }],
  [
    "that saves nothing",
    writing("one", { compute: { runtime: "local", host: "a", id: "aw-1", boot: 1, saves: "Nothing" } }),
  ],
];
for (const [name, sandbox] of nobody) {
  test(`a session ${name} does not hold the World`, async () => {
    const parts = worldParts({ history, world: GENESIS, sandboxes: [sandbox] });
    wipe(parts);
    await parts.pass();
    assert.equal(parts.world()?.status.holder, undefined);
    assert.equal(parts.world()?.status.head?.version, 4);
  });
}

test("two sessions that could both be the holder: nothing is rebuilt, both are named", async () => {
  const parts = worldParts({ history, world: GENESIS, sandboxes: [writing("one"), writing("two")] });
  wipe(parts);
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "HolderUnclear");
  assert.match(end.message, /one and two/);
  assert.equal(parts.world()?.status.head, undefined);
});

test("a version that was committed and not yet tagged is known to its session: it is head, not the one before it", async () => {
  const session = writing("one", { base: { version: 4, digest: newest.digest } });
  const parts = worldParts({ history, world: GENESIS, sandboxes: [session] });
  parts.registry.tags.delete("v4");
  wipe(parts);
  await parts.pass();
  assert.equal(parts.world()?.status.head?.digest, newest.digest);
  assert.equal(parts.registry.tags.get("v4"), newest.digest);
});

test("a version that a session remembers and the registry has lost: nothing older becomes head", async () => {
  const session = writing("one", {
    lastSnapshot: { version: 4, digest: newest.digest, at: at(4), reason: "Snapshot" },
  });
  const parts = worldParts({ history, world: GENESIS, sandboxes: [session] });
  parts.registry.manifests.delete(newest.digest);
  parts.registry.tags.delete("v4");
  wipe(parts);
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "LineageBroken");
  assert.ok(end.message.includes(newest.digest), end.message);
  assert.equal(parts.world()?.status.head, undefined);
  assert.equal(parts.condition("Ready")?.reason, "LineageBroken");
});

test("a newest tag without a manifest: nothing older becomes head", async () => {
  const parts = worldParts({ history, world: GENESIS });
  parts.registry.manifests.delete(newest.digest);
  wipe(parts);
  const end = await parts.pass();
  assert.ok(end instanceof Waiting);
  assert.equal(end.reason, "LineageBroken");
  assert.equal(parts.world()?.status.head, undefined);
});

for (const failing of ["tags", "v4", "v0"]) {
  test(`a registry that does not answer for ${failing} is waited for; nothing is taken for empty`, async () => {
    const parts = worldParts({ history, world: GENESIS });
    wipe(parts);
    parts.registry.failing.set(failing, "Unavailable");
    const end = await parts.pass();
    assert.ok(end instanceof Waiting);
    assert.equal(end.reason, "RegistryUnavailable");
    assert.equal(parts.world()?.status.head, undefined);
    parts.registry.failing.clear();
    await parts.pass();
    assert.equal(parts.world()?.status.head?.version, 4);
  });
}

test("what is left of a status stays: a number that was used up, a hold, a reservation", async () => {
  const holder = { sandbox: "one", uid: "one-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };
  const pending = { operation: "op", version: 8, sandbox: { name: "one", uid: "one-uid" }, since: at(2) };
  const facts = { verb: "Close", reason: "CloseRequested", stage: "Uploaded", since: at(1), attempts: 0 };
  const operation = { id: "op", ...facts };
  const parts = worldParts({
    history,
    world: { status: { genesis, holder, pending, nextVersion: 9 } },
    sandboxes: [writing("one", { operation }), writing("two")],
  });
  parts.change((world) => ({ ...world, status: { ...world.status, versions: [] } }));
  await parts.pass();
  const { status } = parts.world() ?? {};
  assert.deepEqual(
    status?.versions,
    history.map(({ entry }) => entry),
  );
  assert.deepEqual([status?.nextVersion, status?.holder, status?.pending], [9, holder, pending]);
});

test("a head that is older than what the registry has is moved by no rebuild", async () => {
  const parts = worldParts({ history, world: GENESIS });
  const third = history[2];
  assert.ok(third);
  parts.change((world) => ({
    ...world,
    status: { ...world.status, versions: [], head: { version: 3, digest: third.digest, image: "old" } },
  }));
  await parts.pass();
  assert.equal(parts.world()?.status.head?.version, 3);
  assert.deepEqual(
    parts.world()?.status.versions?.map(({ version }) => version),
    [0, 1, 3],
  );
});

test("work that a Runtime keeps for the World is a rescue again, so that nothing older boots over it", async () => {
  const rescue = {
    operation: "op",
    sandbox: { name: "one", uid: "one-uid" },
    host: "a",
    computeId: "aw-one-uid-1",
    reason: "SnapshotFailed",
    message: "the registry was down",
    since: at(5),
  };
  const runtime = runtimeOf({
    status: {
      rescues: [
        { ...rescue, namespace: "team", world: "lab" },
        { ...rescue, operation: "other", namespace: "team", world: "other" },
      ],
    },
  });
  const parts = worldParts({ history, world: GENESIS, runtimes: [runtime] });
  wipe(parts);
  await parts.pass();
  assert.deepEqual(parts.world()?.status.rescues, [{ ...rescue, runtime: "local" }]);
});

test("the platform of versions that do not say it is read from head's config", async () => {
  const bare = publishedVersion(0, { facts: { genesis: { image: genesis.image, digest: genesis.digest } } });
  const parts = worldParts({ history: [bare], world: GENESIS });
  wipe(parts);
  await parts.pass();
  assert.deepEqual(parts.world()?.status.genesis, genesis);
});

for (const written of [true, false]) {
  test(`an operator that dies at the rebuilding write (${written ? "after" : "before"} it) leaves a World that is rebuilt once`, async () => {
    const parts = worldParts({ history, world: GENESIS });
    await parts.pass();
    const before = lineageOf(parts.world());
    wipe(parts);
    // The first write puts the repository down, the second rebuilds.
    await assert.rejects(async () => {
      parts.worlds.interfere(
        () => undefined,
        () => parts.worlds.loseNextAnswer(written),
      );
      const end = await parts.pass();
      if (end instanceof Error) throw end;
    });
    await parts.pass();
    await parts.pass();
    assert.deepEqual(lineageOf(parts.world()), before);
  });
}

test("somebody who writes the status back in the meantime is not overwritten", async () => {
  const parts = worldParts({ history, world: GENESIS });
  const { status } = parts.world() ?? {};
  assert.ok(status);
  const better = { ...status, nextVersion: 77 };
  wipe(parts);
  parts.worlds.interfere(
    () => undefined,
    () => parts.change((world) => ({ ...world, status: better })),
  );
  await parts.pass();
  assert.equal(parts.world()?.status.nextVersion, 77);
  assert.ok(!parts.reasons().includes("LineageRecovered"));
});

test("a World that is being deleted with its content and lost its status knows again what to take along", async () => {
  const parts = worldParts({
    history,
    world: {
      ...GENESIS,
      spec: { deletionPolicy: "Delete" },
      metadata: { deletionTimestamp: at(0), finalizers: ["agentworlds.dev/world"] },
    },
  });
  wipe(parts);
  await parts.pass();
  assert.equal(parts.world(), undefined);
  assert.deepEqual([...parts.registry.tags.keys()], []);
  assert.equal(parts.registry.manifests.size, 0);
});

test("versions of another World under our tags are no lineage of ours", async () => {
  const parts = worldParts({ history: publishedHistory([0, 1], { uid: "stranger" }), world: GENESIS });
  wipe(parts);
  await parts.pass();
  assert.equal(parts.world()?.status.versions, undefined);
  assert.equal(parts.world()?.status.head, undefined);
});
