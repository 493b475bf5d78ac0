import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { aliveEveryMs, type TouchQuestion, type TouchVerdict, touchDeadline, touchWrite } from "./touch.ts";

const base: TouchQuestion = { now: 1_000, ttlMs: 500, expiresAt: 1_200, lifetimeEndsAt: 10_000, explicit: false };

const cases: [name: string, change: Partial<TouchQuestion>, want: TouchVerdict][] = [
  ["a touch moves the deadline to now plus ttl", {}, { kind: "set", expiresAt: 1_500 }],
  ["a touch never shortens", { expiresAt: 5_000 }, { kind: "unchanged" }],
  ["a touch to the same instant changes nothing", { expiresAt: 1_500 }, { kind: "unchanged" }],
  ["an implicit touch is clamped to the lifetime", { ttlMs: 60_000 }, { kind: "set", expiresAt: 10_000 }],
  [
    "a stated wish beyond the lifetime is refused and says how much is left",
    { ttlMs: 60_000, explicit: true },
    { kind: "refused", lifetimeEndsAt: 10_000, longestTtlMs: 9_000 },
  ],
  ["a stated wish up to the lifetime is granted", { ttlMs: 9_000, explicit: true }, { kind: "set", expiresAt: 10_000 }],
  ["after the lifetime an implicit touch moves nothing", { now: 11_000, expiresAt: 10_000 }, { kind: "unchanged" }],
  [
    "after the lifetime no wish is granted",
    { now: 11_000, explicit: true },
    { kind: "refused", lifetimeEndsAt: 10_000, longestTtlMs: 0 },
  ],
  ["a late touch before the intent to hibernate revives", { now: 3_000 }, { kind: "set", expiresAt: 3_500 }],
  ["a clock set back does not shorten", { now: 100 }, { kind: "unchanged" }],
];
for (const [name, change, want] of cases) {
  test(name, () => assert.deepEqual(touchDeadline({ ...base, ...change }), want));
}

test("whatever the order of touches, the deadline never shrinks and never passes the lifetime", () => {
  const touch = fc.record({ now: fc.nat(20_000), ttlMs: fc.integer({ min: 1, max: 20_000 }), explicit: fc.boolean() });
  fc.assert(
    fc.property(fc.array(touch), (touches) => {
      let expiresAt = 1_000;
      for (const each of touches) {
        const verdict = touchDeadline({ ...each, expiresAt, lifetimeEndsAt: 10_000 });
        if (verdict.kind !== "set") continue;
        assert.ok(verdict.expiresAt > expiresAt && verdict.expiresAt <= 10_000);
        expiresAt = verdict.expiresAt;
      }
    }),
  );
});

test("an implicit touch that moves the deadline by less than a second writes nothing", () => {
  const facts = { now: 1_000, ttlMs: 900_000, expiresAt: 1_200, lastActivityAt: 900, asked: false };
  assert.deepEqual(touchWrite({ kind: "set", expiresAt: 2_199 }, facts), {});
  assert.deepEqual(touchWrite({ kind: "set", expiresAt: 2_200 }, facts), { expiresAt: 2_200 });
});

test("a touch that was asked for is written however little it moves", () => {
  const facts = { now: 1_000, ttlMs: 900_000, expiresAt: 1_200, lastActivityAt: 900, asked: true };
  assert.deepEqual(touchWrite({ kind: "set", expiresAt: 1_201 }, facts), { expiresAt: 1_201 });
});

test("lastActivityAt is written at most every ten seconds", () => {
  const facts = { ttlMs: 900_000, expiresAt: 90_000, asked: false };
  const unchanged = { kind: "unchanged" } as const;
  assert.deepEqual(touchWrite(unchanged, { ...facts, now: 20_000, lastActivityAt: 10_001 }), {});
  assert.deepEqual(touchWrite(unchanged, { ...facts, now: 20_000, lastActivityAt: 10_000 }), {
    lastActivityAt: 20_000,
  });
  assert.deepEqual(touchWrite(unchanged, { ...facts, now: 20_000, lastActivityAt: undefined }), {
    lastActivityAt: 20_000,
  });
});

test("a session does not expire under work that runs in it, however short its ttl and however the touches are delayed", () => {
  const lateness = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 1, maxLength: 30 });
  const ttls = fc.oneof(fc.integer({ min: 1, max: 10 }), fc.integer({ min: 1, max: 2_592_000 }));
  fc.assert(
    fc.property(ttls, lateness, fc.integer({ min: 0, max: 1_000 }), (ttlSeconds, delays, age) => {
      const ttlMs = ttlSeconds * 1_000;
      let now = 1_000_000;
      // Work begins on a session that was touched some time ago, and touches it.
      let expiresAt = now + ttlMs - Math.min(age, ttlMs - 1);
      const touch = (): void => {
        const verdict = touchDeadline({ now, ttlMs, expiresAt, lifetimeEndsAt: Infinity, explicit: false });
        expiresAt =
          touchWrite(verdict, { now, ttlMs, expiresAt, lastActivityAt: now, asked: false }).expiresAt ?? expiresAt;
      };
      touch();
      for (const delay of delays) {
        // Up to a quarter of the ttl late.
        now += aliveEveryMs(ttlMs) + (delay * ttlMs) / 4;
        assert.ok(now < expiresAt, `expired ${now - expiresAt} ms before the touch`);
        touch();
      }
    }),
  );
});
