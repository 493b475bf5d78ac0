/** Endings that a Runtime or its host causes: cordoned, deleted, silent for a while, gone for good. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox } from "@agentworlds/crds";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Parts, testLife } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const iso = (parts: Parts, afterSeconds = 0) => new Date(parts.clock.now() + afterSeconds * 1000).toISOString();

/** As the Runtime controller records it. */
const cordon = (parts: Parts, drainSeconds: number) =>
  parts.changeRuntime((runtime) => ({
    ...runtime,
    spec: { ...runtime.spec, scheduling: "Cordoned", drainSeconds },
    status: { ...runtime.status, cordonedAt: iso(parts) },
  }));
const uncordon = (parts: Parts) =>
  parts.changeRuntime(({ spec, status: { cordonedAt: _, ...status }, ...runtime }) => ({
    ...runtime,
    spec: { ...spec, scheduling: "Enabled" },
    status,
  }));
const conditionOf = (sandbox: Sandbox | undefined, type: string) => findCondition(sandbox?.status.conditions, type);

testLife("its Runtime is cordoned: told at once, hibernated in time, and it wakes when the cordon is lifted", {
  sandbox: { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } },
  async live(parts) {
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    cordon(parts, 300);
    const due = iso(parts, 300);
    await parts.until("told", () => isTrue(parts.sandbox()?.status.conditions, "Draining"));
    assert.equal(parts.sandbox()?.status.phase, "Draining");
    assert.equal(conditionOf(parts.sandbox(), "Draining")?.reason, "RuntimeCordoned");
    assert.match(conditionOf(parts.sandbox(), "Draining")?.message ?? "", new RegExp(due));
    assert.ok(isTrue(parts.sandbox()?.status.conditions, "Ready"), "until then it works on");
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assert.ok(iso(parts) >= due, "not before its time");
    assert.equal(parts.sandbox()?.status.lastEnding?.reason, "RuntimeCordoned");
    assert.equal(parts.world().status.versions?.at(-1)?.reason, "Drain");
    assertSaved(parts, ["one"]);
    assertClean(parts);
    parts.ask("Touch", "wake");
    await parts.until("waits", () => conditionOf(parts.sandbox(), "Admitted")?.reason === "RuntimeCordoned");
    uncordon(parts);
    await parts.until("Ready again", () => isReady(parts.sandbox()));
  },
});

test("a cordon that is lifted in time ends nothing, and is not spoken of any more", async () => {
  const parts = await memoryParts({ sandbox: { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } } });
  await parts.until("Ready", () => isReady(parts.sandbox()));
  cordon(parts, 300);
  await parts.until("told", () => isTrue(parts.sandbox()?.status.conditions, "Draining"));
  uncordon(parts);
  const end = parts.clock.now() + 600_000;
  await parts.until("ten minutes later", () => parts.clock.now() > end);
  assert.ok(isReady(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.phase, "Running");
  assert.equal(conditionOf(parts.sandbox(), "Draining"), undefined);
});

testLife("its Runtime is deleted: hibernated at once, and nothing boots there any more", {
  sandbox: { spec: { runtime: { name: "local" }, ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } },
  async live(parts) {
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.changeRuntime((runtime) => ({
      ...runtime,
      metadata: { ...runtime.metadata, deletionTimestamp: iso(parts), finalizers: ["agentworlds.dev/runtime"] },
    }));
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assert.equal(parts.sandbox()?.status.lastEnding?.reason, "RuntimeDeleted");
    assertSaved(parts, ["one"]);
    assertClean(parts);
    parts.ask("Touch", "wake");
    await parts.until("waits", () => conditionOf(parts.sandbox(), "Admitted")?.reason === "RuntimeDeleting");
  },
});

