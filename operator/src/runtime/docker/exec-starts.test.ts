import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { systemClock } from "../../reconciler/clock.ts";
import { createTestClock, settle, type TestClock } from "../../reconciler/test-clock.test-kit.ts";
import { isRuntimeError, RuntimeError } from "../errors.ts";
import { EngineRefused } from "./engine-errors.ts";
import { type ExecStart, ExecStarts, type ExecState, type ExecStates, type MayStart } from "./exec-starts.ts";

const never = new AbortController().signal;
const soon = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) await setImmediate();
};

/** A start that the engine takes. */
const taken = (exec: string): ExecStart<string> => ({
  create: async () => exec,
  attach: async () => exec,
  discard: () => undefined,
});

function engine(clock = systemClock, mayStart?: MayStart) {
  const pending = new Map<string, ExecState>();
  const states: ExecStates = {
    unsettled: async () => [...pending].map(([exec, state]) => ({ exec, state })),
    stateOf: async (exec) => pending.get(exec) ?? "Settled",
  };
  return { pending, starts: new ExecStarts(states, clock, mayStart) };
}

/** How far the clock has to be moved until it is settled. */
async function elapse(clock: TestClock, promise: Promise<unknown>): Promise<number> {
  const begun = clock.monotonic();
  let done = false;
  const end = () => {
    done = true;
  };
  promise.then(end, end);
  for (await settle(); !done; ) await clock.advance(20);
  return clock.monotonic() - begun;
}

test("a freeze waits until the engine says that a start of this process runs", async () => {
  const { pending, starts } = engine();
  pending.set("e1", "Starting");
  await starts.start("c", taken("e1"), never);
  let frozen = false;
  const freeze = async () => {
    frozen = true;
  };
  const freezing = starts.exclude("c", freeze, never);
  await soon();
  assert.equal(frozen, false);
  pending.delete("e1");
  await freezing;
  assert.equal(frozen, true);
});

test("a freeze waits for the starts of other processes, as the engine records them", async () => {
  const { pending, starts } = engine();
  pending.set("theirs", "Created");
  let frozen = false;
  const freeze = async () => {
    frozen = true;
  };
  const freezing = starts.exclude("c", freeze, never);
  await soon();
  assert.equal(frozen, false);
  pending.delete("theirs");
  await freezing;
  assert.equal(frozen, true);
});

test("nothing starts while a freeze is under way; in another container it does", async () => {
  const { starts } = engine();
  const freeze = Promise.withResolvers<void>();
  const freezing = starts.exclude("c", () => freeze.promise, never);
  await soon();
  const begun: string[] = [];
  const noting = (exec: string): ExecStart<string> => ({
    ...taken(exec),
    create: async () => {
      begun.push(exec);
      return exec;
    },
  });
  const waiting = starts.start("c", noting("here"), never);
  await starts.start("d", noting("elsewhere"), never);
  assert.deepEqual(begun, ["elsewhere"]);
  freeze.resolve();
  await freezing;
  assert.equal(await waiting, "here");
});

test("a start that fails, and a freeze that fails, hold nobody up", async () => {
  const { starts } = engine();
  const refused = { ...taken("e"), create: () => Promise.reject(new Error("refused")) };
  await assert.rejects(starts.start("c", refused, never), /refused/);
  await assert.rejects(
    starts.exclude("c", () => Promise.reject(new Error("no freezer")), never),
    /no freezer/,
  );
  assert.equal(await starts.start("c", taken("e"), never), "e");
});

test("a start that was refused after its creation is not waited for, although the engine keeps it as created", async () => {
  const clock = createTestClock();
  const { pending, starts } = engine(clock);
  pending.set("refused", "Created");
  const refused = { ...taken("refused"), attach: () => Promise.reject(new EngineRefused(409, "is paused")) };
  await assert.rejects(starts.start("c", refused, never), /is paused/);
  assert.equal(await starts.exclude("c", async () => "frozen at once", never), "frozen at once");
});

test("a start that was given up before the engine was asked for it is not waited for", async () => {
  const { pending, starts } = engine(createTestClock());
  const caller = new AbortController();
  pending.set("e1", "Created");
  const created: ExecStart<string> = {
    create: async () => {
      caller.abort(new Error("hung up"));
      return "e1";
    },
    attach: () => assert.fail("nobody wants it any more"),
    discard: () => undefined,
  };
  await assert.rejects(starts.start("c", created, caller.signal), /hung up/);
  assert.equal(await starts.exclude("c", async () => "frozen at once", never), "frozen at once");
});

test("a start that is given up goes on in the engine: a freeze waits for it, and its connection is let go of", async () => {
  const { pending, starts } = engine();
  const caller = new AbortController();
  const connected = Promise.withResolvers<string>();
  const discarded: string[] = [];
  const slow: ExecStart<string> = {
    create: async () => "e1",
    attach: () => {
      pending.set("e1", "Starting");
      return connected.promise;
    },
    discard: (connection) => void discarded.push(connection),
  };
  const starting = assert.rejects(starts.start("c", slow, caller.signal), /hung up/);
  await soon();
  caller.abort(new Error("hung up"));
  await starting;
  let frozen = false;
  const freezing = starts.exclude(
    "c",
    async () => {
      frozen = true;
    },
    never,
  );
  await soon();
  assert.equal(frozen, false, "the engine has not answered");
  connected.resolve("connection");
  await soon();
  assert.equal(frozen, false, "the engine is at it");
  assert.deepEqual(discarded, ["connection"]);
  pending.delete("e1");
  await freezing;
  assert.equal(frozen, true);
});

