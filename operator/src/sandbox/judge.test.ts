import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox, SandboxOperation, SandboxRequest, SandboxStatus } from "@agentworlds/crds";
import fc from "fast-check";
import type { ObservedCompute } from "../runtime/contract.ts";
import { at, digest, sandboxOf, T0 } from "../runtime/test-objects.test-kit.ts";
import { type JudgeInput, judgeSession, type SessionGoal } from "./judge.ts";

const RUNNING: ObservedCompute = { state: "Running", startedAt: at(0) };
const FROZEN: ObservedCompute = { state: "Frozen", startedAt: at(0) };
const ABSENT: ObservedCompute = { state: "Absent" };
const EXITED: ObservedCompute = { state: "Exited", exitCode: 1, outOfMemory: false, finishedAt: at(50) };
const OOM: ObservedCompute = { ...EXITED, outOfMemory: true };

const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
/** A session that became Ready at second 0 and expires at 900. */
const running: Partial<SandboxStatus> = {
  boot: 1,
  observedMode: "Running",
  compute: { ...compute, provisionedAt: at(0) },
  bootedFrom: { version: 0, digest: digest("0") },
  base: { version: 0, digest: digest("0") },
  expiresAt: at(900),
  lifetimeEndsAt: at(14_400),
};
/** Compute is recorded, and has not answered yet. */
const booting: Partial<SandboxStatus> = { boot: 1, observedMode: "Running", compute };
/** Slept in by a deadline. */
const asleep: Partial<SandboxStatus> = {
  boot: 1,
  observedMode: "Running",
  lastEnding: { boot: 1, reason: "DeadlinePassed", outcome: "Published", message: "v1", at: at(950) },
};

const operation = (change: Partial<SandboxOperation> = {}): SandboxOperation => ({
  id: "operation-1",
  verb: "Hibernate",
  reason: "DeadlinePassed",
  stage: "Frozen",
  outcome: "Snapshot",
  since: at(900),
  attempts: 0,
  ...change,
});
const snapshotting = (change: Partial<SandboxOperation> = {}): SandboxOperation =>
  operation({ verb: "Snapshot", reason: "SnapshotRequested", request: "ask-1", ...change });

const request = (verb: SandboxRequest["verb"], change: Partial<SandboxRequest> = {}): SandboxRequest => ({
  id: "ask-1",
  verb,
  user: "ada",
  at: at(10),
  ...change,
});
const answered = { outcome: "Succeeded", at: at(11) } as const;
const deleted = { deletionTimestamp: at(20), finalizers: ["agentworlds.dev/sandbox"] };

type Given = Parameters<typeof sandboxOf>[0];
interface Case {
  readonly given: Given;
  readonly seen?: Partial<Omit<JudgeInput, "sandbox" | "now">>;
  /** Seconds after the start. */
  readonly now?: number;
  readonly want: SessionGoal | SessionGoal["kind"];
}

const end = (
  reason: Extract<SessionGoal, { kind: "end" }>["reason"],
  change: { verb?: "Hibernate" | "Close"; discard?: boolean } = {},
): SessionGoal => ({ kind: "end", verb: "Hibernate", discard: false, reason, ...change });

function judge(sandbox: Sandbox, { seen, now }: Pick<Case, "seen" | "now">): SessionGoal {
  return judgeSession({
    sandbox,
    observed: sandbox.status.compute ? RUNNING : undefined,
    worldEnding: false,
    savesNothing: false,
    ...seen,
    now: T0 + (now ?? 100) * 1000,
  });
}

