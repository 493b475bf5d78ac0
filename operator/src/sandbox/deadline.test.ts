import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type Deadline,
  type DeadlineVerdict,
  isToBeRescued,
  judgeDeadline,
  mendDeadline,
  sessionDurations,
  snapshotBackoffMs,
  startDeadline,
} from "./deadline.ts";

const deadline: Deadline = { expiresAt: 900, lifetimeEndsAt: 5_000 };

const cases: [name: string, given: Deadline, now: number, want: DeadlineVerdict][] = [
  [
    "a session that is not Ready has no deadline",
    { expiresAt: undefined, lifetimeEndsAt: undefined },
    9_999,
    { kind: "notStarted" },
  ],
  [
    "a deadline that was lost: before the end of its life nothing is known",
    { ...deadline, expiresAt: undefined },
    4_999,
    { kind: "notStarted" },
  ],
  [
    "a deadline that was lost outlives no lifetime",
    { ...deadline, expiresAt: undefined },
    5_000,
    { kind: "expired", by: "lifetime" },
  ],
  ["before the deadline it lives, and says when to look again", deadline, 100, { kind: "alive", wakeInMs: 800 }],
  ["one millisecond before the deadline it lives", deadline, 899, { kind: "alive", wakeInMs: 1 }],
  ["at the deadline it is over", deadline, 900, { kind: "expired", by: "deadline" }],
  ["after both, the lifetime is what ended it", deadline, 5_000, { kind: "expired", by: "lifetime" }],
  [
    "a deadline beyond the lifetime does not outlive it",
    { ...deadline, expiresAt: 9_000 },
    5_000,
    { kind: "expired", by: "lifetime" },
  ],
  [
    "it looks again at the lifetime when that comes first",
    { ...deadline, expiresAt: 9_000 },
    4_000,
    { kind: "alive", wakeInMs: 1_000 },
  ],
  [
    "without a lifetime the deadline decides",
    { expiresAt: 900, lifetimeEndsAt: undefined },
    900,
    { kind: "expired", by: "deadline" },
  ],
  ["a clock set back only waits longer", deadline, -1_000, { kind: "alive", wakeInMs: 1_900 }],
];
for (const [name, given, now, want] of cases) {
  test(name, () => assert.deepEqual(judgeDeadline(given, now), want));
}

const times = fc.record({
  expiresAt: fc.option(fc.nat(10_000), { nil: undefined }),
  lifetimeEndsAt: fc.option(fc.nat(10_000), { nil: undefined }),
});

test("looking again when told to finds the session over, never early and never late", () => {
  fc.assert(
    fc.property(times, fc.nat(10_000), (given, now) => {
      const verdict = judgeDeadline(given, now);
      if (verdict.kind !== "alive") return;
      assert.ok(verdict.wakeInMs > 0);
      assert.equal(judgeDeadline(given, now + verdict.wakeInMs - 1).kind, "alive");
      assert.equal(judgeDeadline(given, now + verdict.wakeInMs).kind, "expired");
    }),
  );
});

test("a boot's deadline never lies beyond its lifetime, and both count from Ready", () => {
  assert.deepEqual(startDeadline({ ttlMs: 900, maxLifetimeMs: 5_000 }, 100), {
    expiresAt: 1_000,
    lifetimeEndsAt: 5_100,
  });
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 10_000 }),
      fc.integer({ min: 1, max: 10_000 }),
      fc.nat(),
      (ttlMs, maxLifetimeMs, now) => {
        const { expiresAt, lifetimeEndsAt } = startDeadline({ ttlMs, maxLifetimeMs }, now);
        assert.ok(now < expiresAt && expiresAt <= lifetimeEndsAt);
        assert.equal(lifetimeEndsAt, now + maxLifetimeMs);
      },
    ),
  );
});

const SESSION = { ttlMs: 900, maxLifetimeMs: 5_000 };
const lost: [name: string, given: Deadline, want: Required<Deadline> | undefined][] = [
  ["nothing is lost", { expiresAt: 1_000, lifetimeEndsAt: 1_500 }, undefined],
  ["both: the clock starts anew", { expiresAt: undefined, lifetimeEndsAt: undefined }, startDeadline(SESSION, 100)],
  [
    "the deadline: a whole ttl, within the lifetime that stands",
    { expiresAt: undefined, lifetimeEndsAt: 400 },
    { expiresAt: 400, lifetimeEndsAt: 400 },
  ],
  [
    "the lifetime: the deadline stands",
    { expiresAt: 300, lifetimeEndsAt: undefined },
    { expiresAt: 300, lifetimeEndsAt: 5_100 },
  ],
  [
    "the lifetime, after the times were changed: a deadline that was promised is not cut",
    { expiresAt: 9_000, lifetimeEndsAt: undefined },
    { expiresAt: 9_000, lifetimeEndsAt: 9_000 },
  ],
];
for (const [name, given, want] of lost) {
  test(`times that a running session has lost: ${name}`, () =>
    assert.deepEqual(mendDeadline(given, SESSION, 100), want));
}

type Wish = Parameters<typeof sessionDurations>[0];
const durations: [name: string, sandbox: Wish, world: Wish | undefined, ttlMs: number, maxLifetimeMs: number][] = [
  ["without any wish: 15 minutes, 4 hours", {}, undefined, 900_000, 14_400_000],
  [
    "the World's times hold for a Sandbox that states none",
    {},
    { ttlSeconds: 60, maxLifetimeSeconds: 600 },
    60_000,
    600_000,
  ],
  [
    "the Sandbox's own wish goes first",
    { ttlSeconds: 30 },
    { ttlSeconds: 60, maxLifetimeSeconds: 600 },
    30_000,
    600_000,
  ],
  [
    "a ttl beyond the lifetime ends with it",
    { ttlSeconds: 3_600 },
    { ttlSeconds: 60, maxLifetimeSeconds: 600 },
    600_000,
    600_000,
  ],
  ["a lifetime shorter than the World's ttl cuts that", { maxLifetimeSeconds: 30 }, { ttlSeconds: 60 }, 30_000, 30_000],
];
for (const [name, sandbox, world, ttlMs, maxLifetimeMs] of durations) {
  test(`times of a session: ${name}`, () =>
    assert.deepEqual(sessionDurations(sandbox, world), { ttlMs, maxLifetimeMs }));
}

test("a failing snapshot is tried again after 2 s, then ever more rarely, and at least every 5 min", () => {
  assert.deepEqual(
    [0, 1, 2, 3, 8, 9, 1_000_000].map(snapshotBackoffMs),
    [2_000, 2_000, 4_000, 8_000, 256_000, 300_000, 300_000],
  );
});

const rescued: [
  name: string,
  attempts: number,
  seconds: number,
  verb: "Hibernate" | "Snapshot" | "Close",
  want: boolean,
][] = [
  ["an ending that failed for long enough", 9, 600, "Hibernate", true],
  ["a close, too", 9, 600, "Close", true],
  ["one that failed for less", 9, 599, "Hibernate", false],
  ["one that was hardly tried, by a clock that jumped", 2, 36_000, "Hibernate", false],
  ["a snapshot of a session that goes on", 9, 600, "Snapshot", false],
];
for (const [name, attempts, seconds, verb, want] of rescued) {
  test(`${name} ${want ? "becomes" : "does not become"} a rescue`, () => {
    const since = new Date(0).toISOString();
    assert.equal(isToBeRescued({ verb, since, attempts }, seconds * 1000, 600_000), want);
  });
}
