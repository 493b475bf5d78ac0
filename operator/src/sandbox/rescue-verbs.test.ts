/** What people ask of a rescue: retry, export, discard; each is answered, and may be interrupted anywhere. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorldRequestResult } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import {
  assertNothingLeft,
  assertPublishedOnce,
  isKept,
  isResolved,
  type Parts,
  regainRegistry,
  rescued,
  rescueIn,
} from "./rescues.test-kit.ts";

const answerTo = (parts: Parts, id: string): WorldRequestResult | undefined =>
  parts.world().status.requests?.find((request) => request.id === id)?.result;

async function answered(parts: Parts, id: string): Promise<WorldRequestResult> {
  await parts.until(`answered ${id}`, () => answerTo(parts, id) !== undefined);
  const result = answerTo(parts, id);
  assert.ok(result);
  return result;
}

test("a retry that somebody asks for is made at once, and says what stands in the way", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  await parts.until("tried", () => (rescueIn(parts).attempts ?? 0) > 0);
  const { attempts = 0 } = rescueIn(parts);
  parts.askWorld("RetryRescue", operation, "again");
  const failed = await answered(parts, "again");
  assert.deepEqual([failed.outcome, failed.code], ["Failed", "RetryFailed"]);
  assert.equal(rescueIn(parts).attempts, attempts + 1);
  regainRegistry(parts);
  parts.askWorld("RetryRescue", operation, "now");
  const done = await answered(parts, "now");
  assert.deepEqual([done.outcome, done.version], ["Succeeded", parts.world().status.head?.version]);
  assert.equal(done.digest, parts.world().status.head?.digest);
  assertPublishedOnce(parts, ["one"]);
  assertNothingLeft(parts);
});

test("an export is an image beside the lineage: read back, named by its operation, unknown to head", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  await parts.until("tried", () => (rescueIn(parts).attempts ?? 0) > 0);
  // Only the World's own version can be read, and nothing can be published over it.
  parts.changeWorld((world) => ({
    ...world,
    status: {
      ...world.status,
      holder: { sandbox: "x", uid: "x", causedBy: { user: "x" }, acquiredAt: "2026-01-01T00:00:00Z" },
    },
  }));
  regainRegistry(parts);
  parts.askWorld("ExportRescue", operation, "give");
  const { outcome, image, digest } = await answered(parts, "give");
  assert.equal(outcome, "Succeeded");
  assert.ok(digest && image?.endsWith(`@${digest}`));
  assert.equal(parts.registry.tags.get(`rescue-${operation}`), digest);
  assert.deepEqual(parts.host.worked(digest), ["base", "one"]);
  assert.equal(parts.world().status.head?.version, 0);
  assert.notEqual(parts.registry.tags.get("latest"), digest);
  assert.ok(isKept(parts), "the rescue stays");
});

test("an export that is asked for twice is one image", async () => {
  const parts = await rescued();
  regainRegistry(parts);
  const { operation } = rescueIn(parts);
  parts.askWorld("ExportRescue", operation, "one");
  parts.askWorld("ExportRescue", operation, "two");
  const [one, two] = [await answered(parts, "one"), await answered(parts, "two")];
  assert.equal(one.outcome, "Succeeded");
  assert.equal(one.image, two.image);
});

test("an export that the registry kept by half is made of other bytes; asked for again, it is the same image", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  await parts.until("tried", () => (rescueIn(parts).attempts ?? 0) > 0);
  const holder = { sandbox: "x", uid: "x", causedBy: { user: "x" }, acquiredAt: "2026-01-01T00:00:00Z" };
  parts.changeWorld((world) => ({ ...world, status: { ...world.status, holder } }));
  regainRegistry(parts);
  parts.registry.spoilNext = (reference) => reference.startsWith("sha256:");
  parts.askWorld("ExportRescue", operation, "one");
  const one = await answered(parts, "one");
  assert.equal(one.outcome, "Succeeded", one.message);
  assert.equal(parts.registry.tags.get(`rescue-${operation}`), one.digest);
  assert.deepEqual(parts.host.worked(one.digest ?? ""), ["base", "one"]);
  parts.askWorld("ExportRescue", operation, "two");
  const two = await answered(parts, "two");
  assert.deepEqual([two.outcome, two.image], ["Succeeded", one.image]);
});

test("an export's tag that names another image is not overwritten", async () => {
  const parts = await rescued();
  regainRegistry(parts);
  const { operation } = rescueIn(parts);
  parts.registry.tags.set(`rescue-${operation}`, parts.genesis.digest);
  parts.askWorld("ExportRescue", operation, "one");
  const one = await answered(parts, "one");
  assert.equal(one.outcome, "Failed");
  assert.match(one.message ?? "", /TagTaken|is not overwritten/);
  assert.equal(parts.registry.tags.get(`rescue-${operation}`), parts.genesis.digest);
});

test("discarded work is gone with container, capture and both records; who did it stays written", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  parts.askWorld("DiscardRescue", operation, "drop");
  assert.equal((await answered(parts, "drop")).outcome, "Succeeded");
  assertNothingLeft(parts);
  const [lost] = parts.world().status.lostWork ?? [];
  assert.deepEqual([lost?.operation, lost?.cause, lost?.discardedBy], [operation, "Discarded", "ada"]);
  const told = parts.events.find(({ reason, kind }) => reason === "RescueDiscarded" && kind === "World");
  assert.deepEqual(told?.causedBy, { user: "ada" });
  await parts.until("told", () => isResolved(parts));
  assert.equal(parts.sandbox()?.status.lastEnding?.outcome, "Discarded");
  assert.equal(isTrue(parts.world().status.conditions, "WorkLost"), false, "nobody needs to be told");
});

test("a ServiceAccount that discards work is named as the agent it counts as", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  const user = "system:serviceaccount:ci:runner";
  const request = {
    id: "drop",
    verb: "DiscardRescue",
    parameters: { operation },
    user,
    at: "2026-01-01T00:00:00Z",
  } as const;
  parts.changeWorld((world) => ({ ...world, status: { ...world.status, requests: [request] } }));
  assert.equal((await answered(parts, "drop")).outcome, "Succeeded");
  const told = parts.events.find(({ reason, kind }) => reason === "RescueDiscarded" && kind === "World");
  assert.deepEqual(told?.causedBy, { user, agent: "serviceaccount:ci:runner" });
});

test("what is on a silent host is not discarded: it could come back unseen", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  parts.silenceHost();
  parts.askWorld("DiscardRescue", operation, "drop");
  const { outcome, code } = await answered(parts, "drop");
  assert.deepEqual([outcome, code], ["Failed", "DiscardFailed"]);
  assert.ok(isKept(parts));
});

test("a name that nobody knows is refused, and nothing else is touched", async () => {
  const parts = await rescued();
  for (const verb of ["RetryRescue", "ExportRescue", "DiscardRescue"] as const) {
    parts.askWorld(verb, "another", verb);
    const { outcome, code } = await answered(parts, verb);
    assert.deepEqual([outcome, code], ["Refused", "NoSuchRescue"]);
  }
  assert.ok(isKept(parts));
});

test("work that is a version by now cannot be discarded by its rescue's name", async () => {
  const parts = await rescued();
  const { operation } = rescueIn(parts);
  regainRegistry(parts);
  await parts.until("published", () => isResolved(parts));
  parts.askWorld("DiscardRescue", operation, "drop");
  const { outcome, code } = await answered(parts, "drop");
  assert.deepEqual([outcome, code], ["Refused", "Published"]);
  assertPublishedOnce(parts, ["one"]);
});

test("discarding what was lost takes note of it, and the condition goes", async () => {
  const parts = await rescued();
  const { operation, expiresAt } = rescueIn(parts);
  parts.clock.jump(Date.parse(expiresAt ?? "") - parts.clock.now());
  await parts.until("lost", () => isTrue(parts.world().status.conditions, "WorkLost"));
  parts.askWorld("DiscardRescue", operation, "seen");
  assert.equal((await answered(parts, "seen")).outcome, "Succeeded");
  await parts.pass();
  assert.equal(isTrue(parts.world().status.conditions, "WorkLost"), false);
  assert.equal(parts.world().status.lostWork?.[0]?.cause, "Expired", "the line stays");
  assert.equal(parts.world().status.lostWork?.[0]?.discardedBy, "ada");
});

const deeds = {
  RetryRescue: {
    before: regainRegistry,
    check(parts: Parts) {
      assertPublishedOnce(parts, ["one"]);
      assertNothingLeft(parts);
    },
  },
  ExportRescue: {
    before: regainRegistry,
    check(parts: Parts) {
      const { image, digest } = answerTo(parts, "ask") ?? {};
      assert.ok(digest && image);
      assert.deepEqual(parts.host.worked(digest), ["base", "one"]);
    },
  },
  DiscardRescue: {
    before: () => undefined,
    check(parts: Parts) {
      assertNothingLeft(parts);
      const causes = parts.world().status.lostWork?.map(({ cause, discardedBy }) => [cause, discardedBy]);
      assert.deepEqual(causes, [["Discarded", "ada"]]);
    },
  },
} as const;

for (const verb of ["RetryRescue", "ExportRescue", "DiscardRescue"] as const) {
  test(`an operator that is killed anywhere in ${verb} does it once and answers`, async () => {
    const live = async (kill?: { index: number; when: "before" | "after" }) => {
      const parts = await rescued(kill === undefined ? {} : { kill });
      deeds[verb].before(parts);
      const begun = parts.effects.seen.length;
      parts.askWorld(verb, rescueIn(parts).operation, "ask");
      assert.equal((await answered(parts, "ask")).outcome, "Succeeded");
      deeds[verb].check(parts);
      return { parts, begun };
    };
    const whole = await live();
    let killed = 0;
    for (const [index, effect] of [...whole.parts.effects.seen.entries()].slice(whole.begun)) {
      for (const when of ["before", "after"] as const) {
        try {
          const { parts } = await live({ index, when });
          killed += Number(parts.wasKilled());
        } catch (error) {
          throw new Error(`killed ${when} effect ${index}, ${effect}`, { cause: error });
        }
      }
    }
    assert.ok(killed > 4, `${killed} kills`);
  });
}
