import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { foundOf, headOf, type PublishedVersion, publishedVersion } from "./published-history.test-kit.ts";
import { type FoundReference, MOST_RECOVERED, rebuildLineage } from "./recovery.ts";

const REPOSITORY = "registry.example/worlds/install/team/lab-world-ui";

/** Numbers with gaps, each version deriving from the one before it; texts, causes and recoveries of any kind. */
const histories = fc
  .array(
    fc.record({
      step: fc.integer({ min: 1, max: 3 }),
      description: fc.string({ maxLength: 200 }),
      user: fc.string({ maxLength: 60 }),
      agent: fc.option(fc.string({ minLength: 1, maxLength: 60 }), { nil: undefined }),
      hook: fc.constantFrom(undefined, "Succeeded" as const, "Failed" as const),
      recovered: fc.constantFrom(undefined, { reason: "Rescued" }, { reason: "ContainerExited", exitCode: -1 }),
      reason: fc.constantFrom("Deadline", "Close", "Crash", "AReasonOfALaterRelease"),
    }),
    { minLength: 1, maxLength: 40 },
  )
  .map((steps) => {
    const history: PublishedVersion[] = [publishedVersion(0)];
    for (const { step, description, user, agent, recovered, hook, reason } of steps) {
      const parent = history.at(-1);
      history.push(
        publishedVersion((parent?.number ?? 0) + step, {
          parent: parent?.digest,
          facts: {
            description,
            reason,
            causedBy: { user, ...(agent === undefined ? {} : { agent }) },
            ...(recovered === undefined ? {} : { recovered }),
            ...(hook === undefined ? {} : { hook }),
          },
        }),
      );
    }
    return history;
  });

/** What else lies in a repository: images without annotations, versions of other Worlds, indexes. */
const clutter = fc.array(
  fc.constantFrom("image", "stranger", "index").chain((kind) =>
    fc.integer({ min: 0, max: 500 }).map((number): FoundReference => {
      const base = { reference: `v${number}`, number };
      if (kind === "index") return { ...base, kind: "other" };
      const stranger = publishedVersion(number, { uid: "stranger" });
      const manifest = kind === "image" ? { ...stranger.manifest, annotations: {} } : stranger.manifest;
      return { ...base, kind: "image", digest: stranger.digest, manifest };
    }),
  ),
  { maxLength: 5 },
);

const shuffled = <T>(items: readonly T[]) => fc.shuffledSubarray([...items], { minLength: items.length });

test("rebuild(publish(history)) = history, in whatever order the registry answers and whatever else lies there", () => {
  const scenes = histories.chain((history) =>
    clutter.chain((others) => shuffled([...history.map(foundOf), ...others]).map((found) => ({ history, found }))),
  );
  fc.assert(
    fc.property(scenes, ({ history, found }) => {
      const verdict = rebuildLineage({ found, repository: REPOSITORY, isOurs: (uid) => uid === "world-uid" });
      assert.equal(verdict.kind, "lineage");
      if (verdict.kind !== "lineage") return;
      const newest = history.at(-1);
      assert.ok(newest);
      assert.deepEqual(
        verdict.lineage.versions,
        history.slice(-MOST_RECOVERED).map(({ entry }) => entry),
      );
      assert.deepEqual(verdict.lineage.head, headOf(REPOSITORY, newest));
      assert.equal(verdict.lineage.nextVersion, newest.number + 1);
    }),
  );
});

test("whatever retention removed before head, head is the newest version and what is left is unchanged", () => {
  const scenes = histories.chain((history) => {
    const newest = history.at(-1);
    return fc.subarray(history.slice(0, -1)).map((kept) => ({ kept: newest ? [...kept, newest] : kept, newest }));
  });
  fc.assert(
    fc.property(scenes, ({ kept, newest }) => {
      const found = kept.map(foundOf);
      const verdict = rebuildLineage({ found, repository: REPOSITORY, isOurs: () => true });
      const isContiguous = kept.every(({ number, entry }, index) => {
        const before = kept[index - 1];
        return !before || before.number + 1 !== number || entry.parent === before.digest;
      });
      assert.ok(isContiguous);
      assert.equal(verdict.kind, "lineage");
      if (verdict.kind !== "lineage") return;
      assert.equal(verdict.lineage.head.digest, newest?.digest);
      assert.deepEqual(
        verdict.lineage.versions,
        kept.map(({ entry }) => entry),
      );
    }),
  );
});

test("a newest version that cannot be read is never replaced by an older one", () => {
  fc.assert(
    fc.property(histories, (history) => {
      const found = history.map(foundOf);
      const newest = history.at(-1);
      assert.ok(newest);
      const lost: FoundReference = {
        kind: "lost",
        reference: `v${newest.number}`,
        number: newest.number,
        because: "gone",
      };
      const verdict = rebuildLineage({
        found: [...found.slice(0, -1), lost],
        repository: REPOSITORY,
        isOurs: () => true,
      });
      assert.equal(verdict.kind, "broken");
    }),
  );
});

test("two versions after the same parent are never both followed", () => {
  const scenes = histories.chain((history) => fc.nat({ max: history.length - 1 }).map((fork) => ({ history, fork })));
  fc.assert(
    fc.property(scenes, ({ history, fork }) => {
      const parent = history[fork];
      const newest = history.at(-1);
      if (!parent || !newest || parent === newest) return;
      const other = publishedVersion(newest.number + 1, { parent: parent.digest, operation: "fork" });
      const verdict = rebuildLineage({
        found: [...history, other].map(foundOf),
        repository: REPOSITORY,
        isOurs: () => true,
      });
      assert.equal(verdict.kind, "broken");
    }),
  );
});
