import assert from "node:assert/strict";
import { test } from "node:test";
import { digest } from "../runtime/test-objects.test-kit.ts";
import { annotationsOf } from "../snapshot/version-annotations.ts";
import { factsOf, foundOf, publishedVersion } from "./published-history.test-kit.ts";
import { type FoundReference, numberOfTag, type RecoveryInput, rebuildLineage } from "./recovery.ts";

const REPOSITORY = "registry.example/worlds/install/team/lab-world-ui";

const rebuilt = (found: readonly FoundReference[], more: Partial<RecoveryInput> = {}) =>
  rebuildLineage({ found, repository: REPOSITORY, isOurs: (uid) => uid === "world-uid", ...more });

const numbers = (found: readonly FoundReference[]) => {
  const verdict = rebuilt(found);
  return verdict.kind === "lineage" ? verdict.lineage.versions.map(({ version }) => version) : verdict.kind;
};

const v0 = publishedVersion(0);
const v1 = publishedVersion(1, { parent: v0.digest });
const v2 = publishedVersion(2, { parent: v1.digest });
const v4 = publishedVersion(4, { parent: v2.digest });

test("the newest version is head, the next number follows it, and the genesis is read from the annotations", () => {
  const verdict = rebuilt([v2, v0, v1].map(foundOf));
  assert.equal(verdict.kind, "lineage");
  if (verdict.kind !== "lineage") return;
  const { lineage } = verdict;
  assert.deepEqual(lineage.head, { version: 2, digest: v2.digest, image: `${REPOSITORY}@${v2.digest}` });
  assert.equal(lineage.nextVersion, 3);
  assert.deepEqual(lineage.genesis, factsOf(2).genesis);
  assert.deepEqual(lineage.headConfig, v2.manifest.config);
  assert.deepEqual(lineage.ignored, []);
  assert.deepEqual(
    lineage.versions.map(({ parent }) => parent),
    [undefined, v0.digest, v1.digest],
  );
});

test("a number that was used up leaves a gap", () =>
  assert.deepEqual(numbers([v0, v1, v2, v4].map(foundOf)), [0, 1, 2, 4]));

test("versions that retention took away leave a gap, also before a pinned one", () => {
  const v9 = publishedVersion(9, { parent: digest("8") });
  assert.deepEqual(numbers([v1, v9].map(foundOf)), [1, 9]);
  assert.deepEqual(numbers([v9].map(foundOf)), [9]);
});

test("captures, rescues and branches have other tags and are not looked at", () => {
  assert.deepEqual(["v3", "v0", "latest", "capture-7", "rescue-7", "v01", "v3-branch", "V3"].map(numberOfTag), [
    3,
    0,
    ...new Array(6).fill(undefined),
  ]);
});

test("what is no version of this World is ignored by name, whatever tag it has", () => {
  const stranger = publishedVersion(7, { uid: "stranger", parent: v2.digest });
  const image: FoundReference = {
    ...foundOf(v1),
    kind: "image",
    reference: "v8",
    number: 8,
    digest: digest("e"),
    manifest: { ...v1.manifest, annotations: {} },
  };
  const index: FoundReference = { kind: "other", reference: "v9", number: 9 };
  const verdict = rebuilt([...[v0, v1, stranger].map(foundOf), image, index]);
  assert.ok(verdict.kind === "lineage");
  assert.equal(verdict.lineage.head.version, 1);
  assert.equal(verdict.lineage.nextVersion, 2);
  assert.deepEqual(verdict.lineage.ignored, [
    { reference: "v7", because: "it is version 7 of World team/lab (stranger)" },
    { reference: "v8", because: "it is no version of a World" },
    { reference: "v9", because: "it is no image" },
  ]);
});

test("a version that is found by tag and by digest is one", () => {
  assert.deepEqual(numbers([foundOf(v0), foundOf(v1), { ...foundOf(v1), reference: v1.digest }]), [0, 1]);
});

test("a tag that was moved to another version of the lineage names no further one", () => {
  assert.deepEqual(numbers([foundOf(v0), foundOf(v1), { ...foundOf(v0), reference: "v7", number: 7 }]), [0, 1]);
});

test("an older version whose manifest is lost is told; head is not affected", () => {
  const verdict = rebuilt([foundOf(v0), { kind: "lost", reference: "v1", number: 1, because: "gone" }, foundOf(v2)]);
  assert.ok(verdict.kind === "lineage");
  assert.deepEqual(
    verdict.lineage.versions.map(({ version }) => version),
    [0, 2],
  );
  assert.deepEqual(verdict.lineage.ignored, [{ reference: "v1", because: "gone" }]);
});