const cases: Record<string, Record<string, Case>> = {
  "nothing runs": {
    "a new Sandbox boots": { given: {}, want: { kind: "boot", wakes: [] } },
    "a new Sandbox in mode Hibernated waits": { given: { spec: { mode: "Hibernated" } }, want: "asleep" },
    "one that its deadline ended stays asleep in mode Running": { given: { status: asleep }, want: "asleep" },
    "a mode turned back to Running wakes": {
      given: { status: { ...asleep, observedMode: "Hibernated" } },
      want: { kind: "boot", wakes: [] },
    },
    "a touch wakes, and the boot knows whom to answer": {
      given: { status: { ...asleep, requests: [request("Touch")] } },
      want: { kind: "boot", wakes: [request("Touch")] },
    },
    "a touch that was answered wakes nobody again": {
      given: { status: { ...asleep, requests: [request("Touch", { result: answered })] } },
      want: "asleep",
    },
    "mode Hibernated outranks a touch": {
      given: { spec: { mode: "Hibernated" }, status: { ...asleep, requests: [request("Touch")] } },
      want: "asleep",
    },
    "a hibernated Sandbox closes without a boot": {
      given: { status: { ...asleep, requests: [request("Close")] } },
      want: { kind: "closeAsleep", request: request("Close") },
    },
    "a close outranks a wake": {
      given: { status: { ...asleep, requests: [request("Touch", { id: "wake" }), request("Close")] } },
      want: { kind: "closeAsleep", request: request("Close") },
    },
    "a Sandbox that never booted closes too": {
      given: { status: { requests: [request("Close")] } },
      want: { kind: "closeAsleep", request: request("Close") },
    },
    "a deletion leaves nothing to do": { given: { metadata: deleted, status: asleep }, want: "finished" },
    "a deletion before the first boot never boots": { given: { metadata: deleted }, want: "finished" },
    "a deletion outranks a wake": {
      given: { metadata: deleted, status: { ...asleep, requests: [request("Touch")] } },
      want: "finished",
    },
    "closed is the end, whatever is asked": {
      given: { status: { ...asleep, closed: { at: at(1) }, requests: [request("Touch")] } },
      want: "finished",
    },
    "a deadline of an ended boot means nothing": {
      given: { status: { ...asleep, expiresAt: at(1) } },
      want: "asleep",
    },
  },
  "it boots": {
    "a container not made yet is made": { given: { status: booting }, seen: { observed: ABSENT }, want: "run" },
    "a container that exited before Ready is started again, not published": {
      given: { status: booting },
      seen: { observed: EXITED },
      want: "run",
    },
    "the clock has not started: no deadline passes": {
      given: { status: booting },
      now: 1_000_000,
      want: "run",
    },
    "a close before Ready has nothing to save": {
      given: { status: { ...booting, requests: [request("Close")] } },
      want: end("CloseRequested", { verb: "Close", discard: true }),
    },
    "a container that was found after the close ends in a version": {
      given: { status: { ...running, closed: { at: at(1) } } },
      seen: { observed: RUNNING },
      want: end("CloseRequested", { verb: "Close" }),
    },
    "a deletion before Ready has nothing to save": {
      given: { metadata: deleted, status: booting },
      want: end("SandboxDeleted", { verb: "Close", discard: true }),
    },
    "mode Hibernated before Ready has nothing to save": {
      given: { spec: { mode: "Hibernated" }, status: booting },
      want: end("ModeHibernated", { discard: true }),
    },
    "a snapshot before Ready waits for Ready": {
      given: { status: { ...booting, requests: [request("Snapshot")] } },
      want: "run",
    },
    "a World that ends takes a boot along": {
      given: { status: booting },
      seen: { worldEnding: true },
      want: end("WorldDeleted", { discard: true }),
    },
  },
  "it runs": {
    "before the deadline it runs": { given: { status: running }, now: 899, want: "run" },
    "at the deadline it hibernates": { given: { status: running }, now: 900, want: end("DeadlinePassed") },
    "at the end of its lifetime it hibernates, touched or not": {
      given: { status: { ...running, expiresAt: at(14_400) } },
      now: 14_400,
      want: end("LifetimePassed"),
    },
    "a host that cannot be asked changes nothing": {
      given: { status: running },
      seen: { observed: undefined },
      want: "run",
    },
    "a silent host does not stop the clock": {
      given: { status: running },
      seen: { observed: undefined },
      now: 900,
      want: end("DeadlinePassed"),
    },
    "frozen by an operator that died: it goes on": {
      given: { status: running },
      seen: { observed: FROZEN },
      want: "run",
    },
    "a container that exited is saved": {
      given: { status: running },
      seen: { observed: EXITED },
      want: end("ContainerExited"),
    },
    "out of memory is told apart": { given: { status: running }, seen: { observed: OOM }, want: end("OutOfMemory") },
    "a container that is gone is lost, and nothing is pretended": {
      given: { status: running },
      seen: { observed: ABSENT },
      want: "lost",
    },
    "gone outranks a close: there is nothing to publish": {
      given: { status: { ...running, requests: [request("Close")] } },
      seen: { observed: ABSENT },
      want: "lost",
    },
    "gone outranks a deletion": {
      given: { metadata: deleted, status: running },
      seen: { observed: ABSENT },
      want: "lost",
    },
    "mode Hibernated hibernates": {
      given: { spec: { mode: "Hibernated" }, status: running },
      want: end("ModeHibernated"),
    },
    "a deletion closes with a version": {
      given: { metadata: deleted, status: running },
      want: end("SandboxDeleted", { verb: "Close" }),
    },
    "a deletion discards where closePolicy says so": {
      given: { metadata: deleted, spec: { closePolicy: "Discard" }, status: running },
      want: end("SandboxDeleted", { verb: "Close", discard: true }),
    },
    "a deadline saves whatever closePolicy says": {
      given: { spec: { closePolicy: "Discard" }, status: running },
      now: 900,
      want: end("DeadlinePassed"),
    },
    "a close saves": {
      given: { status: { ...running, requests: [request("Close")] } },
      want: end("CloseRequested", { verb: "Close" }),
    },
    "a close may ask to discard": {
      given: { status: { ...running, requests: [request("Close", { parameters: { discard: "Discard" } })] } },
      want: end("CloseRequested", { verb: "Close", discard: true }),
    },
    "a close may ask to save against closePolicy": {
      given: {
        spec: { closePolicy: "Discard" },
        status: { ...running, requests: [request("Close", { parameters: { discard: "Snapshot" } })] },
      },
      want: end("CloseRequested", { verb: "Close" }),
    },
    "a deletion outranks a close that would discard: closePolicy decides": {
      given: {
        metadata: deleted,
        status: { ...running, requests: [request("Close", { parameters: { discard: "Discard" } })] },
      },
      want: end("SandboxDeleted", { verb: "Close" }),
    },
    "a close outranks the deadline": {
      given: { status: { ...running, requests: [request("Close")] } },
      now: 900,
      want: end("CloseRequested", { verb: "Close" }),
    },
    "a World that ends gets the session's version first": {
      given: { status: running },
      seen: { worldEnding: true },
      want: end("WorldDeleted"),
    },
    "a snapshot is taken while it runs": {
      given: { status: { ...running, requests: [request("Snapshot")] } },
      want: { kind: "snapshot", request: request("Snapshot") },
    },
    "snapshots are taken in the order they were asked for": {
      given: { status: { ...running, requests: [request("Snapshot", { id: "first" }), request("Snapshot")] } },
      want: { kind: "snapshot", request: request("Snapshot", { id: "first" }) },
    },
    "the deadline outranks a snapshot that has not begun: the ending is one": {
      given: { status: { ...running, requests: [request("Snapshot")] } },
      now: 900,
      want: end("DeadlinePassed"),
    },
    "a touch that nobody answered does not disturb a running session": {
      given: { status: { ...running, requests: [request("Touch")] } },
      want: "run",
    },
  },
  "a session that saves nothing": {
    "a throwaway image is discarded at its deadline": {
      given: { spec: { image: "busybox:1" }, status: running },
      seen: { savesNothing: true },
      now: 900,
      want: end("DeadlinePassed", { discard: true }),
    },
    "a throwaway container that exited is discarded": {
      given: { spec: { image: "busybox:1" }, status: running },
      seen: { savesNothing: true, observed: EXITED },
      want: end("ContainerExited", { discard: true }),
    },
    "a throwaway that is deleted is discarded": {
      given: { metadata: deleted, spec: { image: "busybox:1" }, status: running },
      seen: { savesNothing: true },
      want: end("SandboxDeleted", { verb: "Close", discard: true }),
    },
    "a snapshot of it is never begun: there is nowhere to publish": {
      given: { spec: { image: "busybox:1" }, status: { ...running, requests: [request("Snapshot")] } },
      seen: { savesNothing: true },
      want: "run",
    },
  },
  "an ending is under way": {
    "it goes on with the reason it began with": {
      given: { status: { ...running, operation: operation() } },
      now: 100,
      want: end("DeadlinePassed"),
    },
    "a mode that flips back does not stop it: the version is made, then it wakes": {
      given: { spec: { mode: "Running" }, status: { ...running, operation: operation({ reason: "ModeHibernated" }) } },
      want: end("ModeHibernated"),
    },
    "a touch that came later does not stop it": {
      given: {
        status: { ...running, expiresAt: at(5_000), operation: operation(), requests: [request("Touch")] },
      },
      want: end("DeadlinePassed"),
    },
    "a deletion does not begin another": {
      given: { metadata: deleted, status: { ...running, operation: operation({ attempts: 3 }) } },
      want: end("DeadlinePassed"),
    },
    "one that fails gives way to a deletion that drops the work": {
      given: {
        metadata: deleted,
        spec: { closePolicy: "Discard" },
        status: { ...running, operation: operation({ attempts: 1 }) },
      },
      want: end("SandboxDeleted", { verb: "Close", discard: true }),
    },
    "one that does not fail is finished, although the deletion would drop the work": {
      given: { metadata: deleted, spec: { closePolicy: "Discard" }, status: { ...running, operation: operation() } },
      want: end("DeadlinePassed"),
    },
    "a close that saves and fails is not dropped by a deletion: saving was asked for": {
      given: {
        metadata: deleted,
        spec: { closePolicy: "Discard" },
        status: { ...running, operation: operation({ verb: "Close", reason: "CloseRequested", attempts: 1 }) },
      },
      want: end("CloseRequested", { verb: "Close" }),
    },
    "one that fails gives way to a close that drops the work": {
      given: {
        status: {
          ...running,
          operation: operation({ attempts: 1 }),
          requests: [request("Close", { parameters: { discard: "Discard" } })],
        },
      },
      want: end("CloseRequested", { verb: "Close", discard: true }),
    },
    "what began as a discard ends as one": {
      given: { status: { ...running, operation: operation({ verb: "Close", outcome: "Discard" }) } },
      want: end("DeadlinePassed", { verb: "Close", discard: true }),
    },
    "gone before it was captured: lost": {
      given: { status: { ...running, operation: operation({ stage: "Frozen" }) } },
      seen: { observed: ABSENT },
      want: "lost",
    },
    ...Object.fromEntries(
      (["Captured", "Uploaded", "Manifested", "Verified", "Committed"] as const).map((stage) => [
        `gone after ${stage}: the capture is what counts, and it is published`,
        {
          given: { status: { ...running, operation: operation({ stage }) } },
          seen: { observed: ABSENT },
          want: end("DeadlinePassed"),
        } satisfies Case,
      ]),
    ),
    "gone while it is to be discarded: that is no loss": {
      given: { status: { ...running, operation: operation({ verb: "Close", outcome: "Discard", stage: "Intended" }) } },
      seen: { observed: ABSENT },
      want: end("DeadlinePassed", { verb: "Close", discard: true }),
    },
  },
  "a snapshot of the running session is under way": {
    "it is finished": {
      given: { status: { ...running, operation: snapshotting(), requests: [request("Snapshot")] } },
      want: { kind: "snapshot", request: request("Snapshot") },
    },
    "the deadline waits until it is finished": {
      given: { status: { ...running, operation: snapshotting() } },
      now: 900,
      want: { kind: "snapshot", request: undefined },
    },
    "a deletion waits until it is finished": {
      given: { metadata: deleted, status: { ...running, operation: snapshotting() } },
      want: { kind: "snapshot", request: undefined },
    },
    "once it fails, the deadline goes first": {
      given: { status: { ...running, operation: snapshotting({ attempts: 1 }) } },
      now: 900,
      want: end("DeadlinePassed"),
    },
    "once it fails, a deletion goes first": {
      given: { metadata: deleted, status: { ...running, operation: snapshotting({ attempts: 1 }) } },
      want: end("SandboxDeleted", { verb: "Close" }),
    },
    "once it fails, a close goes first": {
      given: {
        status: {
          ...running,
          operation: snapshotting({ attempts: 2 }),
          requests: [request("Snapshot"), request("Close", { id: "close" })],
        },
      },
      want: end("CloseRequested", { verb: "Close" }),
    },
    "once it fails, an exited container goes first": {
      given: { status: { ...running, operation: snapshotting({ attempts: 1 }) } },
      seen: { observed: EXITED },
      want: end("ContainerExited"),
    },
    "once it is a version, the deadline goes first: what is left to do for it holds nothing up": {
      given: { status: { ...running, operation: snapshotting({ stage: "Committed" }) } },
      now: 900,
      want: end("DeadlinePassed"),
    },
    "it is a version and nothing ends: it is answered": {
      given: { status: { ...running, operation: snapshotting({ stage: "Committed" }) } },
      want: { kind: "snapshot", request: undefined },
    },
    "it fails and nothing ends: it is tried again": {
      given: { status: { ...running, operation: snapshotting({ attempts: 1 }), requests: [request("Snapshot")] } },
      want: { kind: "snapshot", request: request("Snapshot") },
    },
    "gone before it was captured: lost": {
      given: { status: { ...running, operation: snapshotting({ stage: "Frozen" }) } },
      seen: { observed: ABSENT },
      want: "lost",
    },
    "gone after the capture: the capture is the only copy, and it is published": {
      given: { status: { ...running, operation: snapshotting({ stage: "Captured" }) } },
      seen: { observed: ABSENT },
      want: { kind: "snapshot", request: undefined },
    },
    "gone after the capture, and the upload fails: no ending may drop the only copy": {
      given: { metadata: deleted, status: { ...running, operation: snapshotting({ stage: "Captured", attempts: 2 }) } },
      seen: { observed: ABSENT },
      now: 900,
      want: { kind: "snapshot", request: undefined },
    },
  },
};

