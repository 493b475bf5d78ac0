/** A snapshot that is asked for by annotation: taken up once, as the verb would, by the name of who asked. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  LIMITS,
  type Sandbox,
  type SandboxRequest,
  type SandboxStatus,
  SNAPSHOT_REQUESTED,
  SNAPSHOT_REQUESTED_BY,
} from "@agentworlds/crds";
import { at, sandboxOf } from "../runtime/test-objects.test-kit.ts";
import { type AnnotatedSnapshot, judgeAnnotatedSnapshot, remembering } from "./annotated-snapshot.ts";
import { testLife } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const NOW = at(7);
const COMPUTE = { runtime: "local", host: "a", id: "aw-sandbox-uid-1", boot: 1, provisionedAt: at(0) } as const;
const RUNNING: Partial<SandboxStatus> = {
  boot: 1,
  compute: COMPUTE,
  expiresAt: at(600),
};
const operation = (verb: "Hibernate" | "Close" | "Snapshot") =>
  ({ id: "op", verb, reason: "r", stage: "Intended", since: at(1), attempts: 0 }) as const;

interface Given {
  readonly id?: string;
  readonly by?: string;
  readonly status?: Partial<SandboxStatus>;
  readonly change?: Parameters<typeof sandboxOf>[0];
}

function annotated({ id = "wish", by, status = RUNNING, change = {} }: Given = {}): Sandbox {
  const annotations = { [SNAPSHOT_REQUESTED]: id, ...(by === undefined ? {} : { [SNAPSHOT_REQUESTED_BY]: by }) };
  return sandboxOf({ ...change, metadata: { uid: "sandbox-uid", annotations, ...change.metadata }, status });
}
const judged = (given?: Given): AnnotatedSnapshot => judgeAnnotatedSnapshot(annotated(given), NOW);
const wish = (user = "system:unknown"): SandboxRequest => ({ id: "wish", verb: "Snapshot", user, at: NOW });
const open = (id: string, verb: SandboxRequest["verb"] = "Snapshot"): SandboxRequest => ({
  id,
  verb,
  user: "ada",
  at: at(1),
});

test("of a session that runs it becomes a request, by whoever is named beside it", () => {
  assert.deepEqual(judged({ by: "ada" }), { kind: "TakenUp", id: "wish", requests: [wish("ada")] });
  assert.deepEqual(judged(), { kind: "TakenUp", id: "wish", requests: [wish()] }, "where nothing stamps nobody knows");
  const known = [open("earlier", "Touch")];
  assert.deepEqual(judged({ status: { ...RUNNING, requests: known } }), {
    kind: "TakenUp",
    id: "wish",
    requests: [...known, wish()],
  });
});

test("without the annotation, and once it was taken up, there is nothing to do, also when requests[] has dropped it", () => {
  assert.deepEqual(judgeAnnotatedSnapshot(sandboxOf({ status: RUNNING }), NOW), { kind: "None" });
  assert.deepEqual(judged({ status: { ...RUNNING, snapshotsRequested: ["wish", "later"] } }), { kind: "None" });
});

test("what was asked for by verb with the same id is the same wish: it is remembered and not asked for again", () => {
  assert.deepEqual(judged({ status: { ...RUNNING, requests: [open("wish")] } }), { kind: "TakenUp", id: "wish" });
});

test("an id of another verb is refused", () => {
  const end = judged({ status: { ...RUNNING, requests: [open("wish", "Close")] } });
  assert.ok(end.kind === "Refused" && end.requests === undefined);
  assert.equal(end.because, "the id was used for a close");
});

const waiting: [name: string, given: Given][] = [
  ["a session that was never booted", { status: {} }],
  ["a session that is not Ready yet", { status: { boot: 1, compute: COMPUTE } }],
  ["status that names a stranger's container", { status: { ...RUNNING, compute: { ...COMPUTE, id: "aw-other-1" } } }],
  [
    "every place taken by what nobody has answered",
    { status: { ...RUNNING, requests: Array.from({ length: LIMITS.requests }, (_, index) => open(`open-${index}`)) } },
  ],
];
for (const [name, given] of waiting) {
  test(`${name}: it is taken up later`, () => assert.deepEqual(judged(given), { kind: "Later" }));
}

const over: [what: string, code: string, given: Given][] = [
  ["that ends in a hibernation", "Hibernating", { status: { ...RUNNING, operation: operation("Hibernate") } }],
  ["that sleeps", "Hibernated", { status: { boot: 1 } }],
  ["that was made asleep", "Hibernated", { status: {}, change: { spec: { mode: "Hibernated" } } }],
  ["that is being closed", "Closing", { status: { ...RUNNING, operation: operation("Close") } }],
  ["that is being deleted", "Closing", { change: { metadata: { deletionTimestamp: at(2) } } }],
  ["that is closed", "Closed", { status: { boot: 1, closed: { at: at(3) } } }],
];
for (const [what, code, given] of over) {
  test(`a session ${what} refuses it as it refuses the verb, and the answer says so: ${code}`, () => {
    const end = judged(given);
    assert.ok(end.kind === "Refused");
    const [request] = end.requests ?? [];
    assert.equal(request?.result?.outcome, "Refused");
    assert.equal(request?.result?.code, code);
    assert.equal(request?.result?.message, end.because);
  });
}

for (const id of ["", "two words", "x".repeat(65), "ümlaut", "-dash"]) {
  test(`${JSON.stringify(id.slice(0, 12))} is no id: refused, and what is remembered fits into status`, () => {
    const end = judged({ id });
    assert.ok(end.kind === "Refused");
    assert.match(end.because, /no id of 1 to 64 letters/);
    assert.equal(end.requests, undefined);
    assert.ok(end.id.length >= 1 && end.id.length <= 64);
    assert.deepEqual(judged({ id, status: { ...RUNNING, snapshotsRequested: [end.id] } }), { kind: "None" });
  });
}

test("the newest 32 are remembered", () => {
  const many = Array.from({ length: 32 }, (_, index) => `id-${index}`);
  const after = remembering(sandboxOf({ status: { snapshotsRequested: many } }), "new");
  assert.deepEqual(after, [...many.slice(1), "new"]);
});

type Parts = Awaited<ReturnType<typeof memoryParts>>;
const annotate = (parts: Parts, id: string): void =>
  parts.change((sandbox) => ({
    ...sandbox,
    metadata: {
      ...sandbox.metadata,
      annotations: { ...sandbox.metadata.annotations, [SNAPSHOT_REQUESTED]: id, [SNAPSHOT_REQUESTED_BY]: "bob" },
    },
  }));
const requestOf = (parts: Parts, id: string) => parts.sandbox()?.status.requests?.find((request) => request.id === id);
const versionsOf = (parts: Parts) => parts.world().status.versions ?? [];

testLife("a snapshot that is asked for by annotation is made once, by the name of who asked", {
  async live(parts) {
    await parts.until("running", () => parts.sandbox()?.status.expiresAt !== undefined);
    parts.work("one");
    annotate(parts, "wish");
    await parts.until("answered", () => requestOf(parts, "wish")?.result !== undefined);
    assert.equal(requestOf(parts, "wish")?.result?.outcome, "Succeeded");
    assert.equal(versionsOf(parts).length, 2);
    assert.equal(versionsOf(parts).at(-1)?.causedBy.user, "bob");
    parts.change(({ status, ...sandbox }) => ({ ...sandbox, status: { ...status, requests: [] } }));
    for (let passes = 0; passes < 5; passes++) await parts.pass();
    assert.equal(versionsOf(parts).length, 2, "the same id never again");
    annotate(parts, "another");
    await parts.until("answered again", () => requestOf(parts, "another")?.result !== undefined);
    assert.equal(versionsOf(parts).length, 3);
  },
});

test("a refused one is told once: by an Event, and where it can have one by an answer", async () => {
  const parts = await memoryParts({ sandbox: { spec: { mode: "Hibernated" } } });
  annotate(parts, "wish");
  for (let passes = 0; passes < 3; passes++) await parts.pass();
  assert.equal(requestOf(parts, "wish")?.result?.code, "Hibernated");
  annotate(parts, "no id");
  for (let passes = 0; passes < 3; passes++) await parts.pass();
  const told = parts.events.filter(({ reason }) => reason === "SnapshotNotTaken");
  assert.deepEqual(
    told.map(({ message }) => message),
    [
      "the annotation agentworlds.dev/snapshot-requested: wish makes no version: the session is hibernated: its work is in its last version",
      "the annotation agentworlds.dev/snapshot-requested: no id makes no version: it is no id of 1 to 64 letters, digits, '-', '_' or '.', the first a letter or digit",
    ],
  );
  assert.deepEqual(parts.sandbox()?.status.snapshotsRequested, ["wish", "no id"]);
});
