/**
 * A running session is lost while a snapshot of it is under way, or a moment after. The session worked on after the capture: the
 * rescue is of the container, and what was captured before counts only where the container is gone.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { isReady } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";
import {
  assertNothingLeft,
  assertPublishedOnce,
  isKept,
  type Parts,
  regainRegistry,
  rescueIn,
} from "./rescues.test-kit.ts";

const LONG = { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } } as const;

type Options = Omit<Parameters<typeof memoryParts>[0], "withWorld" | "sandbox">;

async function working(options: Options = {}): Promise<Parts> {
  const parts = await memoryParts({ ...options, sandbox: LONG, withWorld: true });
  parts.changeRuntime((runtime) => ({ ...runtime, spec: { ...runtime.spec, hostLossSeconds: 600 } }));
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  return parts;
}

/** A snapshot was uploaded and could not be published; the session works on, and its host falls silent. */
async function lostAfterUpload(options: Options = {}): Promise<Parts> {
  const parts = await working(options);
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  parts.ask("Snapshot", "save");
  await parts.until("failed", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  regainRegistry(parts);
  parts.work("two");
  parts.silenceHost();
  await parts.until("rescued", () => isKept(parts) && parts.sandbox()?.status.compute === undefined);
  return parts;
}

const wasEnded = (parts: Parts) => parts.sandbox()?.status.compute === undefined;
const answerTo = (parts: Parts, id: string) =>
  parts.sandbox()?.status.requests?.find((request) => request.id === id)?.result;

/** The snapshot is a version, nobody has said so yet, and the session has worked on. */
async function committedUnsaid(then: (parts: Parts) => void): Promise<Parts> {
  const parts = await working();
  parts.effects.killAfter("tag v1");
  parts.effects.beforeNext("tag v1", () => {
    parts.work("two");
    then(parts);
  });
  parts.ask("Snapshot", "save");
  await parts.until("killed", () => parts.wasKilled());
  return parts;
}

test("its snapshot is committed when its host falls silent: the work since is a rescue, based on the snapshot", async () => {
  const parts = await committedUnsaid(({ silenceHost }) => silenceHost());
  await parts.until("ended", () => wasEnded(parts));
  const { lastEnding, conditions, base } = parts.sandbox()?.status ?? {};
  assert.equal(lastEnding?.outcome, "Rescued");
  assert.ok(isTrue(conditions, "ComputeLost") || isTrue(conditions, "SnapshotFailed"), "a condition says so");
  assert.equal(base?.version, 1);
  assert.equal(rescueIn(parts).base, parts.world().status.head?.digest);
  assert.deepEqual([answerTo(parts, "save")?.outcome, answerTo(parts, "save")?.version], ["Succeeded", 1]);
  parts.silenceHost(false);
  await parts.until("published", () => !isKept(parts));
  assertPublishedOnce(parts, ["one", "two"]);
  assertNothingLeft(parts);
});

test("its snapshot is committed, and its deletion is forced: the work since is a rescue, and becomes a version", async () => {
  const parts = await committedUnsaid(() => undefined);
  parts.delete();
  parts.clock.jump(1_300_000); // the operator was down for twenty minutes
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.ok(parts.events.some(({ reason }) => reason === "Rescued"));
  await parts.until("published", () => !isKept(parts));
  assertPublishedOnce(parts, ["one", "two"]);
  assertNothingLeft(parts);
});

for (const container of ["runs on", "ended with its host"] as const) {
  test(`its snapshot is uploaded and no version; its host comes back, and the container ${container}: all of its work is published`, async () => {
    const parts = await lostAfterUpload();
    assert.equal(answerTo(parts, "save")?.outcome, "Failed");
    for (let passes = 0; passes < 5; passes++) parts.clock.jump(Math.min(await parts.pass(), 60_000));
    assert.equal(parts.world().status.head?.version, 0, "nothing older is published behind the container's back");
    assert.equal(parts.world().status.pending, undefined, "nor is a number kept for it");
    for (const one of parts.host.containers.values()) if (container !== "runs on") one.state = "Exited";
    parts.silenceHost(false);
    await parts.until("published", () => !isKept(parts));
    assertPublishedOnce(parts, ["one", "two"]);
    assertNothingLeft(parts);
    const tags = [...parts.registry.tags.keys()].filter((tag) => tag.startsWith("capture-"));
    assert.deepEqual(tags, []);
  });
}

test("it is deleted while its snapshot uploads for longer than a deletion may take: all of its work is published", async () => {
  const parts = await working();
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  parts.effects.beforeNext("push", () => {
    parts.work("two");
    parts.delete();
    parts.clock.jump(700_000);
  });
  parts.ask("Snapshot", "save");
  await parts.until("gone", () => parts.sandbox() === undefined);
  regainRegistry(parts);
  await parts.until("published", () => !isKept(parts));
  assertPublishedOnce(parts, ["one", "two"]);
  assertNothingLeft(parts);
});

test("its host comes back without the container: what the snapshot had captured becomes a version, and the loss is told", async () => {
  const parts = await lostAfterUpload();
  const { operation, snapshot } = rescueIn(parts);
  parts.host.containers.clear();
  parts.host.commits.clear();
  parts.silenceHost(false);
  await parts.until("given up", () => !isKept(parts));
  assertPublishedOnce(parts, ["one"]);
  assertNothingLeft(parts);
  const [version] = parts.world().status.versions?.slice(-1) ?? [];
  assert.deepEqual([version?.reason, version?.operation], ["Snapshot", snapshot?.operation]);
  const [lost] = parts.world().status.lostWork ?? [];
  assert.deepEqual([lost?.operation, lost?.cause], [operation, "ContainerGone"]);
  assert.match(lost?.message ?? "", /what a snapshot had captured before is v\d/);
  assert.ok(isTrue(parts.world().status.conditions, "WorkLost"));
});

test("its host never comes back: at the end of its time what the snapshot had captured becomes a version, and the loss is told", async () => {
  const parts = await lostAfterUpload();
  const { operation } = rescueIn(parts);
  await parts.until("tried", () => (rescueIn(parts).attempts ?? 0) > 2);
  parts.clock.jump(86_400_000);
  await parts.until("given up", () => !isKept(parts));
  assertPublishedOnce(parts, ["one"]);
  assert.deepEqual(
    parts.world().status.lostWork?.map((lost) => [lost.operation, lost.cause]),
    [[operation, "Expired"]],
  );
});

for (const container of ["found", "gone"] as const) {
  test(`whenever the operator is killed from the rescue on, its container ${container}: nothing is lost silently, nothing is left`, async () => {
    const expected = container === "found" ? ["one", "two"] : ["one"];
    const live = async (parts: Parts) => {
      if (container === "gone") parts.host.containers.clear();
      parts.silenceHost(false);
      await parts.until("over", () => !isKept(parts) && wasEnded(parts));
      for (let passes = 0; passes < 3; passes++) await parts.pass();
    };
    const whole = await lostAfterUpload();
    const from = whole.effects.seen.lastIndexOf("patch Runtime status");
    await live(whole);
    assert.ok(from > 0);
    for (const [index, effect] of [...whole.effects.seen.entries()].slice(from)) {
      for (const when of ["before", "after"] as const) {
        try {
          const parts = await lostAfterUpload({ kill: { index, when } });
          await live(parts);
          assertPublishedOnce(parts, expected);
          assertNothingLeft(parts);
          assert.equal((parts.world().status.lostWork ?? []).length, container === "gone" ? 1 : 0);
        } catch (error) {
          throw new Error(`killed ${when} effect ${index}, ${effect}`, { cause: error });
        }
      }
    }
  });
}
