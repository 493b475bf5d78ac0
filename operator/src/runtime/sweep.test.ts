import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime, RuntimeRescue, Sandbox, World } from "@agentworlds/crds";
import { RUNTIMES, SANDBOXES, WORLDS } from "../kube/resource-types.ts";
import { silentLog } from "../reconciler/log.ts";
import { captureName } from "../snapshot/docker-commit.ts";
import { RuntimeError } from "./errors.ts";
import { memoryResource } from "./memory-resource.test-kit.ts";
import { createRuntimeRescues } from "./rescues.ts";
import {
  captureOf,
  container,
  DAY,
  forgetful,
  hibernating,
  hostWith,
  later,
  rescueOf,
  session,
  stopped,
  sweep,
} from "./sweep.test-kit.ts";
import { sweepHost } from "./sweep.ts";
import { at, runtimeOf, sandboxOf, T0, versionOf, worldOf } from "./test-objects.test-kit.ts";

test("a container of a live session is left alone", async () => {
  const { calls, recorded } = await sweep({ containers: [container("u1", 1)], sandboxes: [session("u1", 1)] });
  assert.deepEqual([calls, recorded], [[], []]);
});

const orphans: [name: string, sandboxes: Sandbox[]][] = [
  ["its Sandbox does not exist", []],
  ["its Sandbox has no compute", [session("u1", undefined)]],
  ["its Sandbox is on a later boot", [later("u1")]],
  [
    "another Sandbox has its name",
    [
      sandboxOf({
        metadata: { name: "u1", uid: "another" },
        status: { boot: 1, compute: { runtime: "local", host: "a", id: "aw-u1-1", boot: 1 } },
      }),
    ],
  ],
];
for (const [name, sandboxes] of orphans) {
  test(`a container is stopped and kept, never removed, when ${name}`, async () => {
    const { calls, recorded, over, orphans } = await sweep({ containers: [container("u1", 1)], sandboxes, now: 5 });
    assert.deepEqual(
      orphans.map(({ computeId }) => computeId),
      ["aw-u1-1"],
    );
    assert.deepEqual(calls, ["stop aw-u1-1"]);
    assert.deepEqual(over, []);
    assert.deepEqual(recorded, [
      {
        operation: "orphan-u1-1",
        namespace: "team",
        sandbox: { name: "u1", uid: "u1" },
        host: "a",
        computeId: "aw-u1-1",
        engine: "engine-a",
        reason: "Orphaned",
        message: "no Sandbox accounts for this container; it is stopped and kept",
        since: at(5),
        expiresAt: at(5 + DAY),
      },
    ]);
  });
}

test("a container of another installation is never touched", async () => {
  const stranger = { ...container("u1", 1), owner: { ...container("u1", 1).owner, installation: "other" } };
  const { calls, recorded } = await sweep({ containers: [stranger] });
  assert.deepEqual([calls, recorded], [[], []]);
});

test("a container that its session removed while the sweep looked is no orphan", async () => {
  const { calls, recorded } = await sweep({
    containers: [container("u1", 1)],
    states: { "aw-u1-1": { state: "Absent" } },
  });
  assert.deepEqual([calls, recorded], [[], []]);
});

test("a rescued container is kept until its time is over", async () => {
  const given = { containers: [stopped("u1")], rescues: [rescueOf("u1", 0)] };
  const before = await sweep({ ...given, now: DAY - 1 });
  assert.deepEqual([before.calls, before.over], [[], []]);
  const after = await sweep({ ...given, now: DAY });
  assert.deepEqual(after.calls, ["remove aw-u1-1"]);
  assert.deepEqual(after.over, [rescueOf("u1", 0)]);
});

test("the Runtime's own rescueSeconds count", async () => {
  const { over } = await sweep({ containers: [], rescues: [rescueOf("u1", 0)], rescueSeconds: 60, now: 60 });
  assert.equal(over.length, 1);
});

test("a rescue on another host waits for that host's sweep", async () => {
  const { calls, over } = await sweep({ containers: [], rescues: [rescueOf("u1", 0, "b")], now: DAY });
  assert.deepEqual([calls, over], [[], []]);
});

test("a rescue on another engine does not spare an orphan of the same name here", async () => {
  const elsewhere = { ...rescueOf("u1", 0, "b"), engine: "engine-b" };
  const { calls } = await sweep({ containers: [container("u1", 1)], rescues: [elsewhere] });
  assert.deepEqual(calls, ["stop aw-u1-1"]);
});

