import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxOperation } from "@agentworlds/crds";
import { at, sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { judgeRescued, type OperationFindings, type RescuedOperation } from "./rescued-operation.ts";

const ending: SandboxOperation = {
  id: "end",
  verb: "Hibernate",
  reason: "DeadlinePassed",
  stage: "Captured",
  since: at(0),
  attempts: 3,
  consistency: "Frozen",
};
const snapshot: SandboxOperation = {
  ...ending,
  id: "save",
  verb: "Snapshot",
  reason: "SnapshotRequested",
  description: "as asked",
  causedBy: { user: "bob" },
};
const LOST = "lost-sandbox-uid-1";
const ofSnapshot = { operation: "save", consistency: "Frozen", description: "as asked", causedBy: { user: "bob" } };
const open: OperationFindings = { committed: undefined, isUsedUp: false };
const by = (reason: string): OperationFindings => ({ committed: { reason }, isUsedUp: true });

const cases: [name: string, SandboxOperation | undefined, OperationFindings, RescuedOperation][] = [
  ["nothing was under way", undefined, open, { id: LOST, isCaptured: false }],
  ["an ending's capture is all of the work", ending, open, { id: "end", ending, isCaptured: true }],
  ["an ending that is committed", ending, by("Deadline"), { id: "end", ending, isCaptured: true }],
  [
    "an ending whose processes ran on after the capture, of an older operator",
    { ...ending, consistency: "Fuzzy" },
    open,
    {
      id: LOST,
      isCaptured: false,
      ending: { ...ending, consistency: "Fuzzy" },
      snapshot: { operation: "end", consistency: "Fuzzy" },
    },
  ],
  [
    "an ending that somebody gave the id of a snapshot",
    ending,
    by("Snapshot"),
    { id: LOST, isCaptured: false, ending, snapshot: { operation: "end", consistency: "Frozen" } },
  ],
  [
    "an ending that somebody gave the id of an older version: under it nothing would be published",
    ending,
    { committed: undefined, isUsedUp: true },
    { id: LOST, isCaptured: false, ending },
  ],
  [
    "a snapshot's capture is older than the container",
    snapshot,
    open,
    { id: LOST, isCaptured: false, snapshot: ofSnapshot },
  ],
  [
    "nor is a snapshot's version its end",
    snapshot,
    by("Snapshot"),
    { id: LOST, isCaptured: false, snapshot: ofSnapshot },
  ],
];

for (const [name, operation, findings, want] of cases) {
  test(`which operation a rescue is of: ${name}`, () => {
    const compute = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1 };
    const sandbox = sandboxOf({ status: { boot: 1, compute, ...(operation ? { operation } : {}) } });
    assert.deepEqual(judgeRescued(sandbox, findings), want);
  });
}
