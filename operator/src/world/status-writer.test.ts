import assert from "node:assert/strict";
import { test } from "node:test";
import type { LostWork, World, WorldRescue } from "@agentworlds/crds";
import fc from "fast-check";
import { isConflict } from "../kube/errors.ts";
import { WORLDS } from "../kube/resource-types.ts";
import { type MemoryResource, memoryResource } from "../runtime/memory-resource.test-kit.ts";
import { at, versionOf, worldOf } from "../runtime/test-objects.test-kit.ts";
import { CommitRefused, createWorldStatusWriter, WORLD_FINALIZER, WorldGone, type WorldRef } from "./status-writer.ts";

const { signal } = new AbortController();
const ref: WorldRef = { namespace: "team", name: "lab", uid: "world-uid" };
const genesis = versionOf(0);
const claim = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, at: at(1) };
const holder = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };
const request = {
  operation: "publish-1",
  sandbox: { name: "one", uid: "sandbox-uid" },
  base: genesis.digest,
  at: at(100),
};
const rescue: WorldRescue = {
  operation: "publish-1",
  sandbox: { name: "one", uid: "sandbox-uid" },
  runtime: "local",
  host: "a",
  computeId: "aw-sandbox-uid-1",
  reason: "SnapshotFailed",
  message: "the registry refused it",
  since: at(200),
};

const withGenesis = (change: Parameters<typeof worldOf>[0] = {}): World =>
  worldOf({
    ...change,
    status: {
      repository: "registry/worlds/lab",
      versions: [genesis],
      head: { version: 0, digest: genesis.digest, image: "registry/worlds/lab@x" },
      nextVersion: 1,
      ...change.status,
    },
  });

function setup(world: World = withGenesis({ status: { holder } })) {
  const worlds = memoryResource<World>(WORLDS, [world]);
  const writer = createWorldStatusWriter(worlds);
  const now = (): World => {
    const found = worlds.peek(ref);
    assert.ok(found);
    return found;
  };
  /** Somebody else writes a field this writer knows nothing about. */
  const foreign = (description: string) => () => {
    worlds.put({ ...now(), metadata: { ...now().metadata, labels: { ...now().metadata.labels, [description]: "1" } } });
  };
  return { worlds, writer, now, foreign };
}

/** DESIGN §4.6: a write without the resourceVersion it was decided on could undo somebody's. */
function assertEveryWriteIsGuarded(worlds: MemoryResource<World>): void {
  assert.ok(worlds.writes.length > 0, "nothing was written: this proves nothing");
  for (const { body } of worlds.writes) {
    const { metadata } = body as { metadata?: { resourceVersion?: string } };
    assert.match(metadata?.resourceVersion ?? "missing", /^\d+$/);
  }
}

const publish = (version: number) => ({
  operation: "publish-1",
  version: versionOf(version, { operation: "publish-1", parent: genesis.digest }),
  image: "registry/worlds/lab@new",
});

test("reserve, commit: the version is listed, head moves, the reservation is gone, the number is burned", async () => {
  const { worlds, writer, now } = setup();
  const verdict = await writer.reserve(ref, request, signal);
  assert.equal(verdict.kind, "reserve");
  assert.equal(now().status.pending?.operation, "publish-1");
  await writer.commit(ref, publish(1), signal);
  const { head, pending, versions, nextVersion } = now().status;
  assert.equal(head?.version, 1);
  assert.equal(head?.image, "registry/worlds/lab@new");
  assert.equal(pending, undefined);
  assert.deepEqual(
    versions?.map(({ version }) => version),
    [0, 1],
  );
  assert.equal(nextVersion, 2);
  assertEveryWriteIsGuarded(worlds);
});

test("a foreign write between read and reservation is kept, and the reservation is decided again", async () => {
  const { worlds, writer, now, foreign } = setup();
  worlds.interfere(foreign("first"), foreign("second"));
  await writer.reserve(ref, request, signal);
  assert.deepEqual(now().metadata.labels, { first: "1", second: "1" });
  assert.equal(now().status.pending?.version, 1);
  assert.deepEqual(
    worlds.writes.map(({ outcome }) => outcome),
    ["conflict", "conflict", "written"],
  );
});

