import assert from "node:assert/strict";
import { test } from "node:test";
import { type ControllerOptions, createController, intentOf, LONGEST_REQUEUE_MS } from "./controller.ts";
import { PassDeadlineExceeded } from "./deadline.ts";
import { LeadershipLost } from "./lease.ts";
import { silentLog } from "./log.ts";
import { noMetrics } from "./metrics.ts";
import { Overtaken, Terminal, Waiting } from "./policy.ts";
import type { Reconcile } from "./reconcile.ts";
import { createTestClock, settle } from "./test-clock.test-kit.ts";
import { WorkQueue } from "./workqueue.ts";

const apiError = (status: number, reason: string, retryAfterMs?: number): Error =>
  Object.assign(new Error(reason), { status, reason, retryAfterMs });

/** A controller on a test clock, with what its passes ended as and what was logged as an error. */
function setup(reconcile: Reconcile, options: Partial<ControllerOptions> = {}) {
  const clock = createTestClock();
  const queue = new WorkQueue({ name: "test", clock, random: () => 0, backoff: { baseMs: 100, capMs: 1_000 } });
  const ends: string[] = [];
  const errors: string[] = [];
  const controller = createController({
    name: "test",
    queue,
    reconcile,
    workers: 2,
    clock,
    random: () => 0,
    log: { ...silentLog, error: (_: object, message: string) => void errors.push(message) },
    metrics: { ...noMetrics, reconciled: (_, { outcome }) => void ends.push(outcome) },
    ...options,
  });
  const stop = new AbortController();
  const running = controller.run(stop.signal);
  return {
    clock,
    queue,
    controller,
    ends,
    errors,
    running,
    stop,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(60_000);
      await running;
    },
  };
}

/** Throws or returns the given things in turn; settles afterwards. */
function script(...turns: (Error | number | "settle")[]): Reconcile {
  return async () => {
    const turn = turns.shift();
    if (turn instanceof Error) throw turn;
    return typeof turn === "number" ? { requeueAfterMs: turn } : {};
  };
}

test("a pass that settles is not repeated", async () => {
  await using it = setup(script("settle"));
  it.queue.add("a");
  await it.clock.advance(LONGEST_REQUEUE_MS * 3);
  assert.deepEqual(it.ends, ["settled"]);
});

test("a wish to come back is honoured, and never lies further away than ten minutes", async () => {
  const twentyFiveDays = 25 * 86_400_000;
  await using it = setup(script(5_000, twentyFiveDays, "settle"));
  it.queue.add("a");
  await it.clock.advance(0);
  assert.deepEqual(it.clock.pending(), [5_000]);
  await it.clock.advance(5_000);
  assert.deepEqual(it.clock.pending(), [LONGEST_REQUEUE_MS]);
  await it.clock.advance(LONGEST_REQUEUE_MS);
  assert.deepEqual(it.ends, ["requeued", "requeued", "settled"]);
});

test("a wish that is no number waits the longest instead of spinning", async () => {
  await using it = setup(script(Number.NaN));
  it.queue.add("a");
  await it.clock.advance(0);
  assert.deepEqual(it.clock.pending(), [LONGEST_REQUEUE_MS]);
});

test("Waiting comes back after its time, is no error and leaves no backoff behind", async () => {
  await using it = setup(script(new Error("first"), new Waiting("WorldHeld", { message: "held", afterMs: 15_000 })));
  it.queue.add("a");
  await it.clock.advance(100);
  assert.deepEqual(it.ends, ["error", "waiting"]);
  assert.equal(it.queue.failures("a"), 0);
  assert.deepEqual(it.clock.pending(), [15_000]);
  assert.deepEqual(it.errors, ["a pass failed and will be retried"]);
});

