/** A boot that does not become Ready lets go of its World and its slot, says why, and is tried again after a pause. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { Overtaken, Terminal, Waiting } from "../reconciler/policy.ts";
import { RegistryError } from "../registry/errors.ts";
import { pauseMs, withinLimit } from "./boot-limit.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const LIMIT_MS = 900_000;
const statusOf = (parts: Parts) => parts.sandbox()?.status;
const ready = (parts: Parts) => findCondition(statusOf(parts)?.conditions, "Ready");
const isGivenUp = (parts: Parts) => statusOf(parts)?.lastEnding !== undefined;

/** As `until`, and the time stands still from then on. */
async function untilGivenUp(parts: Parts): Promise<void> {
  for (let passes = 0; passes < 200; passes++) {
    const waitMs = await parts.pass();
    if (isGivenUp(parts)) return;
    parts.clock.jump(Math.min(waitMs, 60_000));
  }
  assert.fail(`never given up: ${JSON.stringify(statusOf(parts))}`);
}

/** What keeps the only host from making a container that runs, and how it heals. */
const troubles: Record<string, { reason: string; begin(parts: Parts): void; end(parts: Parts): void }> = {
  "the container does not stay up": {
    reason: "HostRefused",
    begin: ({ host }) => {
      host.endsAtOnce = true;
    },
    end: ({ host }) => {
      host.endsAtOnce = false;
    },
  },
  "the host is silent": {
    reason: "HostUnreachable",
    begin: (parts) => parts.silenceHost(),
    end: (parts) => parts.silenceHost(false),
  },
};
for (const [what, { reason, begin, end }] of Object.entries(troubles)) {
  test(`${what}: at its limit the boot is given up, and the next one is Ready when that has healed`, async () => {
    const parts = await memoryParts({});
    const startedAt = parts.clock.now();
    begin(parts);
    await parts.until("told", () => ready(parts)?.reason === reason);
    assert.equal(statusOf(parts)?.compute?.bootDeadlineAt, new Date(startedAt + LIMIT_MS).toISOString());
    await untilGivenUp(parts);
    const { lastEnding, compute } = statusOf(parts) ?? {};
    assert.ok(parts.clock.now() >= startedAt + LIMIT_MS, "not before its time");
    assert.ok(parts.clock.now() < startedAt + LIMIT_MS + 120_000, "and not long after");
    assert.equal(compute, undefined, "the slot is free");
    assert.equal(parts.world().status.holder, undefined, "the World is free");
    assert.deepEqual(
      [lastEnding?.reason, lastEnding?.outcome, lastEnding?.failedBoots],
      ["BootTimedOut", "Discarded", 1],
    );
    assert.match(lastEnding?.message ?? "", new RegExp(reason));
    assert.deepEqual(parts.world().status.rescues ?? [], []);

    await parts.pass();
    assert.equal(ready(parts)?.status, "False");
    assert.equal(ready(parts)?.reason, "BootTimedOut");
    assert.match(ready(parts)?.message ?? "", new RegExp(reason));
    assert.ok(parts.events.some((event) => event.reason === "BootTimedOut"));
    assert.ok(!isTrue(statusOf(parts)?.conditions, "Hibernated"), "it is wanted, and does not sleep");
    const before = parts.effects.seen.length;
    await parts.pass();
    assert.equal(parts.effects.seen.length, before, "the pause costs nothing");

    end(parts);
    await parts.until("Ready", () => isReady(parts.sandbox()));
    assert.equal(statusOf(parts)?.boot, 2);
    assert.ok(parts.clock.now() >= Date.parse(lastEnding?.retryAt ?? ""), "not before the pause is over");
    parts.work("one");
    await parts.until("asleep", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one"]);
  });
}

test("a second boot in a row that fails waits longer; a touch tries at once", async () => {
  const parts = await memoryParts({});
  parts.host.endsAtOnce = true;
  await parts.until("given up twice", () => statusOf(parts)?.lastEnding?.failedBoots === 2);
  const { at = "", retryAt = "" } = statusOf(parts)?.lastEnding ?? {};
  assert.equal(Date.parse(retryAt) - Date.parse(at), pauseMs(2));
  assertClean(parts);
  parts.host.endsAtOnce = false;
  parts.ask("Touch", "now");
  await parts.pass();
  assert.ok(isReady(parts.sandbox()));
  assert.ok(parts.clock.now() < Date.parse(retryAt));
});

test("each pause is twice the last one, up to an hour", () => {
  assert.deepEqual([1, 2, 3, 6, 7, 5_000].map(pauseMs), [60_000, 120_000, 240_000, 1_920_000, 3_600_000, 3_600_000]);
});

test("what a boot throws never rests for ever, and never sleeps past the limit; it keeps its words", () => {
  const thrown = (failure: unknown, msLeft: number) => {
    const within = withinLimit(failure, msLeft);
    assert.ok(within instanceof Waiting);
    return [within.reason, within.message, within.remediation, within.tells, within.afterMs];
  };
  const stalls = new Terminal("Stalls", { message: "what", remediation: "how" });
  assert.deepEqual(thrown(stalls, 900_000), ["Stalls", "what", "how", "Warning", 60_000]);
  assert.deepEqual(thrown(stalls, 5), ["Stalls", "what", "how", "Warning", 5]);
  const waits = new Waiting("Waits", { message: "what", afterMs: 10_000, tells: "Normal" });
  assert.deepEqual(thrown(waits, 900_000), ["Waits", "what", undefined, "Normal", 10_000]);
  assert.deepEqual(thrown(waits, -1), ["Waits", "what", undefined, "Normal", 0]);
  for (const other of [new Overtaken("by another"), new TypeError("a bug"), undefined]) {
    assert.equal(withinLimit(other, 5), other);
  }
});

test("one that is turned to Hibernated, or closed, while it pauses is not tried again", async () => {
  for (const verb of ["mode", "close"] as const) {
    const parts = await memoryParts({});
    parts.host.endsAtOnce = true;
    await untilGivenUp(parts);
    if (verb === "close") parts.ask("Close", "end");
    else parts.change((one) => ({ ...one, spec: { ...one.spec, mode: "Hibernated" } }));
    await parts.pass();
    const { conditions } = statusOf(parts) ?? {};
    assert.ok(isTrue(conditions, verb === "close" ? "Closed" : "Hibernated"), verb);
    parts.clock.jump(pauseMs(1));
    await parts.pass();
    assert.equal(statusOf(parts)?.boot, 1);
  }
});

test("a throwaway session is tried again, too: it has not begun", async () => {
  for (const trouble of Object.values(troubles)) {
    const parts = await memoryParts({ sandbox: { spec: { image: "tools.example/tools:1" } } });
    trouble.begin(parts);
    await untilGivenUp(parts);
    assert.equal(statusOf(parts)?.closed, undefined);
    trouble.end(parts);
    await parts.until("Ready", () => isReady(parts.sandbox()));
  }
});

/** A session that names version 0 of a World whose head is version 1. */
async function pinnedBelowHead(): Promise<Parts> {
  const parts = await memoryParts({
    sandbox: { spec: { world: { name: "lab", version: 0 }, closePolicy: "Discard" } },
  });
  parts.changeWorld((world) => {
    const [genesis] = world.status.versions ?? [];
    assert.ok(genesis && world.status.head);
    const newer = { ...genesis, version: 1, operation: "newer", digest: `sha256:${"b".repeat(64)}` as const };
    const head = { ...world.status.head, version: 1, digest: newer.digest };
    return { ...world, status: { ...world.status, versions: [genesis, newer], nextVersion: 2, head } };
  });
  return parts;
}

const removeCompute = (parts: Parts): void =>
  parts.change(({ status: { compute: _, ...status }, ...rest }) => ({ ...rest, status }));

test("one that names an older version is tried again on that version, and still saves nothing", async () => {
  const parts = await pinnedBelowHead();
  parts.host.endsAtOnce = true;
  await untilGivenUp(parts);
  parts.host.endsAtOnce = false;
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(statusOf(parts)?.bootedFrom?.version, 0);
  assert.equal(statusOf(parts)?.compute?.saves, "Nothing");
  const { status } = parts.world();
  await parts.until("asleep", () => statusOf(parts)?.compute === undefined);
  assert.deepEqual([parts.world().status.head, parts.world().status.rescues ?? []], [status.head, []]);
});

test("one that is Ready is not given up, also where the cache does not show it and its host falls silent", async () => {
  const parts = await memoryParts({ sandbox: { spec: { ttlSeconds: 7_200 } } });
  parts.effects.beforeNext("create", () => parts.showCachedSandbox(parts.sandbox()));
  await parts.pass();
  assert.ok(isReady(parts.sandbox()));
  parts.work("precious");
  parts.clock.jump(LIMIT_MS);
  for (const isSilent of [false, true]) {
    parts.silenceHost(isSilent);
    await parts.pass();
    assert.equal(statusOf(parts)?.lastEnding, undefined);
    assert.equal(parts.host.containers.size, 1);
  }
  parts.showCachedSandbox();
  parts.silenceHost(false);
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["precious"]);
});