test("another operation that was faster wins; ours is refused and overwrites nothing", async () => {
  const { worlds, writer, now } = setup();
  const theirs = { operation: "publish-9", version: 1, since: at(50) };
  worlds.interfere(() => worlds.put({ ...now(), status: { ...now().status, pending: theirs, nextVersion: 2 } }));
  const verdict = await writer.reserve(ref, request, signal);
  assert.equal(verdict.kind, "refused");
  assert.deepEqual(now().status.pending, theirs);
});

test("a reservation whose answer was lost is found again by the same operation, with the same number", async () => {
  const { worlds, writer, now } = setup();
  worlds.loseNextAnswer(true);
  await assert.rejects(writer.reserve(ref, request, signal), { name: "ConnectionError" });
  const verdict = await writer.reserve(ref, { ...request, at: at(999) }, signal);
  assert.deepEqual(verdict, { kind: "reserved", pending: now().status.pending });
  assert.equal(now().status.nextVersion, 2);
});

test("a commit whose answer was lost is found again; there is one version", async () => {
  const { worlds, writer, now } = setup();
  await writer.reserve(ref, request, signal);
  worlds.loseNextAnswer(true);
  await assert.rejects(writer.commit(ref, publish(1), signal), { name: "ConnectionError" });
  await writer.commit(ref, publish(1), signal);
  assert.equal((await writer.reserve(ref, request, signal)).kind, "committed");
  assert.deepEqual(
    now().status.versions?.map(({ version }) => version),
    [0, 1],
  );
});

test("nothing is committed without the reservation, and head stays", async () => {
  const { writer, now } = setup();
  await assert.rejects(writer.commit(ref, publish(1), signal), CommitRefused);
  assert.equal(now().status.head?.version, 0);
});

test("a head that somebody moved under a reservation takes no commit, and the reservation stands in nobody's way", async () => {
  for (const act of ["commit", "reserve"] as const) {
    const { worlds, writer, now } = setup();
    await writer.reserve(ref, request, signal);
    const head = { version: 0, digest: versionOf(7).digest, image: "registry/worlds/lab@other" };
    worlds.put({ ...now(), status: { ...now().status, head } });
    if (act === "commit") await assert.rejects(writer.commit(ref, publish(1), signal), CommitRefused);
    else assert.equal((await writer.reserve(ref, request, signal)).kind, "refused");
    const { status } = now();
    assert.deepEqual([status.head, status.pending, status.nextVersion], [head, undefined, 2]);
    assertEveryWriteIsGuarded(worlds);
  }
});

test("genesis is recorded in the write that makes version 0 head", async () => {
  const { worlds, writer, now } = setup(worldOf());
  await writer.reserve(ref, { operation: "genesis", at: at(0) }, signal);
  const source = { image: "busybox:1", digest: genesis.digest, platform: "linux/amd64" } as const;
  await writer.commit(
    ref,
    { operation: "genesis", version: versionOf(0, { operation: "genesis" }), image: "image@0", genesis: source },
    signal,
  );
  assert.deepEqual(now().status.genesis, source);
  assert.equal(now().status.head?.version, 0);
  assert.equal(worlds.writes.length, 2);
});

test("a number given up is burned: the next reservation takes another", async () => {
  const { writer, now } = setup();
  await writer.reserve(ref, request, signal);
  await writer.abandon(ref, "publish-1", signal);
  assert.equal(now().status.pending, undefined);
  const again = await writer.reserve(ref, request, signal);
  assert.ok(again.kind === "reserve");
  assert.equal(again.pending.version, 2);
});

test("giving up somebody else's reservation writes nothing", async () => {
  const { worlds, writer, now } = setup();
  await writer.reserve(ref, request, signal);
  const before = worlds.writes.length;
  await writer.abandon(ref, "publish-9", signal);
  assert.equal(worlds.writes.length, before);
  assert.equal(now().status.pending?.operation, "publish-1");
});

