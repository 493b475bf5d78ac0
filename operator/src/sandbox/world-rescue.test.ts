/** Work that could not be published: from its session's end to a version, whatever is killed on the way. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { captureTag } from "../snapshot/docker-commit.ts";
import {
  assertNothingLeft,
  assertPublishedOnce,
  isKept,
  isResolved,
  regainRegistry,
  rescued,
  rescueIn,
} from "./rescues.test-kit.ts";

test("an ending that cannot be published is handed over: stopped, kept, and recorded on World and Runtime until when", async () => {
  const parts = await rescued();
  const rescue = rescueIn(parts);
  assert.equal(rescue.reason, "SnapshotFailed");
  assert.equal(rescue.versionReason, "Mode");
  assert.equal(rescue.consistency, "Frozen", "it had been captured from the frozen session");
  assert.equal(Date.parse(rescue.expiresAt ?? "") - Date.parse(rescue.since), 86_400_000);
  const [onRuntime] = parts.runtimes.peek({ name: "local" })?.status.rescues ?? [];
  assert.equal(onRuntime?.operation, rescue.operation);
  assert.equal(onRuntime?.worldUid, "world-uid");
  assert.equal(parts.host.containers.get(rescue.computeId)?.state, "Exited");
  assert.equal(parts.world().status.holder, undefined);
});

test("the Sandbox says where its work is and until when, and that it is a version when it is", async () => {
  const parts = await rescued();
  const { lastEnding, conditions } = parts.sandbox()?.status ?? {};
  assert.ok(isTrue(conditions, "SnapshotFailed"));
  assert.match(lastEnding?.message ?? "", /is kept on local\/a as .+ until 2026-.+ as rescue .+/);
  assert.ok(isTrue(parts.world().status.conditions, "SnapshotFailed"), "the World says so, too");
  regainRegistry(parts);
  await parts.until("published", () => isResolved(parts));
  await parts.pass();
  const after = parts.sandbox()?.status;
  assert.equal(after?.lastEnding?.outcome, "Published");
  assert.equal(after?.lastSnapshot?.digest, parts.world().status.head?.digest);
  assert.ok(isTrue(after?.conditions, "Hibernated"));
  assert.equal(isTrue(after?.conditions, "SnapshotFailed"), false);
  assert.equal(isTrue(parts.world().status.conditions, "SnapshotFailed"), false);
});

test("a rescue becomes the next version with the ending's reason, says that it was one, and nothing is left", async () => {
  const parts = await rescued();
  regainRegistry(parts);
  await parts.until("published", () => isResolved(parts));
  assertPublishedOnce(parts, ["one"]);
  assertNothingLeft(parts);
  const version = parts.world().status.versions?.at(-1);
  assert.equal(version?.reason, "Mode");
  assert.deepEqual(version?.recovered, { reason: "Rescued" });
  assert.deepEqual(version?.sandbox, { name: "one", uid: "sandbox-uid" });
});

test("a rescue survives its Sandbox", async () => {
  const parts = await rescued();
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.ok(isKept(parts));
  regainRegistry(parts);
  await parts.until("published", () => !isKept(parts));
  assertPublishedOnce(parts, ["one"]);
  assertNothingLeft(parts);
});

test("whenever the operator is killed, from the hand-over to the version, it is published once and nothing is left", async () => {
  const whole = await rescued();
  regainRegistry(whole);
  await whole.until("published", () => isResolved(whole));
  // What comes before the hand-over is life.test.ts's; its failing attempts are all alike.
  const handedOver = whole.effects.seen.indexOf("stop");
  assert.ok(handedOver > 0);
  for (const [index, effect] of [...whole.effects.seen.entries()].slice(handedOver - 3)) {
    for (const when of ["before", "after"] as const) {
      try {
        const parts = await rescued({ kill: { index, when } });
        regainRegistry(parts);
        await parts.until("published", () => isResolved(parts));
        await parts.pass();
        assertPublishedOnce(parts, ["one"]);
        assertNothingLeft(parts);
      } catch (error) {
        throw new Error(`killed ${when} effect ${index}, ${effect}`, { cause: error });
      }
    }
  }
});

test("attempts go on with growing pauses that a restart does not forget", async () => {
  const parts = await rescued();
  await parts.until("tried", () => (rescueIn(parts).attempts ?? 0) >= 3);
  const { attempts, retryAt, lastError } = rescueIn(parts);
  assert.equal(Date.parse(retryAt ?? "") - parts.clock.now() > 0, true);
  assert.ok((attempts ?? 0) >= 3 && lastError !== undefined);
  assert.equal(parts.world().status.pending, undefined, "a failed attempt keeps no number");
});

test("a session of the World waits for the rescue and says so by name; then it boots from the rescued work", async () => {
  const parts = await rescued();
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Running" } }));
  await parts.until("waits", () => isTrue(parts.sandbox()?.status.conditions, "Reconciling"));
  const ready = parts.sandbox()?.status.conditions?.find(({ type }) => type === "Ready");
  assert.equal(ready?.reason, "WorldHeld");
  assert.match(ready?.message ?? "", /rescuePolicy: Ignore/);
  regainRegistry(parts);
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  assert.deepEqual(parts.host.containers.get("aw-sandbox-uid-2")?.work, ["base", "one"]);
});

test("a session that is told to ignore rescues boots from head, and its versions say what they lack", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Running", rescuePolicy: "Ignore" } }));
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  assert.deepEqual(parts.sandbox()?.status.ignoredRescues, [operation]);
  parts.work("two");
  regainRegistry(parts);
  for (let passes = 0; passes < 5; passes++) await parts.pass();
  assert.equal(parts.world().status.head?.version, 0, "head is the session's to move while it works");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("saved", () => (parts.world().status.head?.version ?? 0) > 0);
  assertPublishedOnce(parts, ["two"]);
  assert.deepEqual(parts.world().status.versions?.at(-1)?.ignoredRescues, [operation]);
  const manifest = parts.registry.manifests.get(parts.world().status.head?.digest ?? "");
  const { annotations } = JSON.parse(new TextDecoder().decode(manifest));
  assert.equal(annotations["dev.agentworlds.ignored-rescues"], operation);
  assert.ok(isKept(parts), "the rescue is kept, and never published over what came after");
  for (let passes = 0; passes < 5; passes++) await parts.pass();
  assertPublishedOnce(parts, ["two"]);
});

test("somebody thawed the container of a rescue and worked in it: what was pushed before is never published instead", async () => {
  const parts = await rescued();
  const { computeId } = rescueIn(parts);
  const container = parts.host.containers.get(computeId);
  assert.ok(container);
  container.state = "Running";
  container.work.push("two");
  regainRegistry(parts);
  parts.effects.killAfter("stop");
  await parts.until("killed", () => parts.wasKilled());
  parts.silenceHost();
  for (let passes = 0; passes < 5; passes++) parts.clock.jump(Math.min(await parts.pass(), 60_000));
  assert.equal(parts.world().status.head?.version, 0);
  parts.silenceHost(false);
  await parts.until("published", () => isResolved(parts));
  assertPublishedOnce(parts, ["one", "two"]);
  assertNothingLeft(parts);
});

test("a rescue whose time is over is given up aloud: container gone, a line on the World, an Event, a condition", async () => {
  const parts = await rescued();
  const { operation, expiresAt } = rescueIn(parts);
  parts.clock.jump(Date.parse(expiresAt ?? "") - parts.clock.now());
  await parts.until("given up", () => isResolved(parts));
  const [lost] = parts.world().status.lostWork ?? [];
  assert.deepEqual([lost?.operation, lost?.cause], [operation, "Expired"]);
  assert.ok(isTrue(parts.world().status.conditions, "WorkLost"));
  const told = parts.events.filter(({ reason }) => reason === "WorkLost").map(({ kind }) => kind);
  assert.deepEqual(told, ["World", "Runtime"]);
  assert.equal(parts.sandbox()?.status.lastEnding?.outcome, "Lost");
  assertNothingLeft(parts);
});

test("an operator that was away until a rescue's time was over tries once more before it gives it up", async () => {
  const parts = await rescued();
  regainRegistry(parts);
  parts.clock.jump(90_000_000);
  await parts.until("ended", () => isResolved(parts));
  assertPublishedOnce(parts, ["one"]);
  assert.equal(parts.world().status.lostWork, undefined);
});

test("work that had reached the registry needs its host no more: it is published although that has lost it", async () => {
  const parts = await rescued();
  parts.host.containers.clear();
  parts.host.commits.clear();
  regainRegistry(parts);
  await parts.until("published", () => isResolved(parts));
  assertPublishedOnce(parts, ["one"]);
  assertNothingLeft(parts);
});

test("work whose container and capture somebody removed is lost, and that is said", async () => {
  const parts = await rescued();
  parts.host.containers.clear();
  parts.host.commits.clear();
  parts.registry.tags.delete(captureTag(rescueIn(parts).operation));
  regainRegistry(parts);
  await parts.until("told", () => isResolved(parts));
  assert.equal(parts.world().status.lostWork?.[0]?.cause, "ContainerGone");
});

test("a session that ran on behind a silent host is stopped and captured anew, with all its work", async () => {
  const parts = await rescued();
  const container = parts.host.containers.get(rescueIn(parts).computeId);
  assert.ok(container);
  container.state = "Running";
  container.work.push("two");
  regainRegistry(parts);
  await parts.until("published", () => isResolved(parts));
  assertPublishedOnce(parts, ["one", "two"]);
  assert.equal(parts.world().status.versions?.at(-1)?.consistency, "Crash");
  assertNothingLeft(parts);
});

test("a host that is silent is waited for; the work is published when it answers", async () => {
  const parts = await rescued();
  regainRegistry(parts);
  parts.registry.tags.delete(captureTag(rescueIn(parts).operation));
  parts.silenceHost();
  await parts.until("tried", () => (rescueIn(parts).attempts ?? 0) > 2);
  assert.equal(parts.world().status.lostWork, undefined);
  parts.silenceHost(false);
  await parts.until("published", () => isResolved(parts));
  assertPublishedOnce(parts, ["one"]);
  assertNothingLeft(parts);
});

test("the time of a rescue stands still while its host is silent, so that nothing is given up that is only out of reach", async () => {
  const parts = await rescued();
  const silentAt = new Date(parts.clock.now()).toISOString();
  const host = { name: "a", used: 0 } as const;
  parts.silenceHost();
  parts.changeRuntime((runtime) => ({
    ...runtime,
    status: { ...runtime.status, hosts: [{ ...host, state: "Unreachable", unreachableAt: silentAt }] },
  }));
  parts.clock.jump(3 * 86_400_000);
  await parts.pass();
  await parts.pass();
  assert.equal(parts.world().status.lostWork, undefined);
  assert.ok(isKept(parts));
  parts.silenceHost(false);
  parts.changeRuntime((runtime) => ({
    ...runtime,
    status: {
      ...runtime.status,
      hosts: [{ ...host, state: "Reachable" }],
      rescues: (runtime.status.rescues ?? []).map((rescue) => ({
        ...rescue,
        expiresAt: new Date(parts.clock.now() + 86_400_000).toISOString(),
      })),
    },
  }));
  await parts.pass();
  assert.ok(isKept(parts), "its Runtime's record outweighs the World's older copy");
  regainRegistry(parts);
  await parts.until("published", () => isResolved(parts));
  assertPublishedOnce(parts, ["one"]);
});

test("a World whose status lost its rescues gets them back from its Runtime before anybody boots an older state", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  parts.changeWorld(({ status: { rescues: _, ...status }, ...world }) => ({ ...world, status }));
  await parts.until("written down again", () => isKept(parts));
  assert.equal(rescueIn(parts).operation, operation);
});

test("a World that is deleted waits for its rescue as long as for a snapshot, then goes; its Runtime keeps the work", async () => {
  const parts = await rescued();
  await parts.pass();
  parts.deleteWorld();
  const since = parts.clock.now();
  assert.ok(parts.hasWorld(), "it waits");
  await parts.until("gone", () => !parts.hasWorld());
  const waited = parts.clock.now() - since;
  assert.ok(waited >= 600_000 && waited < 700_000, `${waited} ms`);
  assert.ok(parts.events.some(({ reason }) => reason === "RescueLeftBehind"));
  assert.equal(parts.runtimes.peek({ name: "local" })?.status.rescues?.length, 1);
});