class BootOvertaken extends Overtaken {}
const overtaken: [name: string, error: Error][] = [
  ["a write conflict", apiError(409, "Conflict")],
  ["a pass that another writer overtook", new BootOvertaken("boot 1 was judged, and boot 2 is recorded")],
  ["an effect that a lost lease forbade", new LeadershipLost("this process does not lead any more")],
];
for (const [name, error] of overtaken) {
  test(`${name} is requeued quietly`, async () => {
    await using it = setup(script(error, "settle"));
    it.queue.add("a");
    await it.clock.advance(100);
    assert.deepEqual(it.ends, ["conflict", "settled"]);
    assert.deepEqual(it.errors, []);
  });
}

test("an object that exists already is no conflict", async () => {
  await using it = setup(script(apiError(409, "AlreadyExists"), "settle"));
  it.queue.add("a");
  await it.clock.advance(100);
  assert.deepEqual(it.ends, ["error", "settled"]);
});

test("anything else backs off, doubling, and one success clears the slate", async () => {
  await using it = setup(script(new Error("1"), new Error("2"), new Error("3"), "settle"));
  it.queue.add("a");
  const pending: number[] = [];
  for (const ms of [0, 100, 200]) {
    await it.clock.advance(ms);
    pending.push(...it.clock.pending());
  }
  assert.deepEqual(pending, [100, 200, 400]);
  await it.clock.advance(400);
  assert.deepEqual(it.ends, ["error", "error", "error", "settled"]);
  assert.equal(it.queue.failures("a"), 0);
});

test("an API server that names a time to wait is not asked sooner", async () => {
  await using it = setup(script(apiError(429, "TooManyRequests", 7_000)));
  it.queue.add("a");
  await it.clock.advance(0);
  assert.deepEqual(it.clock.pending(), [7_000]);
});

test("a Terminal is told once, and the key rests until what is asked changes", async () => {
  let passes = 0;
  let generation = 1;
  const told: string[] = [];
  const reconcile: Reconcile = async () => {
    passes += 1;
    if (generation === 1) throw new Terminal("RuntimeNotFound", { message: "no such Runtime" });
    return {};
  };
  await using it = setup(reconcile, {
    intent: () => `uid@${generation}`,
    onTerminal: (key, error) => told.push(`${key} ${error.reason}`),
  });
  it.queue.add("a");
  await it.clock.advance(LONGEST_REQUEUE_MS);
  it.queue.add("a");
  await it.clock.advance(0);
  assert.equal(passes, 1, "an event that changes nothing asked is skipped");
  generation = 2;
  it.queue.add("a");
  await it.clock.advance(0);
  assert.equal(passes, 2);
  assert.deepEqual(told, ["a RuntimeNotFound"]);
  assert.deepEqual(it.ends, ["terminal", "stalled", "settled"]);
});

test("a recreated or deleted object is a new intent", () => {
  const object = (uid: string, generation: number) => ({
    metadata: { name: "a", uid, resourceVersion: "1", generation },
  });
  assert.notEqual(intentOf(object("old", 1)), intentOf(object("new", 1)));
  assert.notEqual(intentOf(object("old", 1)), intentOf(object("old", 2)));
  assert.equal(intentOf(undefined), undefined);
});

test("callbacks that throw, and a reconcile that throws before its first await, end no worker", async () => {
  const reconcile: Reconcile = () => {
    throw new Terminal("Nope", { message: "no" });
  };
  await using it = setup(reconcile, {
    workers: 1,
    intent: () => {
      throw new Error("intent");
    },
    onTerminal: () => {
      throw new Error("onTerminal");
    },
  });
  it.queue.add("a");
  it.queue.add("b");
  await it.clock.advance(0);
  assert.deepEqual(it.ends, ["terminal", "terminal"]);
});