test("the holder comes first and the finalizer with it, so that nobody sees a finalizer without a holder", async () => {
  const { worlds, writer, now } = setup(withGenesis());
  assert.equal((await writer.hold(ref, claim, signal)).kind, "hold");
  assert.deepEqual(now().metadata.finalizers, [WORLD_FINALIZER]);
  assert.deepEqual(now().status.holder, holder);
  assert.deepEqual(
    worlds.writes.map(({ verb }) => verb),
    ["patchStatus", "patch"],
  );
  assertEveryWriteIsGuarded(worlds);
});

test("a hold whose finalizer was not written is guarded by the next pass", async () => {
  const { worlds, writer, now } = setup(withGenesis());
  worlds.interfere(
    () => undefined,
    () => worlds.loseNextAnswer(false),
  );
  await assert.rejects(writer.hold(ref, claim, signal), { name: "ConnectionError" });
  assert.deepEqual(now().metadata.finalizers ?? [], []);
  assert.equal((await writer.hold(ref, claim, signal)).kind, "held");
  assert.deepEqual(now().metadata.finalizers, [WORLD_FINALIZER]);
});

test("a World that vanishes between the hold and its finalizer is gone: nothing boots from it", async () => {
  const { worlds, writer } = setup(withGenesis());
  worlds.interfere(
    () => undefined,
    () => worlds.drop(ref),
  );
  await assert.rejects(writer.hold(ref, claim, signal), WorldGone);
});

test("other finalizers stay when ours comes and goes", async () => {
  const { writer, now } = setup(withGenesis({ metadata: { finalizers: ["acme.dev/keep"] } }));
  await writer.hold(ref, claim, signal);
  assert.deepEqual(now().metadata.finalizers, ["acme.dev/keep", WORLD_FINALIZER]);
  await writer.setFinalizer(now(), false, signal);
  assert.deepEqual(now().metadata.finalizers, ["acme.dev/keep"]);
});

test("of two Sandboxes that ask at once one holds, wherever the other cuts in", async () => {
  for (const cutsInBefore of [0, 1]) {
    const { worlds, writer, now } = setup(withGenesis());
    const theirs = { ...holder, sandbox: "two", uid: "two-uid" };
    const others = Array.from({ length: cutsInBefore }, () => () => undefined);
    worlds.interfere(...others, () => worlds.put({ ...now(), status: { ...now().status, holder: theirs } }));
    const verdict = await writer.hold(ref, claim, signal);
    assert.equal(verdict.kind, "refused");
    assert.deepEqual(now().status.holder, theirs);
  }
});

test("a World that is being deleted is held by nobody new", async () => {
  const { worlds, writer } = setup(withGenesis({ metadata: { deletionTimestamp: at(5), finalizers: ["x"] } }));
  await assert.rejects(writer.hold(ref, claim, signal), WorldGone);
  assert.deepEqual(worlds.writes, []);
});

test("a World that is deleted under its holder stays the holder's, and nobody else's", async () => {
  const deletionTimestamp = at(2);
  const finalizers = [WORLD_FINALIZER];
  const ending = setup(withGenesis({ metadata: { deletionTimestamp, finalizers }, status: { holder } }));
  assert.equal((await ending.writer.hold(ref, claim, signal)).kind, "held");
  assert.deepEqual(ending.worlds.writes, []);
  const free = setup(withGenesis({ metadata: { deletionTimestamp, finalizers } }));
  await assert.rejects(free.writer.hold(ref, claim, signal), WorldGone);
});

test("letting go ends exactly this Sandbox's hold", async () => {
  const { worlds, writer, now } = setup();
  await writer.letGo(ref, "other-uid", signal);
  assert.deepEqual(now().status.holder, holder);
  assert.deepEqual(worlds.writes, []);
  await writer.letGo(ref, "sandbox-uid", signal);
  assert.equal(now().status.holder, undefined);
});

test("letting go of a World that is gone, or was replaced under its name, is a success", async () => {
  const { worlds, writer } = setup();
  worlds.drop(ref);
  await writer.letGo(ref, "sandbox-uid", signal);
  const theirs = { ...holder, uid: "somebody-else" };
  worlds.put(withGenesis({ metadata: { uid: "another" }, status: { holder: theirs } }));
  await writer.letGo(ref, "sandbox-uid", signal);
  assert.deepEqual(worlds.peek(ref)?.status.holder, theirs);
});

