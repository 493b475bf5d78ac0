import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorldHolder, WorldRescue, WorldStatus, WorldVersion } from "@agentworlds/crds";
import { at, versionOf } from "../runtime/test-objects.test-kit.ts";
import {
  judgeCommit,
  judgeHold,
  judgeReservation,
  MOST_VERSIONS,
  type ReservationRequest,
  versionToBoot,
} from "./lineage.ts";

const sandbox = { name: "one", uid: "sandbox-uid" };
const holder: WorldHolder = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: at(1) };
const genesis = versionOf(0);
const headOf = ({ version, digest }: WorldVersion) => ({ version, digest, image: `registry/lab@${digest}` });

/** A World with a genesis, held by the session that wants to publish. */
const held: WorldStatus = {
  observedGeneration: 1,
  versions: [genesis],
  head: headOf(genesis),
  nextVersion: 1,
  holder,
};
const request: ReservationRequest = { operation: "publish-1", sandbox, base: genesis.digest, at: at(100) };
const pending = { operation: "publish-1", version: 1, sandbox, base: genesis.digest, since: at(100) };

test("a reservation takes the next number, burns it, and fixes the version's time and base", () => {
  assert.deepEqual(judgeReservation(held, request), { kind: "reserve", nextVersion: 2, pending });
});

test("the genesis of a new World takes number 0, without a session and without a base", () => {
  assert.deepEqual(judgeReservation({ observedGeneration: -1 }, { operation: "genesis", at: at(0) }), {
    kind: "reserve",
    nextVersion: 1,
    pending: { operation: "genesis", version: 0, since: at(0) },
  });
});

test("a retry finds its own reservation, with the time of the first try", () => {
  assert.deepEqual(judgeReservation({ ...held, pending, nextVersion: 2 }, { ...request, at: at(999) }), {
    kind: "reserved",
    pending,
  });
});

test("a retry after the commit finds its own version and reserves nothing", () => {
  const version = versionOf(1, { operation: "publish-1" });
  const status = { ...held, versions: [genesis, version], head: headOf(version), nextVersion: 2 };
  assert.deepEqual(judgeReservation(status, request), { kind: "committed", version });
});

test("a retry after the commit finds it although another session publishes by now", () => {
  const version = versionOf(1, { operation: "publish-1" });
  const status: WorldStatus = {
    ...held,
    versions: [genesis, version],
    head: headOf(version),
    holder: { ...holder, uid: "other" },
    pending: { operation: "publish-2", version: 2, since: at(200) },
  };
  assert.equal(judgeReservation(status, request).kind, "committed");
});

test("a number that was given up is never taken again", () => {
  const verdict = judgeReservation({ ...held, nextVersion: 7 }, request);
  assert.ok(verdict.kind === "reserve");
  assert.equal(verdict.pending.version, 7);
});

test("a number that a version has is not taken again, whatever nextVersion was set to", () => {
  const version = versionOf(4);
  for (const nextVersion of [0, 4, undefined]) {
    const { nextVersion: _, ...rest } = held;
    const status = { ...rest, versions: [genesis, version], head: headOf(version) };
    const wish = { ...request, base: version.digest };
    const verdict = judgeReservation({ ...status, ...(nextVersion === undefined ? {} : { nextVersion }) }, wish);
    assert.ok(verdict.kind === "reserve");
    assert.equal(verdict.pending.version, 5);
    assert.equal(verdict.nextVersion, 6);
  }
});

