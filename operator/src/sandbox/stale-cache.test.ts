/** The cache may lag behind the API server by any time: no decision that could lose work rests on it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { versionOf } from "../runtime/test-objects.test-kit.ts";
import { putImage } from "./memory-host.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

const isReady = (parts: Parts) => () => isTrue(parts.sandbox()?.status.conditions, "Ready");

test("a session boots from the version that another one published before the hold, not from the head of the cache", async () => {
  const parts = await memoryParts({});
  parts.showCached({ world: parts.world() });
  const newer = versionOf(1, { digest: await putImage(parts.registry, ["base", "theirs"], "v1") });
  parts.changeWorld((world) => ({
    ...world,
    status: {
      ...world.status,
      head: { version: 1, digest: newer.digest, image: `lab@${newer.digest}` },
      versions: [...(world.status.versions ?? []), newer],
      nextVersion: 2,
    },
  }));
  await parts.until("Ready", isReady(parts));
  assert.deepEqual(parts.sandbox()?.status.bootedFrom, { version: 1, digest: newer.digest });
  assert.deepEqual(parts.sandbox()?.status.base, { version: 1, digest: newer.digest });
});

test("a session pinned to head saves its work, although the cache still shows the head before its own snapshot", async () => {
  const parts = await memoryParts({ sandbox: { spec: { world: { name: "lab", version: 0 } } } });
  await parts.until("Ready", isReady(parts));
  const beforeSnapshot = parts.world();
  parts.work("one");
  parts.ask("Snapshot", "first");
  await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result !== undefined);
  parts.showCached({ world: beforeSnapshot });
  parts.work("two");
  parts.ask("Close", "close");
  await parts.until("Closed", () => parts.sandbox()?.status.closed !== undefined);
  const { head } = parts.world().status;
  assert.equal(head?.version, 2);
  assert.deepEqual(parts.host.worked(head.digest), ["base", "one", "two"]);
});

test("a World deleted together with its session gets the session's version, not a rescue", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  parts.work("one");
  parts.showCached({ world: parts.world() });
  const deletionTimestamp = new Date(parts.clock.now()).toISOString();
  parts.changeWorld((world) => ({ ...world, metadata: { ...world.metadata, deletionTimestamp } }));
  parts.change((sandbox) => ({ ...sandbox, metadata: { ...sandbox.metadata, deletionTimestamp } }));
  await parts.until("ended", () => parts.host.containers.size === 0);
  const [genesis, version] = parts.world().status.versions ?? [];
  assert.equal(genesis?.version, 0);
  assert.deepEqual(parts.host.worked(version?.digest ?? ""), ["base", "one"]);
  assert.equal(version?.recovered, undefined);
  assert.deepEqual(parts.world().status.rescues ?? [], []);
});

test("a World that the cache does not show, though it is there, ends no session", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  parts.work("one");
  parts.showCached({ world: undefined });
  await parts.pass();
  assert.equal(parts.sandbox()?.status.operation, undefined);
  assert.equal(parts.sandbox()?.status.compute?.boot, 1);
});

test("a close that discards overrules a hibernation that keeps failing", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  parts.work("one");
  const genesis = parts.sandbox()?.status.bootedFrom?.digest ?? "";
  parts.registry.failing.set(genesis, "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, closePolicy: "Discard" } }));
  parts.ask("Close", "drop-it");
  parts.registry.failing.clear();
  await parts.until("Closed", () => parts.sandbox()?.status.closed !== undefined);
  assert.equal(parts.world().status.head?.version, 0);
  assert.deepEqual([...parts.host.containers.keys()], []);
});

test("the ttl that a waking touch asks for is the ttl of that boot", async () => {
  const parts = await memoryParts({ sandbox: { spec: { ttlSeconds: 60 } } });
  await parts.until("Ready", isReady(parts));
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  parts.change((sandbox) => ({
    ...sandbox,
    status: {
      ...sandbox.status,
      requests: [
        {
          id: "wake",
          verb: "Touch",
          user: "ada",
          at: new Date(parts.clock.now()).toISOString(),
          parameters: { ttlSeconds: 1_200 },
        },
      ],
    },
  }));
  await parts.until("Ready again", () => parts.sandbox()?.status.boot === 2 && isReady(parts)());
  const { expiresAt = "", lastActivityAt = "" } = parts.sandbox()?.status ?? {};
  assert.equal(Date.parse(expiresAt) - Date.parse(lastActivityAt), 1_200_000);
});

/** The cache shows the Sandbox as it was in its first boot, while its second one runs. */
async function secondBootBehind(first: (parts: Parts) => Promise<void>): Promise<Parts> {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  parts.work("one");
  await first(parts);
  const stale = parts.sandbox();
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  parts.ask("Touch", "wake");
  await parts.until("Ready again", () => parts.sandbox()?.status.boot === 2 && isReady(parts)());
  parts.work("two");
  parts.showCachedSandbox(stale);
  await parts.pass();
  parts.showCachedSandbox();
  return parts;
}

const behind: Record<string, (parts: Parts) => Promise<void>> = {
  "runs in its first boot, whose container is gone": async () => undefined,
  "ends its first boot": async (parts) => {
    parts.effects.killAfter("remove");
    await parts.until("killed", () => parts.wasKilled());
  },
};
for (const [name, first] of Object.entries(behind)) {
  test(`a cache in which the session still ${name} ends neither the hold nor the record of its second`, async () => {
    const parts = await secondBootBehind(first);
    assert.equal(parts.sandbox()?.status.compute?.boot, 2);
    assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
    parts.ask("Close", "end");
    await parts.until("Closed", () => parts.sandbox()?.status.closed !== undefined);
    assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one", "two"]);
  });
}

test("a boot never takes the name of a container that a rescue keeps", async () => {
  const parts = await memoryParts({});
  const rescue = {
    operation: "end-1",
    namespace: "team",
    sandbox: { name: "one", uid: "sandbox-uid" },
    host: "a",
    computeId: "aw-sandbox-uid-3",
    reason: "NothingToSave",
    message: "",
    since: new Date(parts.clock.now()).toISOString(),
  };
  parts.changeRuntime((runtime) => ({ ...runtime, status: { ...runtime.status, rescues: [rescue] } }));
  await parts.until("Ready", isReady(parts));
  assert.equal(parts.sandbox()?.status.compute?.id, "aw-sandbox-uid-4");
  assert.equal(parts.sandbox()?.status.boot, 4);
});
