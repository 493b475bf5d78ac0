import assert from "node:assert/strict";
import { test } from "node:test";
import { LIMITS, type World } from "@agentworlds/crds";
import { isoSeconds, LONGEST_MESSAGE } from "../reconciler/conditions.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { T0, versionOf, worldOf } from "../runtime/test-objects.test-kit.ts";
import type { HeadFinding } from "./scope.ts";
import { deriveWorldConditions, explain } from "./status.ts";

const head = { version: 3, digest: versionOf(3).digest, image: "registry/lab@x" };
const genesis = { image: "busybox:1", digest: versionOf(0).digest, platform: "linux/amd64" } as const;
const fresh = worldOf({ metadata: { generation: 4 } });
const settled = worldOf({ metadata: { generation: 4 }, status: { head, genesis } });

const there: HeadFinding = { status: "True", reason: "HeadAvailable", message: "version 3 is in the registry" };
const derive = (world: World, failure?: unknown, head: HeadFinding | undefined = there) =>
  deriveWorldConditions(world, { failure, head, now: T0 });
const waiting = new Waiting("RegistryUnavailable", { message: "no answer", remediation: "wait", afterMs: 1 });
const terminal = new Terminal("ImageNotFound", { message: "busybox:9: 404", remediation: "name another" });

const cases: [name: string, world: World, failure: unknown, want: string[]][] = [
  [
    "a new World copies its genesis",
    fresh,
    undefined,
    ["Ready=False CopyingGenesis", "GenesisReady=False CopyingGenesis", "Reconciling=True CopyingGenesis"],
  ],
  [
    "a World with a head is Ready and nothing else is said",
    settled,
    undefined,
    ["Ready=True Available", "HeadAvailable=True HeadAvailable", "GenesisReady=True GenesisCopied"],
  ],
  [
    "a silent registry at genesis is waited for, by name",
    fresh,
    waiting,
    [
      "Ready=False RegistryUnavailable",
      "GenesisReady=False RegistryUnavailable",
      "Reconciling=True RegistryUnavailable",
    ],
  ],
  [
    "an image that does not exist stalls",
    fresh,
    terminal,
    ["Ready=False ImageNotFound", "GenesisReady=False ImageNotFound", "Stalled=True ImageNotFound"],
  ],
  [
    "trouble later does not take a bootable World away",
    settled,
    waiting,
    [
      "Ready=True Available",
      "HeadAvailable=True HeadAvailable",
      "GenesisReady=True GenesisCopied",
      "Reconciling=True RegistryUnavailable",
    ],
  ],
  [
    "a stall later neither",
    settled,
    terminal,
    [
      "Ready=True Available",
      "HeadAvailable=True HeadAvailable",
      "GenesisReady=True GenesisCopied",
      "Stalled=True ImageNotFound",
    ],
  ],
  [
    "an unexpected error is retried and says so",
    fresh,
    new Error("socket hang up"),
    ["Ready=False Retrying", "GenesisReady=False Retrying", "Reconciling=True Retrying"],
  ],
];
for (const [name, world, failure, want] of cases) {
  test(name, () => {
    assert.deepEqual(
      derive(world, failure).map(({ type, status, reason }) => `${type}=${status} ${reason}`),
      want,
    );
  });
}

test("each condition names the generation it was derived from", () => {
  for (const condition of derive(fresh)) assert.equal(condition.observedGeneration, 4);
});

test("head, the genesis and its platform are told", () => {
  assert.deepEqual(
    derive(settled).map(({ message }) => message),
    ["version 3 is head", "version 3 is in the registry", "busybox:1 for linux/amd64"],
  );
});

const told = (conditions: ReturnType<typeof derive>) =>
  conditions.slice(0, 2).map(({ type, status, reason }) => `${type}=${status} ${reason}`);

const heads: [name: string, head: HeadFinding, want: string[]][] = [
  [
    "a head that the registry does not have cannot be booted: the World is not Ready",
    { status: "False", reason: "HeadNotFound", message: "gone" },
    ["Ready=False HeadNotFound", "HeadAvailable=False HeadNotFound"],
  ],
  [
    "a registry that is only unreachable takes nothing away",
    { status: "Unknown", reason: "RegistryUnavailable", message: "503" },
    ["Ready=True Available", "HeadAvailable=Unknown RegistryUnavailable"],
  ],
  [
    "a head that reads back as other bytes cannot be booted either",
    { status: "False", reason: "HeadMismatch", message: "other bytes" },
    ["Ready=False HeadMismatch", "HeadAvailable=False HeadMismatch"],
  ],
];
for (const [name, head, want] of heads)
  test(name, () => assert.deepEqual(told(derive(settled, undefined, head)), want));

test("a pass that did not come to look repeats what was found last, and says so when nothing was", () => {
  const missing = derive(settled, undefined, { status: "False", reason: "HeadNotFound", message: "gone" });
  const known = worldOf({ status: { head, genesis, conditions: missing } });
  const unseen = (world: World) => told(deriveWorldConditions(world, { failure: waiting, now: T0 }));
  assert.deepEqual(unseen(known), ["Ready=False HeadNotFound", "HeadAvailable=False HeadNotFound"]);
  assert.deepEqual(unseen(settled), ["Ready=True Available", "HeadAvailable=Unknown NotLookedAt"]);
});

test("problems and a lost hold are present while they are true", () => {
  const found = deriveWorldConditions(settled, {
    head: there,
    lostHold: { reason: "HostsNotAsked", message: "m" },
    problems: [{ type: "TagTaken", reason: "TagTaken", message: "m" }],
    now: T0,
  });
  assert.deepEqual(
    found.slice(3).map(({ type, status, reason }) => `${type}=${status} ${reason}`),
    ["HolderLost=True HostsNotAsked", "TagTaken=True TagTaken"],
  );
  assert.equal(derive(worldOf({ status: { head, genesis, conditions: found } })).length, 3);
});

test("a pass that finds the same writes the same: times move only with the status", () => {
  const before = worldOf({ status: { head, genesis, conditions: derive(settled) } });
  assert.deepEqual(
    deriveWorldConditions(before, { head: there, now: T0 + 60_000 }).map((c) => c.lastTransitionTime),
    [isoSeconds(T0), isoSeconds(T0), isoSeconds(T0)],
  );
});

test("what was true only while it was true disappears", () => {
  const reconciling = worldOf({ status: { head, genesis, conditions: derive(settled, waiting) } });
  assert.deepEqual(
    derive(reconciling).map(({ type }) => type),
    ["Ready", "HeadAvailable", "GenesisReady"],
  );
});

test("a failure is told with what to do about it", () => {
  assert.deepEqual(explain(waiting), { reason: "RegistryUnavailable", message: "no answer; wait", stalled: false });
  assert.deepEqual(explain(terminal), {
    reason: "ImageNotFound",
    message: "busybox:9: 404; name another",
    stalled: true,
  });
  assert.deepEqual(explain(new Waiting("X", { message: "m", afterMs: 1 })), {
    reason: "X",
    message: "m",
    stalled: false,
  });
  assert.deepEqual(explain("a string"), { reason: "Retrying", message: "a string", stalled: false });
  assert.equal(explain(undefined), undefined);
});

test("the longest message of a condition is what the schemas allow", () =>
  assert.equal(LONGEST_MESSAGE, LIMITS.message));