for (const [situation, table] of Object.entries(cases)) {
  for (const [name, { given, want, ...seen }] of Object.entries(table)) {
    test(`${situation}: ${name}`, () => {
      const goal = judge(sandboxOf(given), seen);
      if (typeof want === "string") assert.equal(goal.kind, want);
      else assert.deepEqual(goal, want);
    });
  }
}

const statusArbitrary: fc.Arbitrary<Partial<SandboxStatus>> = fc
  .record({
    base: fc.constantFrom(running, booting, asleep, {}),
    operation: fc.option(
      fc.record({
        verb: fc.constantFrom("Hibernate" as const, "Snapshot" as const, "Close" as const),
        stage: fc.constantFrom("Intended" as const, "Frozen" as const, "Captured" as const, "Verified" as const),
        outcome: fc.constantFrom("Snapshot" as const, "Discard" as const),
        attempts: fc.nat(6),
      }),
      { nil: undefined },
    ),
    verbs: fc.array(fc.constantFrom("Touch" as const, "Snapshot" as const, "Close" as const), { maxLength: 3 }),
  })
  .map(({ base, operation: change, verbs }) => ({
    ...base,
    ...(change && base.compute ? { operation: operation(change) } : {}),
    requests: verbs.map((verb, index) => request(verb, { id: `ask-${index}` })),
  }));

