import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { at, versionOf } from "../runtime/test-objects.test-kit.ts";
import { MOST_VERSIONS } from "./lineage.ts";
import {
  judgeListing,
  judgeRetention,
  type ListingInput,
  MOST_AT_REST,
  MOST_PRUNED,
  NEWEST_LISTED,
  type PrunedVersion,
  type RetentionInput,
  roomForPruned,
  withPruned,
} from "./retention.ts";

const five = [0, 1, 2, 3, 4].map((number) => versionOf(number));
const given: RetentionInput = { versions: five, headVersion: 4, keepVersions: 2, pinned: [], inUse: new Set() };
const inUse = (...numbers: number[]) => new Set<string>(numbers.map((number) => versionOf(number).digest));

const cases: [name: string, change: Partial<RetentionInput>, removed: number[], skipped: [number, string][]][] = [
  ["the newest stay, the others go", {}, [0, 1, 2], []],
  ["no more versions than the limit: nothing goes", { keepVersions: 5 }, [], []],
  ["a limit of 0 removes nothing", { keepVersions: 0 }, [], []],
  ["a negative limit removes nothing", { keepVersions: -1 }, [], []],
  ["a pinned version stays, with its reason", { pinned: [0] }, [1, 2], [[0, "Pinned"]]],
  ["a pin that names no version keeps nothing else", { pinned: [99] }, [0, 1, 2], []],
  ["what a live session booted from stays", { inUse: inUse(1) }, [0, 2], [[1, "InUse"]]],
  ["head stays although it is not the newest", { headVersion: 0, keepVersions: 1 }, [1, 2, 3], [[0, "Head"]]],
  ["a pin inside the limit is no exception to report", { pinned: [4] }, [0, 1, 2], []],
  ["only head is kept at a limit of 1", { keepVersions: 1 }, [0, 1, 2, 3], []],
  ["no versions at all", { versions: [], headVersion: undefined }, [], []],
];
for (const [name, change, removed, skipped] of cases) {
  test(name, () => {
    const verdict = judgeRetention({ ...given, ...change });
    assert.deepEqual(
      verdict.remove.map(({ version }) => version),
      removed,
    );
    assert.deepEqual(
      verdict.skipped.map(({ version, reason }) => [version, reason]),
      skipped,
    );
  });
}

test("a digest that another version shares is not deleted: its manifest is that version's too", () => {
  const twins = [versionOf(0), versionOf(1), versionOf(2, { digest: versionOf(0).digest })];
  const verdict = judgeRetention({ ...given, versions: twins, headVersion: 2, keepVersions: 1 });
  assert.deepEqual(
    verdict.remove.map(({ version }) => version),
    [1],
  );
  assert.deepEqual(verdict.skipped, [{ version: 0, reason: "SameDigest" }]);
});

test("whatever is pinned and used: nothing protected goes, no kept version loses its manifest, and order stays", () => {
  const input = fc.record({
    digests: fc.array(fc.nat(6), { maxLength: 12 }),
    keepVersions: fc.integer({ min: -1, max: 14 }),
    pinned: fc.uniqueArray(fc.nat(12)),
    used: fc.uniqueArray(fc.nat(6)),
    head: fc.option(fc.nat(12), { nil: undefined }),
  });
  fc.assert(
    fc.property(input, ({ digests, keepVersions, pinned, used, head }) => {
      const versions = digests.map((twin, index) => versionOf(index, { digest: versionOf(twin).digest }));
      const inUseNow = inUse(...used);
      const verdict = judgeRetention({ versions, headVersion: head, keepVersions, pinned, inUse: inUseNow });
      assert.deepEqual(
        versions.filter((version) => !verdict.remove.includes(version)),
        verdict.keep,
      );
      assert.deepEqual(
        versions.filter((version) => verdict.remove.includes(version)),
        verdict.remove,
      );
      const kept = new Set(verdict.keep.map((version) => version.digest));
      for (const version of verdict.remove) {
        assert.ok(!kept.has(version.digest), "a kept version would lose its manifest");
        assert.ok(!pinned.includes(version.version) && !inUseNow.has(version.digest) && version.version !== head);
      }
      if (keepVersions < 1) assert.deepEqual(verdict.remove, []);
      else for (const newest of versions.slice(-keepVersions)) assert.ok(verdict.keep.includes(newest));
      if (keepVersions >= 1) {
        assert.equal(
          verdict.skipped.length,
          Math.max(0, verdict.keep.length - keepVersions),
          "each exception is named",
        );
      }
    }),
  );
});