test("a World of the same name and another UID is a stranger to every call", async () => {
  const { worlds, writer } = setup();
  worlds.drop(ref);
  worlds.put(withGenesis({ metadata: { uid: "another" }, status: { holder } }));
  await assert.rejects(writer.read(ref, signal), WorldGone);
  await assert.rejects(writer.reserve(ref, request, signal), WorldGone);
  await assert.rejects(writer.commit(ref, publish(1), signal), WorldGone);
  await assert.rejects(writer.hold(ref, claim, signal), WorldGone);
  await assert.rejects(writer.recordRescue(ref, rescue, signal), WorldGone);
  assert.deepEqual(worlds.writes, []);
});

test("a World replaced between read and write is not written: its resourceVersion is another's", async () => {
  const { worlds, writer } = setup();
  worlds.interfere(() => {
    worlds.drop(ref);
    worlds.put(withGenesis({ metadata: { uid: "another" }, status: { holder } }));
  });
  await assert.rejects(writer.reserve(ref, request, signal), WorldGone);
  assert.equal(worlds.peek(ref)?.status.pending, undefined);
});

test("one write records the rescue, ends the hold and clears the reservation", async () => {
  const { worlds, writer, now } = setup();
  await writer.reserve(ref, request, signal);
  const before = worlds.writes.length;
  await writer.recordRescue(ref, rescue, signal);
  assert.equal(worlds.writes.length, before + 1);
  assert.deepEqual(now().status.rescues, [rescue]);
  assert.equal(now().status.holder, undefined);
  assert.equal(now().status.pending, undefined);
});

test("a rescue recorded twice is listed once, with the time of the first", async () => {
  const { writer, now } = setup();
  await writer.recordRescue(ref, rescue, signal);
  await writer.recordRescue(ref, { ...rescue, since: at(999) }, signal);
  assert.deepEqual(now().status.rescues, [rescue]);
});

test("a rescue that is recorded already writes nothing", async () => {
  const { worlds, writer } = setup();
  await writer.recordRescue(ref, rescue, signal);
  const before = worlds.writes.length;
  await writer.recordRescue(ref, rescue, signal);
  assert.equal(worlds.writes.length, before);
});

test("a rescue leaves another session's hold and reservation alone", async () => {
  const theirs = { ...holder, sandbox: "two", uid: "two-uid" };
  const pending = { operation: "publish-9", version: 1, since: at(50) };
  const { writer, now } = setup(withGenesis({ status: { holder: theirs, pending, nextVersion: 2 } }));
  await writer.recordRescue(ref, rescue, signal);
  assert.deepEqual(now().status.holder, theirs);
  assert.deepEqual(now().status.pending, pending);
});

test("the end of a rescue drops that one, says what is lost, and writes nothing when it is gone already", async () => {
  const other = { ...rescue, operation: "publish-2" };
  const { worlds, writer, now } = setup(withGenesis({ status: { rescues: [rescue, other] } }));
  await writer.endRescue(ref, { operation: "publish-1" }, signal);
  assert.deepEqual(now().status.rescues, [other]);
  assert.equal(now().status.lostWork, undefined);
  const before = worlds.writes.length;
  await writer.endRescue(ref, { operation: "publish-1" }, signal);
  assert.equal(worlds.writes.length, before);
  const { sandbox, runtime, host, computeId } = other;
  const where = { operation: "publish-2", sandbox, runtime, host, computeId };
  const lost: LostWork = { ...where, cause: "Expired", message: "over", since: at(0), at: at(9) };
  await writer.endRescue(ref, { operation: "publish-2", lost }, signal);
  assert.deepEqual([now().status.rescues, now().status.lostWork], [[], [lost]]);
});

test("a World that is replaced while it is read keeps what is its own", async () => {
  const { worlds, writer } = setup(withGenesis({ status: { rescues: [rescue] } }));
  worlds.interfere(() => {
    worlds.drop(ref);
    worlds.put(withGenesis({ metadata: { uid: "another" }, status: { rescues: [rescue] } }));
  });
  await assert.rejects(writer.endRescue(ref, { operation: "publish-1" }, signal), WorldGone);
  assert.deepEqual(worlds.peek(ref)?.status.rescues, [rescue]);
});

