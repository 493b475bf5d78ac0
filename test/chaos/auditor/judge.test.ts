/** Every rule of the audit, by made-up histories: what is clean passes, and each defect is told by its name. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Files, LedgerEntry, LedgerFact } from "../ledger.ts";
import { type Evidence, type FindingKind, judgeLedger } from "./judge.ts";
import type { Version } from "./versions.ts";

const REPOSITORY = "worlds/i/ns/w1-00000000";
const one = { sandbox: "uid-1", boot: 1 } as const;
const two = { sandbox: "uid-2", boot: 1 } as const;
const written = (boot: typeof one | typeof two, path: string): LedgerFact => ({
  kind: "written",
  world: "w1",
  ...boot,
  path,
  sha256: `sum of ${path}`,
});
const holds = (...paths: string[]): Files => Object.fromEntries(paths.map((path) => [path, `sum of ${path}`]));

/** Two sessions: the first writes a and asks for a snapshot, writes b and ends; the second finds both. */
const CLEAN: readonly LedgerFact[] = [
  { kind: "world", world: "w1", uid: "w", keepVersions: 0 },
  { kind: "repository", world: "w1", repository: REPOSITORY },
  { kind: "version", world: "w1", version: 0, digest: "d0" },
  { kind: "wanted", world: "w1", ...one, since: 4 },
  { kind: "booted", world: "w1", ...one, digest: "d0", files: {} },
  written(one, "a"),
  { kind: "snapshotAsked", ...one, request: "r1" },
  { kind: "version", world: "w1", version: 1, digest: "d1", request: "r1" },
  written(one, "b"),
  { kind: "version", world: "w1", version: 2, digest: "d2" },
  { kind: "ended", ...one, outcome: "Published" },
  { kind: "wanted", world: "w1", ...two, since: 12 },
  { kind: "booted", world: "w1", ...two, digest: "d2", files: holds("a", "b") },
  { kind: "ended", ...two, outcome: "Published" },
];

const whole = (...paths: string[]): Version => ({ kind: "whole", files: holds(...paths) });
const VERSIONS: Readonly<Record<string, Version>> = { d0: whole(), d1: whole("a"), d2: whole("a", "b") };

function judge(
  facts: readonly LedgerFact[],
  changed: {
    versions?: Record<string, Version>;
    tags?: Record<string, string[]>;
    indexed?: string[];
    kept?: string[];
  } = {},
): FindingKind[] {
  const evidence: Evidence = {
    versions: new Map(
      Object.entries({ ...VERSIONS, ...changed.versions }).map(([digest, version]) => [
        `${REPOSITORY}@${digest}`,
        version,
      ]),
    ),
    tags: new Map(Object.entries(changed.tags ?? { [`${REPOSITORY}:v2`]: ["d2"] })),
    indexed: new Set(changed.indexed ?? [REPOSITORY]),
    kept: new Set(changed.kept ?? []),
  };
  const entries = facts.map((fact, at): LedgerEntry => ({ ...fact, at }));
  return judgeLedger(entries, evidence).map(({ kind }) => kind);
}

const without = (isIt: (fact: LedgerFact) => boolean): LedgerFact[] => CLEAN.filter((fact) => !isIt(fact));
const instead = (isIt: (fact: LedgerFact) => boolean, fact: LedgerFact): LedgerFact[] =>
  CLEAN.map((known) => (isIt(known) ? fact : known));
const isBoot = (boot: { sandbox: string }) => (fact: LedgerFact) =>
  fact.kind === "booted" && fact.sandbox === boot.sandbox;

const unpublished = without(
  (fact) => (fact.kind === "version" && fact.version === 2) || ("sandbox" in fact && fact.sandbox === two.sandbox),
);

test("a clean history passes", () => assert.deepEqual(judge(CLEAN), []));

test("an acknowledged version that cannot be read is lost; one that retention may take is not", () => {
  const broken: Version = { kind: "broken", why: "404" };
  assert.deepEqual(judge(CLEAN, { versions: { d1: broken } }), ["lost"]);
  const keeping = (keepVersions: number) =>
    instead((fact) => fact.kind === "world", { kind: "world", world: "w1", uid: "w", keepVersions });
  assert.deepEqual(judge(keeping(1), { versions: { d1: broken } }), []);
  assert.deepEqual(judge(keeping(2), { versions: { d1: broken } }), ["lost"]);
});

test("a World that goes with its versions is judged by what it held before, as any other", () => {
  const released: LedgerFact = { kind: "released", world: "w1" };
  assert.deepEqual(judge([...CLEAN, released]), []);
  assert.deepEqual(judge([...CLEAN, released], { versions: { d1: { kind: "broken", why: "404" } } }), ["lost"]);
  assert.deepEqual(judge([...unpublished, released]), ["lostWithoutCondition"]);
});

