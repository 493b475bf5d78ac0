import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { annotationsOf, readAnnotations, type VersionFacts } from "./version-annotations.ts";

const FACTS: VersionFacts = {
  operation: "op-7",
  world: { namespace: "team", name: "lab", uid: "0b6ff8a2-uid" },
  version: 7,
  parent: `sha256:${"a".repeat(64)}`,
  reason: "Deadline",
  consistency: "Frozen",
  description: "tools",
  createdBy: { user: "ada" },
  causedBy: { user: "system:serviceaccount:ci:bot", agent: "coder", conversation: "c1" },
  createdAt: "2026-01-01T00:00:07.000Z",
  genesis: { image: "busybox:1", digest: `sha256:${"b".repeat(64)}`, platform: "linux/arm64" },
  sandbox: { name: "one", uid: "sandbox-uid" },
  recovered: { reason: "OutOfMemory", exitCode: 137 },
  ignoredRescues: ["one-operation", "another"],
  hook: "Failed",
  sizeBytes: 123_456_789_012,
};

test("what a version says about itself is read back whole", () => {
  const { createdBy: _, ...recorded } = FACTS;
  assert.deepEqual(readAnnotations(annotationsOf(FACTS)), { kind: "version", facts: recorded });
});

test("a manifest of an older operator leaves out what it did not know, and nothing is invented for it", () => {
  const { sandbox: _, recovered: __, sizeBytes: ___, ignoredRescues: ____, hook: _______, ...older } = FACTS;
  const { platform: _____, ...genesis } = FACTS.genesis;
  const reading = readAnnotations(annotationsOf({ ...older, genesis }));
  const { createdBy: ______, ...recorded } = older;
  assert.deepEqual(reading, { kind: "version", facts: { ...recorded, genesis } });
});

const cases: [name: string, change: Record<string, string | undefined>, want: "version" | "unreadable"][] = [
  ["a version number that is none", { "dev.agentworlds.version": "seven" }, "unreadable"],
  ["a version number with a leading zero", { "dev.agentworlds.version": "07" }, "unreadable"],
  ["a version number beyond what a World counts", { "dev.agentworlds.version": "2147483648" }, "unreadable"],
  ["no operation", { "dev.agentworlds.operation": undefined }, "unreadable"],
  ["no World", { "dev.agentworlds.world": undefined }, "unreadable"],
  ["no UID of the World", { "dev.agentworlds.world-uid": undefined }, "unreadable"],
  ["a parent that is no digest", { "dev.agentworlds.parent": "v6" }, "unreadable"],
  ["a time that is none", { "org.opencontainers.image.created": "yesterday" }, "unreadable"],
  ["a cause that is no JSON", { "dev.agentworlds.caused-by": "{" }, "version"],
  ["a session that is no session", { "dev.agentworlds.sandbox": '{"name":7}' }, "version"],
  ["a platform nobody has", { "dev.agentworlds.platform": "plan9/mips" }, "version"],
  ["a size that is none", { "dev.agentworlds.size-bytes": "-1" }, "version"],
  ["no genesis image", { "org.opencontainers.image.base.name": undefined }, "version"],
];
for (const [name, change, want] of cases) {
  test(`${name}: ${want}`, () => {
    const changed = Object.entries({ ...annotationsOf(FACTS), ...change });
    const annotations = Object.fromEntries(
      changed.filter((entry): entry is [string, string] => entry[1] !== undefined),
    );
    assert.equal(readAnnotations(annotations).kind, want);
  });
}

test("a manifest without annotations of ours is foreign, whatever else it says", () => {
  assert.equal(readAnnotations(undefined).kind, "foreign");
  assert.equal(readAnnotations({ "org.opencontainers.image.created": FACTS.createdAt }).kind, "foreign");
});

test("no annotations of any kind make the reader throw", () => {
  const keys = Object.keys(annotationsOf(FACTS));
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...keys), fc.string()), (annotations) => {
      assert.ok(["version", "foreign", "unreadable"].includes(readAnnotations(annotations).kind));
    }),
  );
});