const many = (count: number) => Array.from({ length: count }, (_, number) => versionOf(number));
const listing = (versions: ListingInput["versions"]): ListingInput => ({
  versions,
  headVersion: versions.at(-1)?.version,
  pinned: [],
  inUse: new Set(),
  tags: versions.map(({ version }) => `v${version}`),
});
const leaving = (input: ListingInput): number[] => judgeListing(input).map(({ version }) => version);

test("the newest 64 are listed, and those that are protected; the others stay in the registry alone", () => {
  const versions = many(NEWEST_LISTED + 4);
  assert.deepEqual(leaving(listing(many(NEWEST_LISTED))), []);
  assert.deepEqual(leaving(listing(versions)), [0, 1, 2, 3]);
  assert.deepEqual(leaving({ ...listing(versions), pinned: [1], inUse: inUse(2) }), [0, 3]);
});

test("a version whose tag the registry does not show stays: nothing else would lead to it", () => {
  const input = listing(many(NEWEST_LISTED + 2));
  assert.deepEqual(leaving({ ...input, tags: input.tags.filter((tag) => tag !== "v0") }), [1]);
});

test("64 pinned versions leave room for the next one: the oldest of the newest give way", () => {
  const versions = many(MOST_VERSIONS);
  const pinned = Array.from({ length: 64 }, (_, number) => number);
  const left = leaving({ ...listing(versions), pinned });
  assert.deepEqual(left, [64, 65, 66, 67, 68, 69, 70, 71]);
  assert.equal(versions.length - left.length, MOST_AT_REST);
});

test("whatever is protected: nothing protected leaves, and with room for it the list rests below what fits", () => {
  const input = fc.record({
    count: fc.integer({ min: 1, max: MOST_VERSIONS }),
    pinned: fc.uniqueArray(fc.nat(MOST_VERSIONS), { maxLength: 64 }),
    used: fc.uniqueArray(fc.nat(MOST_VERSIONS), { maxLength: 40 }),
  });
  fc.assert(
    fc.property(input, ({ count, pinned, used }) => {
      const versions = many(count);
      const left = leaving({ ...listing(versions), pinned, inUse: inUse(...used) });
      const isProtected = (number: number) => pinned.includes(number) || used.includes(number) || number === count - 1;
      assert.ok(!left.some(isProtected));
      const kept = versions.filter(({ version }) => !left.includes(version)).map(({ version }) => version);
      assert.ok(kept.length <= MOST_AT_REST || kept.every(isProtected));
      if (count <= NEWEST_LISTED) assert.deepEqual(left, []);
      // What leaves is older than whatever stays without protection.
      const oldestFree = kept.find((number) => !isProtected(number)) ?? count;
      assert.ok(left.every((number) => number < oldestFree));
    }),
  );
});

const entry = (version: number, isDeleted: boolean): PrunedVersion => ({
  version,
  digest: versionOf(version).digest,
  prunedAt: at(version),
  reason: "BeyondKeepVersions",
  ...(isDeleted ? { deletedAt: at(version + 1) } : {}),
});

test("an entry whose manifest is still to be deleted is never pushed off the list; confirmed ones make room, oldest first", () => {
  const list = fc.array(fc.boolean(), { maxLength: MOST_PRUNED });
  fc.assert(
    fc.property(list, fc.nat(80), (deleted, wish) => {
      const pruned = deleted.map((isDeleted, index) => entry(index, isDeleted));
      const leaving = Array.from({ length: Math.min(wish, roomForPruned(pruned)) }, (_, index) =>
        versionOf(100 + index),
      );
      const after = withPruned(pruned, leaving, at(9));
      assert.ok(after.length <= MOST_PRUNED);
      const numbers = new Set(after.map(({ version }) => version));
      for (const due of pruned.filter(({ deletedAt }) => deletedAt === undefined)) assert.ok(numbers.has(due.version));
      for (const { version } of leaving) assert.ok(numbers.has(version));
      const dropped = pruned.filter(({ version }) => !numbers.has(version));
      assert.equal(dropped.length, Math.max(0, pruned.length + leaving.length - MOST_PRUNED), "no more than needed");
    }),
  );
});
