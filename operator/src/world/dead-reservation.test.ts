/** A reservation that nobody will ever commit, left over or written by hand, does not keep the World from publishing. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxOperation } from "@agentworlds/crds";
import { MEDIA_TYPES } from "../registry/contract.ts";
import { at, runtimeOf, sandboxOf, versionOf } from "../runtime/test-objects.test-kit.ts";
import { captureTag } from "../snapshot/docker-commit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

type Given = NonNullable<Parameters<typeof worldParts>[0]>;

const session = { name: "one", uid: "sandbox-uid" };
const pending = { operation: "publish-3", version: 3, sandbox: session, since: at(2) };
const rescue = {
  operation: "publish-3",
  sandbox: session,
  host: "a",
  computeId: "aw-sandbox-uid-1",
  reason: "SnapshotFailed",
  message: "",
  since: at(3),
  expiresAt: "2999-01-01T00:00:00Z",
};
const working = (id: string): NonNullable<Given["sandboxes"]> => {
  const operation: SandboxOperation = {
    id,
    verb: "Close",
    reason: "CloseRequested",
    stage: "Uploaded",
    since: at(1),
    attempts: 0,
  };
  const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
  return [{ status: { boot: 1, compute, operation } }];
};
const reserved = (more: Given = {}) =>
  worldParts({
    compute: () => assert.fail("a host was asked"),
    ...more,
    world: { ...more.world, status: { pending, nextVersion: 4, ...more.world?.status } },
  });

const dead: [name: string, given: Given][] = [
  ["its Sandbox works on another operation", { sandboxes: working("publish-4") }],
  ["its Sandbox works on none", { sandboxes: [{}] }],
  ["its Sandbox does not exist", {}],
  ["it names no Sandbox", { world: { status: { pending: { operation: "by-hand", version: 3, since: at(2) } } } }],
  [
    "a rescue of another operation is kept",
    { runtimes: [runtimeOf({ status: { rescues: [{ ...rescue, operation: "publish-2", namespace: "team" }] } })] },
  ],
  [
    "it is the genesis', and the World has one",
    { world: { status: { pending: { operation: "genesis-world-uid", version: 3, since: at(2) } } } },
  ],
];
for (const [name, given] of dead) {
  test(`a reservation is given up when ${name}; its number stays used`, async () => {
    const parts = reserved(given);
    await parts.pass();
    assert.equal(parts.world()?.status.pending, undefined);
    assert.equal(parts.world()?.status.nextVersion, 4);
    assert.ok(parts.reasons().includes("ReservationAbandoned"));
  });
}

const alive: [name: string, given: Given][] = [
  ["its Sandbox works on it", { sandboxes: working("publish-3") }],
  ["a rescue of the World is of that operation", { world: { status: { rescues: [{ ...rescue, runtime: "local" }] } } }],
  [
    "a rescue of a Runtime is of that operation",
    { sandboxes: [{}], runtimes: [runtimeOf({ status: { rescues: [{ ...rescue, namespace: "team" }] } })] },
  ],
];
for (const [name, given] of alive) {
  test(`a reservation stands, for however long, while ${name}`, async () => {
    const parts = reserved({ ...given, compute: async () => "unknown" });
    await parts.pass();
    await parts.clock.advance(365 * 86_400_000);
    await parts.pass();
    assert.equal(parts.world()?.status.pending?.operation, pending.operation);
    assert.ok(!parts.reasons().includes("ReservationAbandoned"));
  });
}

test("an operation that the cache does not show yet is read afresh", async () => {
  const parts = reserved({ sandboxes: working("publish-3") });
  parts.showCached({ sandboxes: [] });
  await parts.pass();
  assert.equal(parts.world()?.status.pending?.operation, "publish-3");
});

test("a reservation that has been committed since the cache saw it is left as it is", async () => {
  const parts = reserved();
  const stale = parts.world();
  parts.change(({ status: { pending: _, ...status }, ...world }) => ({ ...world, status }));
  parts.showCached(stale ? { world: stale } : {});
  await parts.pass().catch(() => undefined);
  assert.ok(!parts.reasons().includes("ReservationAbandoned"));
});

test("an operation that becomes a rescue while it is looked for keeps its reservation and what it had pushed", async () => {
  const parts = reserved({ sandboxes: working("publish-3") });
  const capture = await push(parts, captureTag("publish-3"), { captured: true });
  parts.showCached({ sandboxes: [] });
  const { list } = parts.sandboxes;
  parts.sandboxes.list = (options) => {
    parts.change((world) => ({ ...world, status: { ...world.status, rescues: [{ ...rescue, runtime: "local" }] } }));
    parts.sandboxes.put(sandboxOf({ status: { boot: 1 } }));
    parts.sandboxes.list = list;
    return list(options);
  };
  await parts.pass();
  assert.equal(parts.world()?.status.pending?.operation, "publish-3");
  assert.ok(parts.registry.manifests.has(capture));
});

test("what the operation had pushed goes with its reservation, and never a version", async () => {
  const parts = reserved();
  const capture = await push(parts, captureTag("publish-3"), { captured: true });
  await parts.pass();
  assert.equal(parts.registry.manifests.has(capture), false);

  const same = reserved({ world: { status: { pending: { ...pending, operation: "by-hand" } } } });
  const { digest } = same.head;
  same.registry.tags.set(captureTag("by-hand"), digest);
  await same.pass();
  assert.equal(same.registry.manifests.has(digest), true);
});

async function push(parts: ReturnType<typeof worldParts>, tag: string, content: object) {
  const bytes = new TextEncoder().encode(JSON.stringify({ mediaType: MEDIA_TYPES.ociManifest, ...content }));
  return parts.registry.client.putManifest(
    "",
    { reference: tag, mediaType: MEDIA_TYPES.ociManifest, bytes },
    new AbortController().signal,
  );
}

test("a registry that cannot be asked does not keep the World from publishing", async () => {
  const parts = reserved();
  parts.registry.failing.set(captureTag("publish-3"), "Unavailable");
  await parts.pass();
  assert.equal(parts.world()?.status.pending, undefined);
});

test("a World that has nothing reserved reads no Sandbox", async () => {
  const parts = worldParts({ sandboxes: [{}] });
  await parts.pass();
  let lists = 0;
  const { list } = parts.sandboxes;
  parts.sandboxes.list = (...call) => {
    lists++;
    return list(...call);
  };
  await parts.pass();
  assert.equal(lists, 0);
});

test("the version of a finished publication stands", async () => {
  const parts = reserved({ sandboxes: [{}] });
  const before = parts.world()?.status.versions;
  await parts.pass();
  assert.deepEqual(parts.world()?.status.versions, before);
  assert.notEqual(versionOf(3).version, parts.world()?.status.head?.version);
});
