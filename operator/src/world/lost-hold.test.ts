import assert from "node:assert/strict";
import { test } from "node:test";
import { Waiting } from "../reconciler/policy.ts";
import { at, runtimeOf } from "../runtime/test-objects.test-kit.ts";
import type { ComputeOf } from "./scope.ts";
import { deleting, worldParts } from "./world-parts.test-kit.ts";

type Compute = Awaited<ReturnType<ComputeOf>>;

const holder = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };
const pending = { operation: "publish-3", version: 3, sandbox: { name: "one", uid: "sandbox-uid" }, since: at(2) };
const orphan = {
  operation: "orphan-sandbox-uid-1",
  namespace: "team",
  sandbox: { name: "one", uid: "sandbox-uid" },
  host: "a",
  computeId: "aw-sandbox-uid-1",
  reason: "Orphaned",
  message: "no Sandbox accounts for this container; it is stopped and kept",
  since: at(3),
};
const keeping = (...rescues: (typeof orphan)[]) => [runtimeOf({ status: { rescues } })];

const lost = (compute: () => Compute, more: Parameters<typeof worldParts>[0] = {}) =>
  worldParts({ world: { status: { holder, pending } }, compute: async () => compute(), ...more });

test("the hold and the reservation of a Sandbox that is gone end when no host has a container of it", async () => {
  const parts = lost(() => "none");
  await parts.pass();
  assert.equal(parts.world()?.status.holder, undefined);
  assert.equal(parts.world()?.status.pending, undefined);
  assert.ok(parts.reasons().includes("HoldEnded"));
});

test("a host that cannot be asked keeps the hold, and a condition says so until it answers", async () => {
  let compute: Compute = "unknown";
  const parts = lost(() => compute);
  assert.deepEqual(await parts.pass(), { requeueAfterMs: 30_000 });
  assert.equal(parts.world()?.status.holder?.uid, "sandbox-uid");
  assert.equal(parts.condition("HolderLost")?.reason, "HostsNotAsked");
  assert.ok(parts.reasons().includes("HostsNotAsked"));
  compute = "none";
  await parts.pass();
  assert.equal(parts.world()?.status.holder, undefined);
  assert.equal(parts.condition("HolderLost"), undefined);
});

test("a container that is left keeps the hold until its Runtime has put it aside; then the rescue holds the World", async () => {
  const parts = lost(() => "some");
  await parts.pass();
  assert.equal(parts.condition("HolderLost")?.reason, "ComputeFound");
  parts.runtimes.push(...keeping(orphan));
  await parts.pass();
  const { status } = parts.world() ?? {};
  assert.equal(status?.holder, undefined);
  assert.deepEqual(
    status?.rescues?.map(({ operation, runtime, host, computeId }) => [operation, runtime, host, computeId]),
    [["orphan-sandbox-uid-1", "local", "a", "aw-sandbox-uid-1"]],
  );
});

test("a Sandbox that the cache does not show yet is read afresh and keeps its hold; no host is asked", async () => {
  const parts = lost(() => assert.fail("a host was asked"), { sandboxes: [{}] });
  parts.showCached({ sandboxes: [] });
  await parts.pass();
  assert.equal(parts.world()?.status.holder?.uid, "sandbox-uid");
});

test("a hold in the name of another World's session ends, whatever that one does", async () => {
  const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
  for (const foreign of [
    { spec: { world: { name: "another" } } },
    { metadata: { namespace: "elsewhere" } },
    { spec: { image: "busybox:1" } },
  ]) {
    const parts = lost(() => assert.fail("a host was asked"), {
      sandboxes: [{ ...foreign, status: { boot: 1, compute } }],
    });
    await parts.pass();
    assert.equal(parts.world()?.status.holder, undefined);
    assert.ok(parts.reasons().includes("HoldEnded"));
  }
});

test("a Sandbox of the same name and another UID is a stranger: the hold ends", async () => {
  const parts = lost(() => "none", { sandboxes: [{ metadata: { uid: "recreated" } }] });
  await parts.pass();
  assert.equal(parts.world()?.status.holder, undefined);
});

test("a hold that ended in order is not told as lost, although the cache still shows it", async () => {
  const parts = lost(() => assert.fail("a host was asked"));
  const stale = parts.world();
  parts.change(({ status: { holder: _, pending: __, ...status }, ...world }) => ({ ...world, status }));
  parts.showCached(stale ? { world: stale } : {});
  await parts.pass().catch(() => undefined);
  assert.ok(!parts.reasons().includes("HoldEnded"));
});

test("a deleted World does not wait for ever for a host that may have lost its holder's container", async () => {
  const parts = lost(() => "unknown", {
    world: { metadata: deleting, status: { holder } },
    deletionDeadlineMs: 60_000,
  });
  const waited = await parts.pass();
  assert.ok(waited instanceof Waiting && waited.reason === "HostsNotAsked");
  await parts.clock.advance(60_000);
  await parts.pass();
  assert.equal(parts.world(), undefined);
});
