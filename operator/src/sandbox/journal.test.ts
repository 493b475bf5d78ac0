/**
 * `status.operation` is the journal of a publication (DESIGN §4.1, §4.5): each stage is written before the next begins. And
 * whatever else stands in it (a stage of a newer operator, one that is not true, nothing at all in the middle of the work): the
 * session converges, and no work is lost.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxOperation } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

async function working(): Promise<Parts> {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  return parts;
}

/** The session ends by its deadline, and the operator with the first effect of this name after that. */
async function interrupted(effect: string): Promise<Parts> {
  const parts = await working();
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  parts.effects.killAfter(effect);
  await parts.until("killed", () => parts.wasKilled());
  return parts;
}

const asleep = (parts: Parts) => parts.until("Hibernated", () => isAsleep(parts.sandbox()));
const edit = (parts: Parts, change: (operation: SandboxOperation) => SandboxOperation | undefined) =>
  parts.change((sandbox) => {
    const { operation, ...status } = sandbox.status;
    const changed = operation && change(operation);
    return { ...sandbox, status: { ...status, ...(changed ? { operation: changed } : {}) } };
  });

/** What a patch of the status makes of the stage; undefined when it leaves it as it is. */
function stageIn(patch: unknown): string | undefined {
  const { status } = patch as { status: { operation?: { stage?: string } | null } };
  return status.operation === null ? "(ended)" : status.operation?.stage;
}

/** Names of effects, and between them the stage that a write of the Sandbox's status made. */
function traceOf(parts: Parts): string[] {
  const writes = parts.sandboxes.writes.filter(({ verb, outcome }) => verb === "patchStatus" && outcome === "written");
  let next = 0;
  let last: unknown;
  return parts.effects.seen.flatMap((effect) => {
    if (effect !== "patch Sandbox status") return [effect];
    const stage = stageIn(writes[next++]?.body);
    if (stage === undefined || stage === last) return [];
    last = stage;
    return [stage];
  });
}

test("each stage is written before the next begins, and compute goes last", async () => {
  const parts = await working();
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  const before = traceOf(parts).length;
  await asleep(parts);
  assert.deepEqual(traceOf(parts).slice(before), [
    "Intended",
    "sync",
    "freeze",
    "Frozen",
    "commit",
    "Captured",
    "push",
    "Uploaded",
    "patch World status", // reserved
    "put blob",
    "put manifest",
    "Manifested",
    "Verified",
    "patch World status", // committed
    "tag v1",
    "tag latest",
    "Committed",
    "forgetCommit",
    "delete manifest",
    "remove",
    "patch World status", // let go
    "(ended)",
    "patch Sandbox", // the finalizer
  ]);
});

const STAGES = ["Intended", "Frozen", "Captured", "Uploaded", "Manifested", "Verified", "Committed"] as const;
const ofNewerOperator = (stage: unknown) => stage as SandboxOperation["stage"];
const EFFECTS = [
  "forgetCommit",
  "freeze",
  "commit",
  "push",
  "patch World status",
  "put manifest",
  "tag v1",
  "delete manifest",
  "remove",
];

for (const effect of EFFECTS) {
  test(`whichever stage stands there after ${effect}, true or not, the work becomes one version`, async () => {
    for (const stage of [...STAGES, "Discarded" as const, ofNewerOperator("Squashed")]) {
      const parts = await interrupted(effect);
      edit(parts, (operation) => ({ ...operation, stage }));
      await asleep(parts);
      assertSaved(parts, ["one"]);
      assertClean(parts);
      assert.equal(parts.world().status.versions?.length, 2, `${effect}, ${stage}`);
    }
  });

  test(`the operation is removed from status after ${effect}: the work becomes a version, and nothing is left over`, async () => {
    const parts = await interrupted(effect);
    edit(parts, () => undefined);
    await parts.until("asleep", () => {
      abandonDead(parts);
      // Nothing says any more that the container was meant to go.
      const isTold = isTrue(parts.sandbox()?.status.conditions, "ComputeLost") && effect === "remove";
      return isAsleep(parts.sandbox()) || isTold;
    });
    assertSaved(parts, ["one"]);
    assert.equal(parts.sandbox()?.status.base?.digest, parts.world().status.head?.digest);
    assert.equal(parts.world().status.holder, undefined);
    assert.deepEqual([...parts.host.containers.keys()], []);
  });
}