const inputArbitrary = fc.record({
  status: statusArbitrary,
  mode: fc.constantFrom("Running" as const, "Hibernated" as const),
  isDeleted: fc.boolean(),
  observed: fc.constantFrom(RUNNING, FROZEN, ABSENT, EXITED, OOM, undefined),
  worldEnding: fc.boolean(),
  drain: fc.option(fc.constant({ reason: "RuntimeCordoned" as const, at: T0 + 1_000_000 }), { nil: undefined }),
  savesNothing: fc.boolean(),
  now: fc.integer({ min: 0, max: 20_000 }),
});

const judged = (given: typeof inputArbitrary extends fc.Arbitrary<infer G> ? G : never) => {
  const sandbox = sandboxOf({
    metadata: given.isDeleted ? deleted : {},
    spec: { mode: given.mode },
    status: given.status,
  });
  return { sandbox, goal: judge(sandbox, { seen: given, now: given.now }) };
};

test("whatever is written and seen: nothing boots over compute, and nothing deleted or hibernated by mode boots", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      const { sandbox, goal } = judged(given);
      if (goal.kind !== "boot") return;
      assert.equal(sandbox.status.compute, undefined);
      assert.equal(sandbox.metadata.deletionTimestamp, undefined);
      assert.equal(sandbox.spec.mode, "Running");
    }),
  );
});

test("whatever is written and seen: compute is called lost only when the host says that it is absent", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      if (judged(given).goal.kind === "lost") assert.equal(given.observed?.state, "Absent");
    }),
  );
});

test("whatever is written and seen: an ending once begun keeps its verb and its reason", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      const begun = given.status.operation;
      const { goal } = judged(given);
      if (!begun || begun.verb === "Snapshot" || goal.kind !== "end") return;
      assert.equal(goal.verb, begun.verb);
      assert.equal(goal.reason, begun.reason);
    }),
  );
});

test("whatever is written and seen: work of a session that saves is discarded only where somebody asked for it", () => {
  fc.assert(
    fc.property(inputArbitrary, (given) => {
      const { sandbox, goal } = judged({ ...given, savesNothing: false });
      if (goal.kind !== "end" || !goal.discard) return;
      const neverReady = sandbox.status.compute?.provisionedAt === undefined;
      assert.ok(neverReady || sandbox.status.operation?.outcome === "Discard");
    }),
  );
});
