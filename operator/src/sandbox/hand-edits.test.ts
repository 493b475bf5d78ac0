/**
 * Single fields of status that somebody who may write it has altered in the middle of a session. Work is decided about from what
 * cannot be altered so, and where that leaves a doubt it is published.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxCompute, SandboxOperation, SandboxStatus } from "@agentworlds/crds";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

const isReady = (parts: Parts) => isTrue(parts.sandbox()?.status.conditions, "Ready");
const isHibernated = (parts: Parts) => isTrue(parts.sandbox()?.status.conditions, "Hibernated");
const workIn = (parts: Parts) => parts.host.worked(parts.world().status.head?.digest ?? "");

async function working(options: Parameters<typeof memoryParts>[0] = {}): Promise<Parts> {
  const parts = await memoryParts(options);
  await parts.until("Ready", () => isReady(parts));
  parts.work("one");
  return parts;
}

const edit = (parts: Parts, change: (status: SandboxStatus) => Partial<SandboxStatus>): void =>
  parts.change((sandbox) => ({ ...sandbox, status: { ...sandbox.status, ...change(sandbox.status) } }));

const without = (compute: SandboxCompute | undefined, field: "provisionedAt"): SandboxCompute => {
  assert.ok(compute);
  const { [field]: _, ...rest } = compute;
  return rest;
};

for (const state of ["Running", "Exited"] as const) {
  test(`compute.provisionedAt is removed from a session that ran, ${state}: its work is saved`, async () => {
    for (const end of ["mode", "close", "delete"] as const) {
      const parts = await working();
      for (const container of parts.host.containers.values()) container.state = state;
      edit(parts, ({ compute }) => ({ compute: without(compute, "provisionedAt") }));
      if (end === "mode") parts.change((one) => ({ ...one, spec: { ...one.spec, mode: "Hibernated" } }));
      if (end === "close") parts.ask("Close", "end");
      if (end === "delete") parts.delete();
      await parts.until("saved", () => parts.host.containers.size === 0 && parts.world().status.holder === undefined);
      assert.deepEqual(workIn(parts), ["base", "one"], end);
    }
  });
}

test('compute.saves is set to "Nothing" by hand: a session at head saves its work', async () => {
  for (const pinned of [false, true]) {
    const spec = pinned ? { world: { name: "lab", version: 0 }, closePolicy: "Snapshot" as const } : {};
    const parts = await working({ sandbox: { spec } });
    edit(parts, ({ compute }) => (compute ? { compute: { ...compute, saves: "Nothing" } } : {}));
    parts.ask("Close", "end");
    await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
    assert.deepEqual(workIn(parts), ["base", "one"], `pinned: ${pinned}`);
  }
});

test("a session that was pinned below head saves nothing, as before", async () => {
  const parts = await working();
  parts.ask("Close", "end");
  await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
  const { status } = parts.world();
  parts.sandboxes.put(
    sandboxOf({ spec: { world: { name: "lab", version: 0 }, closePolicy: "Discard", ttlSeconds: 600 }, status: {} }),
  );
  await parts.until("Ready", () => isReady(parts));
  assert.equal(parts.sandbox()?.status.compute?.saves, "Nothing");
  await parts.until("asleep", () => parts.host.containers.size === 0);
  assert.deepEqual(parts.world().status.head, status.head);
});

/** An operation that is not this ending's: it names a version that was published before. */
const forgedOperation = (of: { operation: string; version: number; digest: SandboxOperation["digest"] }) =>
  ({
    id: of.operation,
    verb: "Hibernate",
    reason: "DeadlinePassed",
    stage: "Committed",
    since: "2026-01-01T00:00:00Z",
    attempts: 0,
    version: of.version,
    ...(of.digest === undefined ? {} : { digest: of.digest }),
  }) as const satisfies SandboxOperation;

test("a forged operation that is Committed names the version it was booted from: the work is captured anew", async () => {
  const parts = await working();
  await parts.until("Hibernated", () => isHibernated(parts));
  parts.ask("Touch", "wake");
  await parts.until("Ready again", () => isReady(parts) && parts.sandbox()?.status.boot === 2);
  parts.work("two");
  const older = parts.world().status.versions?.at(-1);
  assert.ok(older);
  edit(parts, () => ({ operation: forgedOperation(older) }));
  await parts.until("Hibernated", () => isHibernated(parts) && parts.host.containers.size === 0);
  assert.deepEqual(workIn(parts), ["base", "one", "two"]);
});