const refusals: [name: string, status: WorldStatus, request: ReservationRequest, reason: string, names: RegExp][] = [
  [
    "while another publication is pending",
    { ...held, pending: { operation: "publish-0", version: 1, since: at(50) } },
    request,
    "AnotherPublicationPending",
    /version 1 .* publish-0/,
  ],
  [
    "to a session that does not hold the World",
    { ...held, holder: { ...holder, sandbox: "two", uid: "other" } },
    request,
    "NotTheHolder",
    /held by Sandbox two/,
  ],
  [
    "to a Sandbox of the holder's name and another UID",
    { ...held, holder: { ...holder, uid: "before" } },
    request,
    "NotTheHolder",
    /held by/,
  ],
  [
    "when nobody holds the World",
    { observedGeneration: 1, head: headOf(genesis), versions: [genesis] },
    request,
    "NotTheHolder",
    /does not hold/,
  ],
  [
    "over another head than the session's base",
    { ...held, head: headOf(versionOf(1)) },
    request,
    "BaseBehindHead",
    /head is sha256/,
  ],
  [
    "to a genesis when there is a head already",
    held,
    { operation: "genesis", at: at(0) },
    "BaseBehindHead",
    /based on nothing/,
  ],
  [
    "to a retry whose reservation was made on another head",
    { ...held, head: headOf(versionOf(1)), pending },
    request,
    "BaseBehindHead",
    /version 1 was reserved on sha256/,
  ],
  [
    "to a session on a base when there is no head",
    { observedGeneration: 1, holder },
    request,
    "BaseBehindHead",
    /head is nothing/,
  ],
];
for (const [name, status, asked, reason, names] of refusals) {
  test(`a reservation is refused ${name}`, () => {
    const verdict = judgeReservation(status, asked);
    assert.ok(verdict.kind === "refused", verdict.kind);
    assert.equal(verdict.reason, reason);
    assert.match(verdict.message, names);
  });
}

const committing = versionOf(1, { operation: "publish-1" });

test("one write appends the version, moves head and clears the reservation", () => {
  assert.deepEqual(
    judgeCommit({ ...held, pending }, { operation: "publish-1", version: committing, image: "registry/lab@x" }),
    {
      kind: "commit",
      patch: {
        head: { version: 1, digest: committing.digest, image: "registry/lab@x" },
        versions: [genesis, committing],
        pending: null,
      },
    },
  );
});

test("a second commit of the same operation changes nothing", () => {
  const status = { ...held, versions: [genesis, committing], head: headOf(committing) };
  assert.deepEqual(judgeCommit(status, { operation: "publish-1", version: committing, image: "image" }), {
    kind: "committed",
  });
});

const lost: [name: string, pending: WorldStatus["pending"]][] = [
  ["without a reservation", undefined],
  ["under another operation's reservation", { ...pending, operation: "publish-2" }],
  ["under a number that was given up for another", { ...pending, version: 2 }],
  ["over another head than the one that was reserved on", { ...pending, base: versionOf(7).digest }],
  ["over a head under a reservation that names none", { operation: "publish-1", version: 1, sandbox, since: at(100) }],
];
for (const [name, reservation] of lost) {
  test(`nothing is committed ${name}`, () => {
    const status = { ...held, ...(reservation ? { pending: reservation } : {}) };
    const verdict = judgeCommit(status, { operation: "publish-1", version: committing, image: "image" });
    assert.ok(verdict.kind === "refused");
    assert.equal(verdict.reason, "ReservationLost");
  });
}

const full = Array.from({ length: MOST_VERSIONS }, (_, index) => versionOf(index));

test("a full list refuses the reservation by name: no version is dropped without a word to make room", () => {
  const last = versionOf(MOST_VERSIONS - 1);
  const status: WorldStatus = { ...held, versions: full, head: headOf(last), nextVersion: MOST_VERSIONS };
  const verdict = judgeReservation(status, { ...request, base: last.digest });
  assert.ok(verdict.kind === "refused");
  assert.equal(verdict.reason, "TooManyVersions");
  assert.match(verdict.message, /128 versions.*unpin/);
  const room = judgeReservation({ ...status, versions: full.slice(1) }, { ...request, base: last.digest });
  assert.equal(room.kind, "reserve");
});

test("a full list takes no commit either", () => {
  const next = versionOf(MOST_VERSIONS, { operation: "publish-1" });
  const status: WorldStatus = { ...held, versions: full, pending: { ...pending, version: MOST_VERSIONS } };
  const verdict = judgeCommit(status, { operation: "publish-1", version: next, image: "image" });
  assert.ok(verdict.kind === "refused");
  assert.equal(verdict.reason, "TooManyVersions");
});

const claim = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, at: at(1) };
const rescue: WorldRescue = {
  operation: "publish-0",
  sandbox: { name: "zero", uid: "zero-uid" },
  runtime: "local",
  host: "a",
  computeId: "aw-zero-uid-1",
  reason: "SnapshotFailed",
  message: "the registry refused it",
  since: at(0),
};

test("a World that nobody holds is held", () => {
  assert.deepEqual(judgeHold({ observedGeneration: 1 }, claim), { kind: "hold", holder });
});