test("a failed attempt is written down in one write that gives its number back", async () => {
  const { worlds, writer, now } = setup(
    withGenesis({
      status: { rescues: [rescue], pending: { operation: "publish-1", version: 1, since: at(5) }, nextVersion: 2 },
    }),
  );
  const fields = { attempts: 1, retryAt: at(20), lastError: "no registry" };
  await writer.changeRescue(ref, { operation: "publish-1", fields, abandon: true }, signal);
  assert.deepEqual(now().status.rescues, [{ ...rescue, ...fields }]);
  assert.equal(now().status.pending, undefined);
  assert.equal(now().status.nextVersion, 2, "the number stays burned");
  assert.equal(worlds.writes.length, 1);
});

test("contention without end is thrown as the conflict it is, not swallowed", async () => {
  const { worlds, writer, foreign } = setup();
  worlds.interfere(...Array.from({ length: 100 }, (_, index) => foreign(`w${index}`)));
  await assert.rejects(writer.reserve(ref, request, signal), isConflict);
});

test("what is no conflict is thrown at once", async () => {
  const { worlds, writer } = setup();
  worlds.loseNextAnswer(false);
  await assert.rejects(writer.reserve(ref, request, signal), { name: "ConnectionError" });
  assert.equal(worlds.writes.length, 1);
});

test("the summary of a stale pass is refused: it can undo nobody's reservation", async () => {
  const { writer, now } = setup();
  const stale = now();
  await writer.reserve(ref, request, signal);
  await assert.rejects(writer.summarise(stale, { pending: null, observedGeneration: 7 }, signal), { status: 409 });
  assert.equal(now().status.pending?.operation, "publish-1");
});

test("whatever several publishers do with whatever interruptions: no foreign write is lost, versions only grow, each operation makes one", async () => {
  const step = fc.record({
    operation: fc.constantFrom("publish-1", "publish-2"),
    call: fc.constantFrom("reserve", "commit", "abandon", "hold", "rescue" as const),
    cutsIn: fc.nat(2),
    lost: fc.constantFrom(undefined, undefined, true, false),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 25, size: "max" }), async (steps) => {
      const { worlds, writer, now, foreign } = setup();
      const labels: string[] = [];
      let nextVersion = 1;
      for (const [index, { operation, call, cutsIn, lost }] of steps.entries()) {
        const cuts = Array.from({ length: cutsIn }, (_, cut) => `w${index}-${cut}`);
        worlds.interfere(
          ...cuts.map((label) => () => {
            foreign(label)();
            labels.push(label);
          }),
        );
        if (lost !== undefined) worlds.loseNextAnswer(lost);
        const base = now().status.head?.digest;
        const pending = now().status.pending;
        try {
          if (call === "reserve")
            await writer.reserve(ref, { ...request, operation, ...(base ? { base } : {}) }, signal);
          else if (call === "abandon") await writer.abandon(ref, operation, signal);
          else if (call === "hold") await writer.hold(ref, claim, signal);
          else if (call === "rescue")
            await writer.recordRescue(ref, { ...rescue, operation: `${operation}-rescued` }, signal);
          else {
            const version = versionOf(pending?.version ?? 99, { operation });
            await writer.commit(ref, { operation, version, image: "image" }, signal);
          }
        } catch (error) {
          assert.ok(error instanceof Error && ["ConnectionError", "CommitRefused"].includes(error.name), String(error));
        }
        const { status, metadata } = now();
        for (const label of labels) assert.equal(metadata.labels?.[label], "1", "a foreign write was lost");
        assert.ok((status.nextVersion ?? 0) >= nextVersion);
        nextVersion = status.nextVersion ?? 0;
        const numbers = status.versions?.map(({ version }) => version) ?? [];
        assert.deepEqual(
          numbers,
          [...new Set(numbers)].sort((a, b) => a - b),
        );
        const operations = status.versions?.map((version) => version.operation) ?? [];
        assert.equal(new Set(operations).size, operations.length);
        assert.equal(status.head?.version, numbers.at(-1));
      }
      if (worlds.writes.length > 0) assertEveryWriteIsGuarded(worlds);
    }),
    { numRuns: 200 },
  );
});