for (const [what, error] of [
  ["a reset", new RuntimeError("HostUnreachable", "reset")],
  ["its deadline", new RuntimeError("HostUnreachable", "no answer within 15 s")],
  ["the word of a proxy", new EngineRefused(504, "gateway timeout")],
] as const)
  test(`a start that failed by ${what} may be on its way: a freeze waits for it`, async () => {
    const { pending, starts } = engine();
    pending.set("e1", "Created");
    const broken = { ...taken("e1"), attach: () => Promise.reject(error) };
    await assert.rejects(starts.start("c", broken, never));
    let frozen = false;
    const freezing = starts.exclude(
      "c",
      async () => {
        frozen = true;
      },
      never,
    );
    await soon();
    pending.set("e1", "Starting");
    await soon();
    assert.equal(frozen, false);
    pending.delete("e1");
    await freezing;
  });

test("an exec that nobody starts holds a freeze up once, and not long; one that the engine starts forbids it", async () => {
  const clock = createTestClock();
  const { pending, starts } = engine(clock);
  pending.set("theirs", "Created");
  const freeze = async () => "frozen";
  const patient = starts.exclude("c", freeze, never);
  assert.equal(await elapse(clock, patient), 2_500);
  const again = starts.exclude("c", freeze, never);
  assert.equal(await elapse(clock, again), 0);
  pending.set("theirs", "Starting");
  const refused = starts.exclude("c", freeze, never);
  assert.equal(await elapse(clock, refused), 30_000);
  await assert.rejects(
    refused,
    (error) => isRuntimeError(error, "HostRefused") && /has been starting/.test(String(error)),
  );
});

test("whoever waits for a freeze, or to freeze, can give up", async () => {
  const { pending, starts } = engine();
  pending.set("e1", "Starting");
  const caller = new AbortController();
  const freezing = assert.rejects(
    starts.exclude("c", async () => undefined, caller.signal),
    /enough/,
  );
  await soon();
  const starting = assert.rejects(starts.start("c", taken("e2"), caller.signal), /enough/);
  caller.abort(new Error("enough"));
  await Promise.all([freezing, starting]);
  assert.equal(await starts.start("c", taken("e2"), never), "e2");
});

test("nothing starts while the engine still freezes for a caller that gave up, or whose call broke", async () => {
  const { starts } = engine();
  const caller = new AbortController();
  const engineFreezes = Promise.withResolvers<void>();
  const freezing = assert.rejects(
    starts.exclude("c", () => engineFreezes.promise, caller.signal),
    /hung up/,
  );
  await soon();
  caller.abort(new Error("hung up"));
  await freezing;
  let started = false;
  const starting = starts.start("c", taken("e1"), never).then(() => {
    started = true;
  });
  await soon();
  assert.equal(started, false);
  engineFreezes.reject(new RuntimeError("HostUnreachable", "reset"));
  await starting;
});

/** Counts what the engine was asked for, in order. */
function counted() {
  const calls: string[] = [];
  const start: ExecStart<string> = {
    create: async () => {
      const exec = `e${calls.length}`;
      calls.push(`create ${exec}`);
      return exec;
    },
    attach: async (exec) => {
      calls.push(`attach ${exec}`);
      return exec;
    },
    discard: () => undefined,
  };
  return { calls, start };
}

test("a start that another process does not permit yet is asked for again, and takes an exec of its own", async () => {
  const clock = createTestClock();
  const answers = ["NotYet", "NotYet", "NotYet", "Now", "Now"] as const;
  const { calls, start } = counted();
  let asked = 0;
  const { starts } = engine(clock, async () => {
    calls.push("ask");
    return answers[asked++] ?? "Now";
  });
  const starting = starts.start("c", start, never);
  assert.equal(await elapse(clock, starting), 400);
  assert.equal(await starting, "e5");
  assert.deepEqual(calls, ["create e0", "ask", "ask", "ask", "ask", "create e5", "ask", "attach e5"]);
});

test("a start that another process refuses is not made", async () => {
  const { calls, start } = counted();
  const { starts } = engine(systemClock, () => Promise.reject(new RuntimeError("ComputeNotRunning", "ending")));
  await assert.rejects(starts.start("c", start, never), { code: "ComputeNotRunning" });
  assert.deepEqual(calls, ["create e0"]);
});

test("a permit that came so late that a freeze may have stopped waiting is not used", async () => {
  const clock = createTestClock();
  const { calls, start } = counted();
  let isSlow = true;
  const { starts } = engine(clock, async (_, signal) => {
    if (isSlow) await clock.sleep(1_300, signal);
    isSlow = false;
    return "Now";
  });
  const starting = starts.start("c", start, never);
  await elapse(clock, starting);
  assert.deepEqual(calls, ["create e0", "create e1", "attach e1"]);
});
