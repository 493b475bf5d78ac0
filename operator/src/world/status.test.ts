import assert from "node:assert/strict";
import { test } from "node:test";
import type { World } from "@agentworlds/crds";
import { isoSeconds } from "../reconciler/conditions.ts";
import { Terminal, Waiting } from "../reconciler/policy.ts";
import { T0, versionOf, worldOf } from "../runtime/test-objects.ts";
import { deriveWorldConditions, explain } from "./status.ts";

const head = { version: 3, digest: versionOf(3).digest, image: "registry/lab@x" };
const genesis = { image: "busybox:1", digest: versionOf(0).digest, platform: "linux/amd64" } as const;
const fresh = worldOf({ metadata: { generation: 4 } });
const settled = worldOf({ metadata: { generation: 4 }, status: { head, genesis } });

const derive = (world: World, failure?: unknown, headProblem?: string) =>
  deriveWorldConditions(world, { failure, headProblem, now: T0 });
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
    ["Ready=True Available", "GenesisReady=True GenesisCopied"],
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
    ["Ready=True Available", "GenesisReady=True GenesisCopied", "Reconciling=True RegistryUnavailable"],
  ],
  [
    "a stall later neither",
    settled,
    terminal,
    ["Ready=True Available", "GenesisReady=True GenesisCopied", "Stalled=True ImageNotFound"],
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

test("the genesis and its platform, head and its trouble are told", () => {
  const messages = derive(settled, undefined, "v3 names another digest").map(({ message }) => message);
  assert.deepEqual(messages, ["v3 names another digest", "busybox:1 for linux/amd64"]);
  assert.equal(derive(settled)[0]?.message, "version 3 is head");
});

test("a pass that finds the same writes the same: times move only with the status", () => {
  const before = worldOf({ status: { head, genesis, conditions: derive(settled) } });
  assert.deepEqual(
    deriveWorldConditions(before, { failure: undefined, headProblem: undefined, now: T0 + 60_000 }).map(
      (c) => c.lastTransitionTime,
    ),
    [isoSeconds(T0), isoSeconds(T0)],
  );
});

test("what was true only while it was true disappears", () => {
  const reconciling = worldOf({ status: { head, genesis, conditions: derive(settled, waiting) } });
  assert.deepEqual(
    derive(reconciling).map(({ type }) => type),
    ["Ready", "GenesisReady"],
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