test("a version that was acknowledged after the release went with its World", () => {
  const late: LedgerFact = { kind: "version", world: "w1", version: 3, digest: "d3" };
  const versions: Record<string, Version> = { d3: { kind: "broken", why: "was not looked at" } };
  assert.deepEqual(judge([...CLEAN, late, { kind: "released", world: "w1" }], { versions }), [
    "lost",
    "lostWithoutCondition",
  ]);
  assert.deepEqual(judge([...CLEAN, { kind: "released", world: "w1" }, late], { versions }), []);
});

test("a version that lacks what an earlier one held is a loss", () => {
  const unseen = instead(isBoot(two), { kind: "booted", world: "w1", ...two, digest: "d2" });
  assert.deepEqual(judge(unseen, { versions: { d2: whole("b") } }), ["lost", "lostWithoutCondition"]);
});

test("a file with other bytes is as good as none", () => {
  const other: Version = { kind: "whole", files: { ...holds("b"), a: "sum of something else" } };
  assert.ok(judge(CLEAN, { versions: { d2: other } }).includes("lost"));
});

test("the answer to a snapshot without the work before it is a loss", () => {
  assert.deepEqual(judge(CLEAN, { versions: { d1: whole() } }), ["lost"]);
});

test("work in no version is lost without a condition; a condition, a wish to discard or a running container explains it", () => {
  assert.deepEqual(judge(unpublished), ["lostWithoutCondition"]);
  const said = { kind: "confessed", ...one, condition: "ComputeLost", reason: "ContainerGone" } as const;
  assert.deepEqual(judge([...unpublished, said]), []);
  assert.deepEqual(judge([...unpublished, { kind: "discarded", ...one }]), []);
  const running = unpublished.filter((fact) => fact.kind !== "ended");
  assert.deepEqual(judge(running, { kept: ["aw-uid-1-1"] }), []);
  assert.deepEqual(judge(running), ["lostWithoutCondition"]);
  assert.deepEqual(judge(unpublished, { kept: ["aw-uid-1-1"] }), ["lostWithoutCondition"]);
});

test("a condition of another boot explains nothing", () => {
  const said = { kind: "confessed", ...two, condition: "ComputeLost", reason: "ContainerGone" } as const;
  assert.deepEqual(judge([...unpublished, said]), ["lostWithoutCondition"]);
});

test("work that is said to be kept must be there", () => {
  const kept = {
    kind: "confessed",
    ...one,
    condition: "Rescued",
    reason: "SnapshotFailed",
    kept: "capture:x",
  } as const;
  assert.deepEqual(judge([...unpublished, kept], { kept: ["capture:x"] }), []);
  assert.deepEqual(judge([...unpublished, kept]), ["lost"]);
});

test("an older boot is told by the container's image, and by what its first look did not find", () => {
  const older = instead(isBoot(two), { kind: "booted", world: "w1", ...two, digest: "d1", files: holds("a") });
  assert.deepEqual(judge(older), ["silentOlderBoots"]);
  const emptied = instead(isBoot(two), { kind: "booted", world: "w1", ...two, digest: "d2", files: holds("a") });
  assert.deepEqual(judge(emptied), ["silentOlderBoots"]);
  const stranger = instead(isBoot(two), { kind: "booted", world: "w1", ...two, digest: "unknown" });
  assert.deepEqual(judge(stranger, { versions: { unknown: whole() } }), ["silentOlderBoots"]);
});

test("a version acknowledged after the boot was asked for need not be in it", () => {
  const early = instead((fact) => fact.kind === "wanted" && fact.sandbox === two.sandbox, {
    kind: "wanted",
    world: "w1",
    ...two,
    since: 8,
  });
  const older = early.map((fact) =>
    isBoot(two)(fact) ? ({ kind: "booted", world: "w1", ...two, digest: "d1", files: holds("a") } as const) : fact,
  );
  assert.deepEqual(judge(older), []);
});

test("a World with versions that is not in the index of lineages is a loss, unless it went with them or has none", () => {
  assert.deepEqual(judge(CLEAN, { indexed: [] }), ["lost"]);
  assert.deepEqual(judge([...CLEAN, { kind: "released", world: "w1" }], { indexed: [] }), []);
  assert.deepEqual(judge(CLEAN.slice(0, 2), { indexed: [] }), []);
});

test("an entry of the index that has named two digests was overwritten; another World's entry is its own", () => {
  assert.deepEqual(judge(CLEAN, { tags: { "worlds/i/ns/w1/lineages:00000000": ["e", "x"] } }), ["overwrittenTags"]);
  assert.deepEqual(judge(CLEAN, { tags: { "worlds/i/ns/w1/lineages:11111111": ["e", "x"] } }), []);
});

test("a version's tag that has named two digests was overwritten; other tags may move", () => {
  assert.deepEqual(judge(CLEAN, { tags: { [`${REPOSITORY}:v1`]: ["d1", "x"] } }), ["overwrittenTags"]);
  assert.deepEqual(judge(CLEAN, { tags: { [`${REPOSITORY}:v1`]: ["x"] } }), ["overwrittenTags"]);
  assert.deepEqual(judge(CLEAN, { tags: { [`${REPOSITORY}:latest`]: ["d1", "d2"] } }), []);
});
