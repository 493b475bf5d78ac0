/** What is written and seen of sessions, and tables of what is judged of it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox, SandboxOperation, SandboxRequest, SandboxStatus } from "@agentworlds/crds";
import type { ObservedCompute } from "../runtime/contract.ts";
import { at, digest, sandboxOf, T0 } from "../runtime/test-objects.test-kit.ts";
import { type JudgeInput, judgeSession, type SessionGoal } from "./judge.ts";

export const RUNNING: ObservedCompute = { state: "Running", startedAt: at(0) };
export const FROZEN: ObservedCompute = { state: "Frozen", startedAt: at(0) };
export const ABSENT: ObservedCompute = { state: "Absent" };
export const EXITED: ObservedCompute = { state: "Exited", exitCode: 1, outOfMemory: false, finishedAt: at(50) };
export const OOM: ObservedCompute = { ...EXITED, outOfMemory: true };

export const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
/** A session that became Ready at second 0 and expires at 900. */
export const running: Partial<SandboxStatus> = {
  boot: 1,
  observedMode: "Running",
  compute: { ...compute, provisionedAt: at(0) },
  bootedFrom: { version: 0, digest: digest("0") },
  base: { version: 0, digest: digest("0") },
  expiresAt: at(900),
  lifetimeEndsAt: at(14_400),
};
/** Compute is recorded, and has not answered yet. */
export const booting: Partial<SandboxStatus> = { boot: 1, observedMode: "Running", compute };
/** Slept in by a deadline. */
export const asleep: Partial<SandboxStatus> = {
  boot: 1,
  observedMode: "Running",
  lastEnding: { boot: 1, reason: "DeadlinePassed", outcome: "Published", message: "v1", at: at(950) },
};

export const operation = (change: Partial<SandboxOperation> = {}): SandboxOperation => ({
  id: "operation-1",
  verb: "Hibernate",
  reason: "DeadlinePassed",
  stage: "Frozen",
  outcome: "Snapshot",
  since: at(900),
  attempts: 0,
  ...change,
});
export const snapshotting = (change: Partial<SandboxOperation> = {}): SandboxOperation =>
  operation({ verb: "Snapshot", reason: "SnapshotRequested", request: "ask-1", ...change });

export const request = (verb: SandboxRequest["verb"], change: Partial<SandboxRequest> = {}): SandboxRequest => ({
  id: "ask-1",
  verb,
  user: "ada",
  at: at(10),
  ...change,
});
export const answered = { outcome: "Succeeded", at: at(11) } as const;
export const deleted = { deletionTimestamp: at(20), finalizers: ["agentworlds.dev/sandbox"] };

type Given = Parameters<typeof sandboxOf>[0];
export interface Case {
  readonly given: Given;
  readonly seen?: Partial<Omit<JudgeInput, "sandbox" | "now">>;
  /** Seconds after the start. */
  readonly now?: number;
  readonly want: SessionGoal | SessionGoal["kind"];
}

export const end = (
  reason: Extract<SessionGoal, { kind: "end" }>["reason"],
  change: { verb?: "Hibernate" | "Close"; discard?: boolean } = {},
): SessionGoal => ({ kind: "end", verb: "Hibernate", discard: false, reason, ...change });

export function judge(sandbox: Sandbox, { seen, now }: Pick<Case, "seen" | "now">): SessionGoal {
  return judgeSession({
    sandbox,
    observed: sandbox.status.compute ? RUNNING : undefined,
    worldEnding: false,
    savesNothing: false,
    ...seen,
    now: T0 + (now ?? 100) * 1000,
  });
}

/** By situation and name. */
export function testCases(cases: Readonly<Record<string, Readonly<Record<string, Case>>>>): void {
  for (const [situation, table] of Object.entries(cases)) {
    for (const [name, { given, want, ...seen }] of Object.entries(table)) {
      test(`${situation}: ${name}`, () => {
        const goal = judge(sandboxOf(given), seen);
        if (typeof want === "string") assert.equal(goal.kind, want);
        else assert.deepEqual(goal, want);
      });
    }
  }
}