test("an API server that does not answer makes nobody an orphan", async () => {
  const { driver, calls } = hostWith([container("u1", 1)]);
  const sandboxes = memoryResource<Sandbox>(SANDBOXES);
  const failing = {
    ...sandboxes,
    get: async () => {
      throw new RuntimeError("HostUnreachable", "any error but a 404");
    },
  };
  const runtime = runtimeOf();
  await assert.rejects(
    sweepHost({
      runtime,
      host: "a",
      driver,
      installation: "install",
      sandboxes: failing,
      worlds: memoryResource<World>(WORLDS),
      runtimes: memoryResource<Runtime>(RUNTIMES, [runtime]),
      rescues: createRuntimeRescues(memoryResource<Runtime>(RUNTIMES, [runtime])),
      now: T0,
      log: silentLog,
      signal: new AbortController().signal,
    }),
  );
  assert.deepEqual(calls, []);
});

const OLD = 600;
const needed: [name: string, given: Omit<Parameters<typeof sweep>[0], "containers">][] = [
  ["it is the operation of its session", { sandboxes: [hibernating("u1", "operation-u1")] }],
  ["a rescue names it", { rescues: [{ ...rescueOf("u1", 0, "b"), capture: captureName("operation-u1") }] }],
  [
    "it is of a snapshot that was under way when its session was lost: a rescue names that",
    { rescues: [{ ...rescueOf("u1", 0, "b"), snapshot: { operation: "operation-u1" } }] },
  ],
  [
    "a rescue of its operation was recorded a moment ago",
    { recordedSince: [{ ...rescueOf("u1", 0), operation: "operation-u1" }] },
  ],
  ["it is younger than ten minutes", { now: OLD - 1, sandboxes: [later("u1")] }],
  [
    "it is another installation's",
    { captures: [{ ...captureOf("u1"), owner: { ...captureOf("u1").owner, installation: "other" } }] },
  ],
  [
    "the rescue of a World names it",
    {
      worlds: [
        worldOf({
          status: {
            rescues: [
              {
                operation: "another",
                sandbox: { name: "u1", uid: "u1" },
                runtime: "elsewhere",
                host: "a",
                computeId: "aw-u1-1",
                capture: captureName("operation-u1"),
                reason: "SnapshotFailed",
                message: "",
                since: at(0),
              },
            ],
          },
        }),
      ],
    },
  ],
  [
    "the list of rescues is full, so that not all that is kept can be named",
    { rescues: Array.from({ length: 64 }, (_, index) => rescueOf(`full-${index}`, OLD, "b")) },
  ],
  [
    "its session has lost its operation and the container is gone",
    { sandboxes: [session("u1", 1)], states: { "aw-u1-1": { state: "Absent" } } },
  ],
  ["the status of its session has lost container and operation", { sandboxes: [forgetful("u1", 1)] }],
];
for (const [name, given] of needed)
  test(`a capture stays when ${name}`, async () => {
    const { calls } = await sweep({ containers: [], captures: [captureOf("u1")], now: OLD, ...given });
    assert.deepEqual(calls, []);
  });

test("a container whose Sandbox has lost it from its status is left to that Sandbox, which looks for it", async () => {
  const finalizers = ["agentworlds.dev/sandbox"];
  const wiped = sandboxOf({ metadata: { name: "u2", uid: "u2", finalizers } });
  const containers = [container("u1", 1), container("u2", 1)];
  const { calls, orphans } = await sweep({ containers, sandboxes: [forgetful("u1", 1), wiped] });
  assert.deepEqual([calls, orphans], [[], []]);
});

test("a container of a boot that has ended in order is an orphan, whatever comes after", async () => {
  const lastEnding = { boot: 1, reason: "ContainerGone", outcome: "Lost", message: "", at: at(0) } as const;
  const ended = sandboxOf({ metadata: { name: "u1", uid: "u1" }, status: { boot: 1, lastEnding } });
  const { orphans } = await sweep({ containers: [container("u1", 1)], sandboxes: [ended] });
  assert.deepEqual(
    orphans.map(({ computeId }) => computeId),
    ["aw-u1-1"],
  );
});

test("the container that a Sandbox names is never swept, whatever the engine calls itself and wherever status says it is", async () => {
  const { metadata, status } = session("u1", 1);
  for (const engine of ["engine-a", "engine-b"]) {
    const compute = { runtime: "elsewhere", host: "b", id: "aw-u1-1", boot: 1, engine };
    const named = sandboxOf({ metadata, status: { ...status, compute } });
    const { calls, orphans } = await sweep({ containers: [container("u1", 1)], sandboxes: [named] });
    assert.deepEqual([calls, orphans], [[], []], engine);
  }
});