/** What the World's controller does with a reservation of an operation that no Sandbox works on (world/dead-reservation.ts). */
function abandonDead(parts: Parts): void {
  const { pending } = parts.world().status;
  if (!pending || pending.operation === parts.sandbox()?.status.operation?.id) return;
  parts.changeWorld(({ status: { pending: _, ...status }, ...world }) => ({ ...world, status }));
}

/** Nothing says any more whether the capture was an ending's: the session may have worked on. */
const mayHaveLost = (parts: Parts): boolean => isTrue(parts.sandbox()?.status.conditions, "ComputeLost");

test("the operation is removed and the container is gone: its capture becomes a version, and what came later counts as lost", async () => {
  for (const effect of ["commit", "push", "put manifest"]) {
    const parts = await interrupted(effect);
    edit(parts, () => undefined);
    parts.host.containers.clear();
    await parts.until("told", () => {
      abandonDead(parts);
      return mayHaveLost(parts);
    });
    assertSaved(parts, ["one"]);
    assertClean(parts);
    assert.match(parts.sandbox()?.status.lastEnding?.message ?? "", /work since v\d is lost/, effect);
  }
});

test("of several captures of a container that is gone the newest is taken up", async () => {
  const parts = await interrupted("commit");
  edit(parts, () => undefined);
  parts.host.commits.set("agentworlds/capture:older", ["base"]);
  parts.host.committedAt.set("agentworlds/capture:older", -1);
  parts.host.containers.clear();
  await parts.until("told", () => mayHaveLost(parts));
  assertSaved(parts, ["one"]);
});

test("a snapshot is removed from status after its capture, and the container after more work: the version is the snapshot's, and the loss is told", async () => {
  const parts = await working();
  parts.effects.killAfter("push");
  parts.ask("Snapshot", "save");
  await parts.until("killed", () => parts.wasKilled());
  edit(parts, () => undefined);
  parts.work("two");
  parts.host.containers.clear();
  await parts.until("told", () => mayHaveLost(parts));
  assertSaved(parts, ["one"]);
  assertClean(parts);
});

test("the operation is removed after its version was committed: what comes later builds on that version", async () => {
  const parts = await working();
  parts.ask("Snapshot", "save");
  parts.effects.killAfter("tag v1");
  await parts.until("killed", () => parts.wasKilled());
  edit(parts, () => undefined);
  parts.host.containers.forEach((container) => {
    container.state = "Running";
  });
  parts.work("two");
  parts.ask("Close", "end");
  await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
  assertSaved(parts, ["one", "two"]);
  assert.equal(parts.sandbox()?.status.closed?.digest, parts.world().status.head?.digest);
});

test("container and capture are gone after the upload: what was uploaded becomes the version", async () => {
  for (const effect of ["push", "put manifest"]) {
    const parts = await interrupted(effect);
    parts.host.containers.clear();
    parts.host.commits.clear();
    await asleep(parts);
    assertSaved(parts, ["one"]);
    assertClean(parts);
  }
});

test("container and capture are gone before the upload: the loss is told, not tried for ever", async () => {
  for (const stage of ["Frozen", "Captured", "Verified", "Committed"] as const) {
    const parts = await interrupted("commit");
    edit(parts, (operation) => ({ ...operation, stage }));
    parts.host.containers.clear();
    parts.host.commits.clear();
    await parts.until("told", () => isTrue(parts.sandbox()?.status.conditions, "ComputeLost"));
    assert.equal(parts.world().status.head?.version, 0);
    assert.equal(parts.world().status.holder, undefined);
    assert.equal(parts.world().status.pending, undefined);
  }
});

test("container and capture are gone after the commit: the version stands", async () => {
  const parts = await interrupted("tag latest");
  parts.host.containers.clear();
  parts.host.commits.clear();
  parts.registry.tags.forEach((_, tag) => {
    if (tag.startsWith("capture-")) parts.registry.tags.delete(tag);
  });
  await asleep(parts);
  assertSaved(parts, ["one"]);
  assert.equal(parts.sandbox()?.status.lastEnding?.outcome, "Published");
});
