import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorldRescue, WorldStatus } from "@agentworlds/crds";
import { at, T0, versionOf } from "../../runtime/test-objects.test-kit.ts";
import { judgeRescue, LONGEST_PAUSE_MS, type RescueStep, rescueBackoffMs } from "./judge.ts";

const base = versionOf(1);
const rescue: WorldRescue = {
  operation: "publish-1",
  sandbox: { name: "one", uid: "sandbox-uid" },
  runtime: "local",
  host: "a",
  computeId: "aw-sandbox-uid-1",
  base: base.digest,
  reason: "SnapshotFailed",
  message: "no registry",
  since: at(0),
  expiresAt: at(86_400),
};
const status: WorldStatus = {
  observedGeneration: 1,
  versions: [base],
  head: { version: 1, digest: base.digest, image: "" },
};
const { base: _, ...baseless } = rescue;
const { expiresAt: __, ...endless } = rescue;
const moved: WorldStatus = { ...status, head: { version: 2, digest: versionOf(2).digest, image: "" } };
const held: WorldStatus = {
  ...status,
  holder: { sandbox: "two", uid: "two-uid", causedBy: { user: "bob" }, acquiredAt: at(0) },
};
const committed: WorldStatus = { ...moved, versions: [base, versionOf(2, { operation: "publish-1" })] };

const steps: [
  name: string,
  given: { status?: WorldStatus; rescue?: WorldRescue; seconds: number; isAsked?: boolean },
  want: RescueStep,
][] = [
  ["one that was just written down is tried at once", { seconds: 0 }, { kind: "attempt", isLast: false }],
  [
    "one whose next attempt is due later waits for it",
    { rescue: { ...rescue, retryAt: at(30) }, seconds: 10 },
    { kind: "wait", ms: 20_000 },
  ],
  [
    "somebody who asks need not wait",
    { rescue: { ...rescue, retryAt: at(30) }, seconds: 10, isAsked: true },
    { kind: "attempt", isLast: false },
  ],
  [
    "a retry that lies years ahead, by whatever clock, is due within five minutes",
    { rescue: { ...rescue, retryAt: "2999-01-01T00:00:00Z" }, seconds: 0 },
    { kind: "wait", ms: LONGEST_PAUSE_MS },
  ],
  [
    "its last wait ends with its time",
    { rescue: { ...rescue, retryAt: at(86_500) }, seconds: 86_390 },
    { kind: "wait", ms: 10_000 },
  ],
  [
    "when its time is over it is tried a last time, whenever the next attempt was due",
    { rescue: { ...rescue, retryAt: at(90_000) }, seconds: 86_400 },
    { kind: "attempt", isLast: true },
  ],
  [
    "a record of an older operator is kept for a day",
    { rescue: endless, seconds: 86_400 },
    { kind: "attempt", isLast: true },
  ],
  [
    "one over which head has moved is kept until its time is over",
    { status: moved, seconds: 400 },
    { kind: "keep", ms: 86_000_000, because: "BaseBehindHead" },
  ],
  [
    "asking changes nothing about that",
    { status: moved, seconds: 400, isAsked: true },
    { kind: "keep", ms: 86_000_000, because: "BaseBehindHead" },
  ],
  ["and then it is over", { status: moved, seconds: 86_400 }, { kind: "expire" }],
  [
    "while a session that ignores it works, it waits",
    { status: held, seconds: 400 },
    { kind: "keep", ms: 86_000_000, because: "WorldHeld" },
  ],
  [
    "also while that is a later boot of its own session",
    {
      status: { ...held, holder: { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "bob" }, acquiredAt: at(0) } },
      seconds: 400,
    },
    { kind: "keep", ms: 86_000_000, because: "WorldHeld" },
  ],
  [
    "while the registry is ahead of head, nothing is published beside it",
    { status: { ...status, registryHead: { version: 7 } }, seconds: 400 },
    { kind: "keep", ms: 86_000_000, because: "HeadBehindRegistry" },
  ],
  [
    "one of which nobody knows what it began from is kept",
    { rescue: baseless, seconds: 400 },
    { kind: "keep", ms: 86_000_000, because: "BaseUnknown" },
  ],
  [
    "one that is a version gives back its container",
    { status: committed, seconds: 5 },
    { kind: "release", isLast: false },
  ],
  [
    "and tries that again later",
    { status: committed, rescue: { ...rescue, retryAt: at(10) }, seconds: 5 },
    { kind: "wait", ms: 5_000 },
  ],
  [
    "until its time is over",
    { status: committed, rescue: { ...rescue, retryAt: at(90_000) }, seconds: 86_400 },
    { kind: "release", isLast: true },
  ],
];
for (const [name, given, want] of steps) {
  test(name, () => {
    const now = T0 + given.seconds * 1000;
    const { isAsked = false } = given;
    assert.deepEqual(judgeRescue(given.status ?? status, given.rescue ?? rescue, { now, isAsked }), want);
  });
}

test("the pauses grow from ten seconds to five minutes and no further", () => {
  const pauses = [1, 2, 3, 4, 5, 6, 7, 1000].map(rescueBackoffMs);
  assert.deepEqual(pauses, [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000]);
});