test("a forged operation that is Committed names a snapshot of the same boot: the work since is captured anew", async () => {
  const parts = await working();
  parts.ask("Snapshot", "save");
  await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result !== undefined);
  parts.work("two");
  const snapshot = parts.world().status.versions?.at(-1);
  assert.ok(snapshot);
  edit(parts, () => ({ operation: forgedOperation(snapshot) }));
  await parts.until("Hibernated", () => isHibernated(parts) && parts.host.containers.size === 0);
  assert.deepEqual(workIn(parts), ["base", "one", "two"]);
});

test("a forged operation and a forged version of it in the World: the registry knows no such version, and the work is captured anew", async () => {
  const parts = await working();
  const genesis = parts.genesis;
  parts.changeWorld((world) => {
    const version = { ...genesis, version: 1, operation: "forged", reason: "Deadline" };
    return { ...world, status: { ...world.status, versions: [...(world.status.versions ?? []), version] } };
  });
  edit(parts, () => ({ operation: forgedOperation({ operation: "forged", version: 1, digest: genesis.digest }) }));
  await parts.until("Hibernated", () => isHibernated(parts) && parts.host.containers.size === 0);
  assert.deepEqual(workIn(parts), ["base", "one"]);
});

test("World.status.holder is removed while a session runs: it takes the hold back, and its work is saved", async () => {
  const parts = await working();
  parts.changeWorld((world) => {
    const { holder: _, ...status } = world.status;
    return { ...world, status };
  });
  await parts.pass();
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
  await parts.until("Hibernated", () => isHibernated(parts));
  assert.deepEqual(workIn(parts), ["base", "one"]);
  assert.equal(parts.world().status.holder, undefined);
});

test("World.status.holder is removed in the middle of an ending: the ending takes it back", async () => {
  for (const effect of ["freeze", "commit", "push"]) {
    const parts = await working();
    parts.effects.beforeNext(effect, () =>
      parts.changeWorld((world) => {
        const { holder: _, ...status } = world.status;
        return { ...world, status };
      }),
    );
    await parts.until("Hibernated", () => isHibernated(parts));
    assert.deepEqual(workIn(parts), ["base", "one"], effect);
    assert.equal(parts.sandbox()?.status.lastEnding?.outcome, "Published", effect);
  }
});

test("World.status.holder names another session: the loser's ending is bounded, and named", async () => {
  const parts = await working({});
  parts.changeWorld((world) => {
    assert.ok(world.status.holder);
    return {
      ...world,
      status: { ...world.status, holder: { ...world.status.holder, sandbox: "two", uid: "two-uid" } },
    };
  });
  parts.change((one) => ({ ...one, spec: { ...one.spec, mode: "Hibernated" } }));
  await parts.until("rescued", () => parts.sandbox()?.status.lastEnding?.outcome === "Rescued");
  assert.match(
    findCondition(parts.sandbox()?.status.conditions, "SnapshotFailed")?.message ?? "",
    /held by Sandbox two/,
  );
  assert.deepEqual(parts.host.containers.get("aw-sandbox-uid-1")?.work, ["base", "one"]);
});

test("a World that names no holder is not free while another session of it has compute", async () => {
  const parts = await memoryParts({});
  const other = sandboxOf({
    metadata: { name: "two", uid: "two-uid" },
    status: {
      boot: 1,
      world: { uid: "world-uid" },
      compute: { runtime: "local", host: "a", id: "aw-two-uid-1", boot: 1, provisionedAt: "2026-01-01T00:00:00Z" },
    },
  });
  parts.showOthers([other]);
  await parts.pass();
  const admitted = findCondition(parts.sandbox()?.status.conditions, "Admitted");
  assert.equal(admitted?.reason, "WorldHeld");
  assert.match(admitted?.message ?? "", /Sandbox two/);
  assert.equal(parts.world().status.holder, undefined);
  parts.showOthers([]);
  await parts.until("Ready", () => isReady(parts));
});