test("a pull that hangs is cut off at the limit", async () => {
  const parts = await memoryParts({});
  const { pull } = parts.host.driver;
  const begun = Promise.withResolvers<void>();
  Object.assign(parts.host.driver, {
    pull: (_image: string, _login: unknown, signal: AbortSignal) => {
      begun.resolve();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    },
  });
  const passing = parts.pass();
  await begun.promise;
  await parts.clock.advance(LIMIT_MS);
  await passing;
  Object.assign(parts.host.driver, { pull });
  await untilGivenUp(parts);
  assert.match(statusOf(parts)?.lastEnding?.message ?? "", /ImageUnavailable/);
});

test("compute that is lost in the middle of a later try forgets no try before it: the named version still decides", async () => {
  const parts = await pinnedBelowHead();
  parts.silenceHost();
  await untilGivenUp(parts);
  await parts.until("tried again", () => statusOf(parts)?.boot === 2);
  removeCompute(parts);
  parts.silenceHost(false);
  await parts.until("told", () => statusOf(parts)?.lastEnding?.outcome === "Lost");
  parts.ask("Touch", "again");
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.deepEqual([statusOf(parts)?.boot, statusOf(parts)?.bootedFrom?.version], [3, 0]);
  assert.equal(statusOf(parts)?.compute?.saves, "Nothing");
});