test("versions that a World adopted stand before its own", () => {
  const own = publishedVersion(3, { parent: v2.digest, uid: "adopter" });
  const verdict = rebuilt([v0, v1, v2, own].map(foundOf), { isOurs: () => true });
  assert.ok(verdict.kind === "lineage");
  assert.equal(verdict.lineage.head.digest, own.digest);
});

test("where nothing is, nothing is rebuilt", () => {
  assert.deepEqual(rebuilt([]), { kind: "none" });
  assert.deepEqual(rebuilt([{ kind: "other", reference: "v0", number: 0 }]), { kind: "none" });
});

test("more than 64 versions: the newest are listed again, and older ones that are pinned", () => {
  const chain = [v0];
  for (let number = 1; number < 100; number++) {
    chain.push(publishedVersion(number, { parent: chain.at(-1)?.digest }));
  }
  const verdict = rebuilt(chain.map(foundOf), { pinned: [3, 99, 500] });
  assert.ok(verdict.kind === "lineage");
  assert.deepEqual(
    verdict.lineage.versions.map(({ version }) => version),
    [3, ...Array.from({ length: 64 }, (_, index) => index + 36)],
  );
});

test("a manifest that does not say what it added is compared with its parent; without the parent it is not known", () => {
  const bare = (version: ReturnType<typeof publishedVersion>): FoundReference => {
    const { "dev.agentworlds.size-bytes": _, ...annotations } = version.manifest.annotations;
    return {
      ...foundOf(version),
      kind: "image",
      digest: version.digest,
      manifest: { ...version.manifest, annotations },
    };
  };
  const sizes = (found: readonly FoundReference[]) => {
    const verdict = rebuilt(found);
    return verdict.kind === "lineage" ? verdict.lineage.versions.map(({ sizeBytes }) => sizeBytes) : verdict.kind;
  };
  assert.deepEqual(sizes([bare(v0), bare(v1)]), [100, 10]);
  assert.deepEqual(sizes([bare(v1)]), [undefined]);
});

const fork = publishedVersion(3, { parent: v1.digest });
const twin = publishedVersion(2, { parent: v1.digest, operation: "another" });
const broken: [name: string, found: readonly FoundReference[], named: readonly string[]][] = [
  ["two manifests claim one version", [v0, v1, v2, twin].map(foundOf), [v2.digest, twin.digest]],
  [
    "a version derives from one that is not the newest before it",
    [v0, v1, v2, fork].map(foundOf),
    [v2.digest, fork.digest],
  ],
  ["two versions have no parent", [v0, publishedVersion(1)].map(foundOf), [v0.digest, publishedVersion(1).digest]],
  [
    "consecutive versions that do not derive from each other",
    [v0, publishedVersion(1, { parent: digest("f") })].map(foundOf),
    [v0.digest, digest("f")],
  ],
  [
    "one operation made two versions",
    [v0, v1, publishedVersion(2, { parent: v1.digest, operation: v1.operation })].map(foundOf),
    [v1.digest, publishedVersion(2, { parent: v1.digest, operation: v1.operation }).digest],
  ],
  [
    "a newer version is listed and cannot be read",
    [foundOf(v0), foundOf(v1), { kind: "lost", reference: "v2", number: 2, because: "no manifest" }],
    ["v2", v1.digest],
  ],
  ["the only version cannot be read", [{ kind: "lost", reference: "v0", number: 0, because: "no manifest" }], ["v0"]],
  [
    "a version that somebody remembers is gone",
    [foundOf(v0), { kind: "lost", reference: digest("d"), number: 5, because: "no manifest" }],
    [digest("d"), v0.digest],
  ],
  [
    "a newer manifest says that it is a version and not of what",
    [
      foundOf(v0),
      {
        ...foundOf(v1),
        kind: "image",
        digest: v1.digest,
        manifest: { ...v1.manifest, annotations: { "dev.agentworlds.version": "1" } },
      },
    ],
    ["v1", v0.digest],
  ],
];
for (const [name, found, parties] of broken) {
  test(`fails closed, both sides named: ${name}`, () => {
    const verdict = rebuilt(found);
    assert.equal(verdict.kind, "broken");
    const message = verdict.kind === "broken" ? verdict.message : "";
    for (const party of parties) assert.ok(message.includes(party), `${party} in: ${message}`);
  });
}

test("fails closed: versions of two Worlds alternate", () => {
  const other = publishedVersion(3, { parent: v2.digest, uid: "adopter" });
  const again = publishedVersion(4, { parent: other.digest });
  const verdict = rebuilt([v0, v1, v2, other, again].map(foundOf), { isOurs: () => true });
  assert.equal(verdict.kind, "broken");
});

test("the annotations of a version are those that a publication writes", () => {
  assert.deepEqual(v1.manifest.annotations, annotationsOf(factsOf(1, { parent: v0.digest })));
});