test("a container of a boot that no record calls ended is never swept, whatever container status names", async () => {
  const named = (id: string, boot: number) =>
    sandboxOf({
      metadata: { name: "u1", uid: "u1" },
      status: { boot, compute: { runtime: "local", host: "a", id, boot } },
    });
  for (const sandbox of [named("aw-somebody-else-1", 1), named("aw-u1-2", 2)]) {
    const { calls, orphans } = await sweep({ containers: [container("u1", 1)], sandboxes: [sandbox] });
    assert.deepEqual([calls, orphans], [[], []], sandbox.status.compute?.id);
  }
});

test("a rescue whose container its Sandbox still names is that Sandbox's to end: nothing is stopped or removed", async () => {
  const given = { containers: [container("u1", 1)], rescues: [rescueOf("u1", 0)], sandboxes: [session("u1", 1)] };
  assert.deepEqual((await sweep(given)).calls, []);
  const { calls, over } = await sweep({ ...given, now: DAY });
  assert.deepEqual([calls, over], [[], []]);
});

test("the record of a rescue on another engine ends with its time; a container of its name here stays", async () => {
  const rescue = { ...rescueOf("u1", 0), engine: "engine-b" };
  const { calls, over } = await sweep({ containers: [stopped("u1")], rescues: [rescue], now: DAY });
  assert.deepEqual([calls, over], [[], [rescue]]);
});

/** A World with a version of this operation, or with work of it that was given up. */
const versionOfOperation = (operation: string) => worldOf({ status: { versions: [versionOf(1, { operation })] } });
const givenUp = (operation: string) =>
  worldOf({
    status: {
      lostWork: [
        {
          operation,
          sandbox: { name: "u1", uid: "u1" },
          runtime: "local",
          host: "a",
          computeId: "aw-u1-1",
          cause: "Discarded",
          message: "",
          since: at(0),
          at: at(1),
        },
      ],
    },
  });

const copies: [name: string, given: Partial<Parameters<typeof sweep>[0]>][] = [
  ["its session has no operation, and its container is there", { sandboxes: [session("u1", 1)] }],
  ["its session has another operation, and its container is there", { sandboxes: [hibernating("u1", "another")] }],
  ["its boot has ended in order", { sandboxes: [later("u1")] }],
  ["its work is a version", { worlds: [versionOfOperation("operation-u1")] }],
  ["its work was given up aloud", { worlds: [givenUp("operation-u1")] }],
  ["its container is kept", { containers: [stopped("u1")], rescues: [rescueOf("u1", 0)] }],
];
for (const [name, given] of copies)
  test(`a capture goes when ${name}, and no rescue names it`, async () => {
    const { calls } = await sweep({ containers: [], captures: [captureOf("u1")], now: OLD, ...given });
    assert.deepEqual(calls, [`forget ${captureName("operation-u1")}`]);
  });

test("a capture whose container and Sandbox are gone may be the only copy of work: it becomes a rescue, at any age", async () => {
  const image = `registry/worlds/lab@sha256:${"a".repeat(64)}`;
  const captures = [{ ...captureOf("u1"), image }, captureOf("u1", 5, "later"), captureOf("u2")];
  const { calls, recorded, orphans } = await sweep({ containers: [], captures, now: 6 });
  assert.deepEqual(calls, []);
  assert.deepEqual(
    recorded.map(({ operation, capture }) => [operation, capture]),
    [
      ["later", captureName("later")],
      ["operation-u2", captureName("operation-u2")],
    ],
    "of one container the latest, which holds all of the others",
  );
  assert.deepEqual(orphans, recorded);
  const again = await sweep({ containers: [], captures: captures.slice(1), rescues: recorded, now: OLD });
  assert.deepEqual([again.calls, again.recorded], [[], recorded]);
});

test("the rescue of a capture says all that its version needs", async () => {
  const image = `registry/worlds/lab@sha256:${"a".repeat(64)}`;
  const { recorded } = await sweep({ containers: [], captures: [{ ...captureOf("u1"), image }], now: 6 });
  assert.deepEqual(recorded, [
    {
      operation: "operation-u1",
      capture: captureName("operation-u1"),
      message: "container and Sandbox are gone, and what was captured of them is in no version; it is kept",
      namespace: "team",
      sandbox: { name: "u1", uid: "u1" },
      host: "a",
      computeId: "aw-u1-1",
      engine: "engine-a",
      bootedFrom: `sha256:${"a".repeat(64)}`,
      reason: "Orphaned",
      since: at(6),
      expiresAt: at(6 + DAY),
    },
  ]);
});