test("a container of a later try that is found again still saves nothing over head", async () => {
  const parts = await pinnedBelowHead();
  parts.host.endsAtOnce = true;
  await untilGivenUp(parts);
  parts.host.endsAtOnce = false;
  await parts.until("Ready", () => isReady(parts.sandbox()));
  removeCompute(parts);
  const { head, versions } = parts.world().status;
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  assert.equal(statusOf(parts)?.lastEnding?.outcome, "Discarded");
  assert.deepEqual([parts.world().status.head, parts.world().status.versions], [head, versions]);
  assert.deepEqual(parts.world().status.rescues ?? [], []);
});

test("a first boot that is ended before it was Ready, for whatever reason, was none: the named version still decides", async () => {
  const parts = await pinnedBelowHead();
  parts.host.endsAtOnce = true;
  await parts.until("told", () => ready(parts)?.reason === "HostRefused");
  const turn = (mode: "Running" | "Hibernated") => parts.change((one) => ({ ...one, spec: { ...one.spec, mode } }));
  turn("Hibernated");
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  parts.host.endsAtOnce = false;
  turn("Running");
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(statusOf(parts)?.bootedFrom?.version, 0);
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  assert.equal(statusOf(parts)?.failedBoots, undefined, "this one was Ready");
});

/** What a source says when it is asked for the login, and what stands in the condition. */
const refusals: Record<string, { reason: string; refusal: RegistryError }> = {
  "does not exist any more": { reason: "ImageNotFound", refusal: new RegistryError("NotFound", "no such image") },
  "is not allowed any more": { reason: "ImageNotAllowed", refusal: new RegistryError("SourceNotAllowed", "by rule") },
  "asks for a day's patience": {
    reason: "RegistryUnavailable",
    refusal: new RegistryError("Unavailable", "later", { retryAfterMs: 86_400_000 }),
  },
};
for (const [what, { reason, refusal }] of Object.entries(refusals)) {
  test(`a throwaway image whose source ${what} while the boot is under way: at its limit the slot is free`, async () => {
    const parts = await memoryParts({ sandbox: { spec: { image: "tools.example/tools:1" } } });
    const startedAt = parts.clock.now();
    parts.refuseLogin(refusal);
    for (let passes = 0; passes < 200 && !isGivenUp(parts); passes++) {
      const waitMs = await parts.pass();
      if (statusOf(parts)?.compute) assert.equal(ready(parts)?.reason, reason);
      parts.clock.jump(waitMs);
    }
    assert.deepEqual([statusOf(parts)?.compute, statusOf(parts)?.lastEnding?.failedBoots], [undefined, 1]);
    assert.ok(parts.clock.now() <= startedAt + LIMIT_MS + 1_000, "no wait is longer than what is left");
    assert.match(statusOf(parts)?.lastEnding?.message ?? "", new RegExp(reason));
    parts.refuseLogin();
    await parts.until("Ready", () => isReady(parts.sandbox()));
  });
}