testLife("its host is silent for a while and comes back: nothing was lost, and what was due meanwhile is done", {
  async live(parts) {
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    const since = iso(parts);
    parts.silenceHost();
    await parts.until("known", () => parts.sandbox()?.status.compute?.unreachableAt !== undefined);
    assert.ok((parts.sandbox()?.status.compute?.unreachableAt ?? "") >= since);
    const end = parts.clock.now() + 700_000;
    await parts.until("later than its deadline", () => parts.clock.now() > end);
    assert.equal(conditionOf(parts.sandbox(), "Ready")?.status, "Unknown", "nobody knows, so nobody says False");
    assert.ok((parts.sandbox()?.status.expiresAt ?? "") < iso(parts), "its deadline passed meanwhile");
    assert.equal(conditionOf(parts.sandbox(), "ComputeLost"), undefined);
    parts.silenceHost(false);
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assert.equal(parts.sandbox()?.status.lastEnding?.reason, "DeadlinePassed");
    assertSaved(parts, ["one"]);
    assertClean(parts);
  },
});

test("a host that answers again before the deadline: the session goes on, and the silence is forgotten", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.silenceHost();
  await parts.until("known", () => parts.sandbox()?.status.compute?.unreachableAt !== undefined);
  parts.silenceHost(false);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.compute?.unreachableAt, undefined);
  assert.equal(parts.sandbox()?.status.boot, 1);
});

/** A session with a version, whose host has fallen silent for good. */
async function loseHost(parts: Parts): Promise<void> {
  parts.changeRuntime((runtime) => ({ ...runtime, spec: { ...runtime.spec, hostLossSeconds: 600 } }));
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.ask("Snapshot", "save");
  await parts.until("saved", () => parts.world().status.head?.version === 1 && isReady(parts.sandbox()));
  parts.work("two");
  parts.silenceHost();
  await parts.until("given up", () => isTrue(parts.sandbox()?.status.conditions, "ComputeLost"));
}

testLife("its host is gone for good: said by name, its last version stands, and its work is written down where it is", {
  async live(parts) {
    await loseHost(parts);
    const { status } = parts.sandbox() ?? {};
    assert.equal(conditionOf(parts.sandbox(), "ComputeLost")?.reason, "HostLost");
    assert.equal(status?.lastEnding?.outcome, "Rescued");
    assert.equal(status?.phase, "Failed");
    assert.equal(conditionOf(parts.sandbox(), "Hibernated"), undefined, "nothing is pretended");
    const { head, holder, pending, rescues = [] } = parts.world().status;
    assert.equal(head?.version, 1);
    assert.equal(holder, undefined);
    assert.equal(pending, undefined);
    const [kept] = rescues;
    assert.equal(kept?.reason, "HostLost");
    assert.equal(kept?.base, head?.digest, "what the work is based on is the version that stands");
    assert.deepEqual([kept?.runtime, kept?.host, kept?.computeId], ["local", "a", "aw-sandbox-uid-1"]);
    const recorded = parts.runtimes.peek({ name: "local" })?.status.rescues ?? [];
    assert.deepEqual(
      recorded.map(({ computeId, reason }) => [computeId, reason]),
      [["aw-sandbox-uid-1", "HostLost"]],
    );
  },
});

test("after a host is gone for good nobody boots the older version silently: not even the session itself", async () => {
  const parts = await memoryParts({});
  await loseHost(parts);
  parts.silenceHost(false);
  parts.ask("Touch", "wake");
  await parts.until("refused by name", () => conditionOf(parts.sandbox(), "Admitted")?.status === "False");
  assert.match(conditionOf(parts.sandbox(), "Admitted")?.message ?? "", /aw-sandbox-uid-1/);
  assert.equal(parts.sandbox()?.status.boot, 1);
});

test("a clock that jumps an hour ahead while a host is silent for a moment declares nothing lost", async () => {
  const parts = await memoryParts({ sandbox: { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } } });
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.silenceHost();
  await parts.until("known", () => parts.sandbox()?.status.compute?.unreachableAt !== undefined);
  parts.clock.jump(3_600_000);
  await parts.pass();
  parts.clock.jump(-3_600_000);
  await parts.pass();
  parts.silenceHost(false);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.boot, 1);
});