const other = (...rescues: RuntimeRescue[]) => runtimeOf({ metadata: { name: "other" }, status: { rescues } });
const ofAnother: [name: string, given: Partial<Parameters<typeof sweep>[0]>][] = [
  ["of another Runtime", { runtimes: [other(rescueOf("u1", 0, "z"))] }],
  ["of another Runtime, on this engine", { runtimes: [other({ ...rescueOf("u1", 0, "z"), engine: "engine-a" })] }],
  [
    "of a World, on another Runtime",
    {
      worlds: [
        worldOf({
          status: {
            rescues: [
              {
                operation: "publish-u1",
                sandbox: { name: "u1", uid: "u1" },
                runtime: "other",
                host: "z",
                computeId: "aw-u1-1",
                reason: "SnapshotFailed",
                message: "",
                since: at(0),
              },
            ],
          },
        }),
      ],
    },
  ],
];
for (const [name, given] of ofAnother)
  test(`a container that is a rescue ${name} is no orphan, and neither is its capture`, async () => {
    const captures = [captureOf("u1", 0, "publish-u1")];
    const { calls, orphans, recorded } = await sweep({ containers: [stopped("u1")], captures, now: OLD, ...given });
    assert.deepEqual([calls, orphans, recorded], [[], [], []]);
  });

test("a capture stays when another Runtime's list of rescues is full", async () => {
  const full = other(...Array.from({ length: 64 }, (_, index) => rescueOf(`full-${index}`, OLD, "z")));
  const { calls } = await sweep({ containers: [], captures: [captureOf("u1")], runtimes: [full], now: OLD });
  assert.deepEqual(calls, []);
});

test("a capture that its session is about to replace stays until the session says that it has", async () => {
  const { metadata, status } = hibernating("u1", "next");
  assert.ok(status.operation);
  const operation = { ...status.operation, supersedes: "operation-u1" };
  const sandboxes = [sandboxOf({ metadata, status: { ...status, operation } })];
  const { calls } = await sweep({ containers: [], captures: [captureOf("u1")], sandboxes, now: OLD });
  assert.deepEqual(calls, []);
});

test("a capture that somebody uses hinders no other", async () => {
  const captures = [captureOf("u1", 0, "in-use"), captureOf("u2")];
  const sandboxes = [later("u1"), later("u2")];
  const { calls } = await sweep({ containers: [], captures, sandboxes, now: OLD });
  assert.deepEqual(calls, [`forget ${captureName("operation-u2")}`]);
});

for (const [what, named] of [
  ["the capture of a rescue", { capture: captureName("operation-u1") }],
  ["the capture of the snapshot that a rescue names", { snapshot: { operation: "operation-u1" } }],
] as const)
  test(`${what} goes with it when its time is over`, async () => {
    const rescue = { ...rescueOf("u1", 0), ...named };
    const { calls, over } = await sweep({
      containers: [stopped("u1")],
      captures: [captureOf("u1")],
      rescues: [rescue],
      now: DAY,
    });
    assert.deepEqual(calls, ["remove aw-u1-1", `forget ${captureName("operation-u1")}`]);
    assert.deepEqual(over, [rescue]);
  });

test("an orphan beyond a full list is stopped and kept, and written down by a sweep that finds room", async () => {
  const full = Array.from({ length: 64 }, (_, index) => rescueOf(`full-${index}`, 0, "b"));
  const beyond = await sweep({ containers: [container("u1", 1)], rescues: full });
  assert.deepEqual([beyond.calls, beyond.orphans, beyond.recorded.length], [["stop aw-u1-1"], [], 64]);
  const later = await sweep({ containers: [container("u1", 1)], rescues: full.slice(1) });
  assert.deepEqual(
    later.orphans.map(({ computeId }) => computeId),
    ["aw-u1-1"],
  );
});

test("a rescue that only its World names is recorded once there is room, so that its time can end", async () => {
  const { namespace: _, ...facts } = rescueOf("u1", 0);
  const worlds = [
    worldOf({ metadata: { name: "w", namespace: "team" }, status: { rescues: [{ ...facts, runtime: "local" }] } }),
  ];
  const { recorded, orphans } = await sweep({ containers: [container("u1", 1)], worlds });
  assert.deepEqual(recorded, [{ ...rescueOf("u1", 0), world: "w", worldUid: "world-uid" }]);
  assert.deepEqual(orphans, [], "what a World names is no orphan");
  const again = await sweep({ containers: [], worlds, rescues: recorded });
  assert.deepEqual(again.recorded, recorded);
});