test("a holder that asks again holds since the first time", () => {
  assert.deepEqual(judgeHold({ observedGeneration: 1, holder }, { ...claim, at: at(999) }), { kind: "held" });
});

test("a second Sandbox waits and learns who holds, however long ago", () => {
  const verdict = judgeHold(
    { observedGeneration: 1, holder },
    { ...claim, sandbox: "two", uid: "two-uid", at: at(10_000_000) },
  );
  assert.ok(verdict.kind === "refused");
  assert.match(verdict.message, /^is held by Sandbox one since 2026-01-01T00:00:01/);
});

test("a Sandbox recreated under the holder's name is a stranger", () => {
  assert.equal(judgeHold({ observedGeneration: 1, holder }, { ...claim, uid: "recreated" }).kind, "refused");
});

test("unpublished work that is kept on a host holds the World, and the message says where it is", () => {
  const verdict = judgeHold({ observedGeneration: 1, rescues: [rescue] }, claim);
  assert.ok(verdict.kind === "refused");
  assert.match(
    verdict.message,
    /Sandbox zero is kept on local\/a as aw-zero-uid-1 \(rescue .+\): the registry refused it/,
  );
});

test("a session that is told to ignore rescues takes the World, and its hold names them", () => {
  const verdict = judgeHold({ observedGeneration: 1, rescues: [rescue] }, { ...claim, rescuePolicy: "Ignore" });
  assert.ok(verdict.kind === "hold");
  assert.deepEqual(verdict.holder.ignoredRescues, [rescue.operation]);
});

test("a rescue that is a version keeps nobody away: only its container is left", () => {
  const versions = [genesis, versionOf(1, { operation: rescue.operation })];
  assert.equal(judgeHold({ observedGeneration: 1, rescues: [rescue], versions }, claim).kind, "hold");
});

test("nobody takes the World while a rescue is being published, not even who ignores rescues", () => {
  const pending = { operation: rescue.operation, version: 1, sandbox: rescue.sandbox, since: at(1) };
  const status: WorldStatus = { observedGeneration: 1, rescues: [rescue], pending };
  for (const uid of ["another-uid", rescue.sandbox.uid]) {
    const verdict = judgeHold(status, { ...claim, uid, rescuePolicy: "Ignore" });
    assert.ok(verdict.kind === "refused");
    assert.match(verdict.message, /^waits: version 1 of Sandbox zero is being published/);
  }
});

test("where no more rescues can be written down nobody is let in whose work could not be kept", () => {
  const rescues = Array.from({ length: 16 }, (_, index) => ({ ...rescue, operation: `publish-${index}` }));
  const verdict = judgeHold({ observedGeneration: 1, rescues }, { ...claim, rescuePolicy: "Ignore" });
  assert.ok(verdict.kind === "refused");
});

test("a rescue reserves a number without a hold, while nobody holds the World and head is its base", () => {
  const status: WorldStatus = {
    observedGeneration: 1,
    rescues: [rescue],
    versions: [genesis],
    head: headOf(genesis),
    nextVersion: 1,
  };
  const request = { operation: rescue.operation, sandbox: rescue.sandbox, base: genesis.digest, at: at(5) };
  assert.equal(judgeReservation(status, request).kind, "reserve");
  const ofItself: WorldHolder = { ...holder, sandbox: rescue.sandbox.name, uid: rescue.sandbox.uid };
  const verdicts = [
    judgeReservation({ ...status, holder }, request),
    judgeReservation({ ...status, holder: ofItself }, request),
    judgeReservation({ ...status, rescues: [] }, request),
    judgeReservation({ ...status, head: headOf(versionOf(1)) }, request),
  ];
  assert.deepEqual(
    verdicts.map((verdict) => verdict.kind === "refused" && verdict.reason),
    ["NotTheHolder", "NotTheHolder", "NotTheHolder", "BaseBehindHead"],
  );
});

test("a session boots from head, or from the version it names, or not at all", () => {
  const status: WorldStatus = { ...held, versions: [genesis, versionOf(1)], head: headOf(versionOf(1)) };
  assert.deepEqual(versionToBoot(status, undefined), { version: 1, digest: versionOf(1).digest });
  assert.deepEqual(versionToBoot(status, 0), { version: 0, digest: genesis.digest });
  assert.equal(versionToBoot(status, 5), undefined);
  assert.equal(versionToBoot({ observedGeneration: 1 }, undefined), undefined);
});
