import assert from "node:assert/strict";
import { test } from "node:test";
import { checkProxiedTimeout, execTimeoutMs, type TimeoutFacts } from "./exec-timeout.ts";

const NOW = Date.parse("2026-05-01T10:00:00Z");
const facts = (changed: Partial<TimeoutFacts> = {}): TimeoutFacts => ({
  statedSeconds: undefined,
  proxiedLimitSeconds: undefined,
  lifetimeEndsAt: NOW + 3_600_000,
  now: NOW,
  ...changed,
});

const GIVEN: readonly [string, Partial<TimeoutFacts>, number][] = [
  ["nothing stated: a minute", {}, 60_000],
  ["nothing stated, through kube-apiserver: what it lets through", { proxiedLimitSeconds: 50 }, 50_000],
  ["a stated one is taken", { statedSeconds: 2.5 }, 2_500],
  ["2.01 s are 2009.9999999999998 ms: whole ones, since no timer takes others", { statedSeconds: 2.01 }, 2_010],
  ["less than a millisecond is one", { statedSeconds: 1e-6 }, 1],
  ["the default ends with the session", { lifetimeEndsAt: NOW + 20_000.5 }, 20_000],
  ["a second is left to every session", { lifetimeEndsAt: NOW - 5_000 }, 1_000],
];

for (const [what, given, expected] of GIVEN) {
  test(`timeout of a command: ${what}`, () => assert.equal(execTimeoutMs(facts(given)), expected));
}

test("a timeout beyond the session's lifetime is refused with what is possible", () => {
  assert.throws(() => execTimeoutMs(facts({ statedSeconds: 3_601 })), { code: "BeyondLifetime", remediation: /3600/ });
});

test("a timeout that no answer could survive is refused through kube-apiserver only", () => {
  assert.throws(() => checkProxiedTimeout({ statedSeconds: 51, proxiedLimitSeconds: 50 }), { code: "TimeoutTooLong" });
  checkProxiedTimeout({ statedSeconds: 50, proxiedLimitSeconds: 50 });
  checkProxiedTimeout({ statedSeconds: 51, proxiedLimitSeconds: undefined });
});