test("a rescue that its World names leaves the Runtime's list alone when nothing of it is on the host any more", async () => {
  const { namespace: _, ...facts } = rescueOf("u1", 0);
  const worlds = [worldOf({ status: { rescues: [{ ...facts, runtime: "local" }] } })];
  const { recorded } = await sweep({ containers: [], worlds });
  assert.deepEqual(recorded, [], "its World has dealt with it a moment ago, and the cache does not show that yet");
});

test("a rescue whose time is over is its World's to try a last time, as long as the World names it", async () => {
  const { namespace: _, ...facts } = rescueOf("u1", 0);
  const worlds = [worldOf({ status: { rescues: [{ ...facts, runtime: "local" }] } })];
  const { calls, over } = await sweep({
    containers: [stopped("u1")],
    worlds,
    rescues: [rescueOf("u1", 0)],
    now: DAY,
  });
  assert.deepEqual([calls, over], [[], []]);
});

test("the time that was promised when the work was kept stands, whatever the Runtime says now", async () => {
  const rescue = { ...rescueOf("u1", 0), expiresAt: at(500) };
  const given = { containers: [container("u1", 1)], rescues: [rescue], rescueSeconds: 60 };
  assert.deepEqual((await sweep({ ...given, now: 499 })).over, []);
  assert.deepEqual((await sweep({ ...given, now: 500 })).over, [rescue]);
});

test("a kept container that still runs is stopped: its host was silent when the work was kept", async () => {
  const frozen = { ...container("u2", 1), state: "Frozen" as const };
  const { calls, recorded } = await sweep({
    containers: [container("u1", 1), frozen],
    rescues: [rescueOf("u1", 0), { ...rescueOf("u2", 0), engine: "engine-a" }],
  });
  assert.deepEqual(calls, ["stop aw-u1-1", "stop aw-u2-1"]);
  assert.equal(recorded.length, 2);
});

test("a container of the name of a rescue on another engine is not stopped in its place", async () => {
  const { calls } = await sweep({
    containers: [container("u1", 1)],
    rescues: [{ ...rescueOf("u1", 0), engine: "engine-b" }],
  });
  assert.deepEqual(calls, []);
});

test("a session whose status names a stranger's container accounts for its own: it is not put aside as an orphan", async () => {
  const { metadata, status } = session("u1", 1);
  const forged = sandboxOf({
    metadata,
    status: { ...status, compute: { runtime: "local", host: "a", id: "aw-u2-1", boot: 1 } },
  });
  const { calls, orphans } = await sweep({
    containers: [container("u1", 1), container("u2", 1)],
    sandboxes: [forged, session("u2", 1)],
    captures: [captureOf("u1")],
    now: DAY,
  });
  assert.deepEqual([calls, orphans], [[], []]);
});

/** Records that somebody wrote by hand: the first names a container of another UID, the second both of another namespace. */
const forgedRescues: Record<string, RuntimeRescue> = {
  "another session's container": { ...rescueOf("u1", 0), computeId: "aw-u2-1", capture: captureName("operation-u2") },
  "another tenant's session and container": {
    ...rescueOf("u2", 0),
    namespace: "attackers",
    capture: captureName("operation-u2"),
  },
};
for (const [name, forged] of Object.entries(forgedRescues)) {
  test(`a record of ${name}: nothing is stopped, and nothing removed when its time is over`, async () => {
    const { calls } = await sweep({
      containers: [container("u2", 1)],
      captures: [captureOf("u2")],
      sandboxes: [session("u2", 1)],
      rescues: [forged],
      now: DAY,
    });
    assert.deepEqual(calls, []);
  });

  test(`a World that names ${name} brings no such record onto the Runtime`, async () => {
    const { namespace, ...facts } = forged;
    const worlds = [
      worldOf({ metadata: { name: "w", namespace }, status: { rescues: [{ ...facts, runtime: "local" }] } }),
    ];
    const { calls, recorded } = await sweep({
      containers: [container("u2", 1)],
      captures: [captureOf("u2")],
      sandboxes: [session("u2", 1)],
      worlds,
    });
    assert.deepEqual([calls, recorded], [[], []]);
  });
}
