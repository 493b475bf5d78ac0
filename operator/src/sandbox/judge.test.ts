/** What a session wants when nothing runs, when it boots, when it runs, and when it saves nothing. */
import { at } from "../runtime/test-objects.test-kit.ts";
import {
  ABSENT,
  answered,
  asleep,
  booting,
  deleted,
  EXITED,
  end,
  FROZEN,
  OOM,
  RUNNING,
  request,
  running,
  testCases,
} from "./judge-cases.test-kit.ts";

testCases({
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
});
