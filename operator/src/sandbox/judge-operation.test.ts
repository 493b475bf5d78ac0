/** What a session wants while an ending or a snapshot of it is under way. */
import { at } from "../runtime/test-objects.test-kit.ts";
import {
  ABSENT,
  type Case,
  deleted,
  EXITED,
  end,
  operation,
  request,
  running,
  snapshotting,
  testCases,
} from "./judge-cases.test-kit.ts";

testCases({
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
});