test("one key is worked on by one worker, different keys by several", async () => {
  const gates: (() => void)[] = [];
  const active = new Set<string>();
  await using it = setup(async (key) => {
    assert.ok(!active.has(key), `${key} is worked on twice at once`);
    active.add(key);
    await new Promise<void>((resolve) => gates.push(resolve));
    active.delete(key);
    return {};
  });
  it.queue.add("a");
  it.queue.add("b");
  it.queue.add("c");
  await settle();
  it.queue.add("a");
  await settle();
  assert.deepEqual([...active], ["a", "b"], "two workers, two keys");
  while (gates.length > 0) {
    gates.shift()?.();
    await settle();
  }
  assert.equal(it.ends.length, 4);
});

test("a pass over its deadline is aborted and retried", async () => {
  let passes = 0;
  const reconcile: Reconcile = async (_, { signal }) => {
    passes += 1;
    if (passes > 1) return {};
    return new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  };
  await using it = setup(reconcile, { passDeadlineMs: 1_000 });
  it.queue.add("a");
  await it.clock.advance(1_100);
  assert.deepEqual(it.ends, ["error", "settled"]);
});

test("the deadline of a pass is not the end of its process", async () => {
  const seen: unknown[] = [];
  const reconcile: Reconcile = (_, { signal, process }) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => {
        seen.push([signal.reason instanceof PassDeadlineExceeded, process?.aborted]);
        reject(signal.reason);
      });
    });
  await using it = setup(reconcile, { passDeadlineMs: 1_000 });
  it.queue.add("a");
  await it.clock.advance(1_100);
  assert.deepEqual(seen, [[true, false]]);
});

test("a pass that ignores its deadline frees its worker but keeps its key to itself", async () => {
  let release = (): void => undefined;
  const served: string[] = [];
  const reconcile: Reconcile = async (key) => {
    served.push(key);
    if (key === "hung" && served.filter((one) => one === "hung").length === 1) {
      await new Promise<void>((resolve) => {
        release = resolve;
      });
    }
    return {};
  };
  await using it = setup(reconcile, { workers: 1, passDeadlineMs: 1_000 });
  it.queue.add("hung");
  await settle();
  it.queue.add("hung");
  it.queue.add("other");
  await it.clock.advance(5_000);
  assert.deepEqual(served, ["hung", "other"], "the worker went on, and nobody else took the hung key");
  release();
  await it.clock.advance(0);
  assert.deepEqual(served, ["hung", "other", "hung"]);
});

test("draining lets a running pass finish and begins nothing new", async () => {
  let release = (): void => undefined;
  const served: string[] = [];
  const reconcile: Reconcile = async (key, { signal }) => {
    served.push(key);
    await new Promise<void>((resolve) => {
      release = resolve;
    });
    assert.equal(signal.aborted, false);
    return {};
  };
  await using it = setup(reconcile, { workers: 1 });
  it.queue.add("a");
  it.queue.add("b");
  await settle();
  const drained = it.controller.drain(30_000);
  await it.clock.advance(10_000);
  release();
  await drained;
  await it.running;
  assert.deepEqual(served, ["a"]);
  assert.deepEqual(it.ends, ["settled"]);
});

test("draining aborts what outlives its deadline", async () => {
  const reconcile: Reconcile = (_, { signal }) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  await using it = setup(reconcile);
  it.queue.add("a");
  await settle();
  const drained = it.controller.drain(1_000);
  await it.clock.advance(1_000);
  await drained;
  assert.deepEqual(it.ends, ["aborted"]);
  assert.deepEqual(it.errors, [], "an abort is no error");
});

test("run does not resolve while an aborted pass still cleans up", async () => {
  let release = (): void => undefined;
  const reconcile: Reconcile = async () => {
    await new Promise<void>((resolve) => {
      release = resolve;
    });
    return {};
  };
  const it = setup(reconcile);
  it.queue.add("a");
  await settle();
  it.stop.abort(new Error("lease lost"));
  let ended = false;
  void it.running.then(() => {
    ended = true;
  });
  await it.clock.advance(1_000);
  assert.equal(ended, false);
  release();
  await it.running;
});
