import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createTestClock, settle } from "./test-clock.test-kit.ts";
import { WorkQueue } from "./workqueue.ts";

const signal = new AbortController().signal;

function setup() {
  const clock = createTestClock();
  const queue = new WorkQueue({ name: "test", clock, random: () => 0, backoff: { baseMs: 100, capMs: 1_000 } });
  return { clock, queue };
}

test("a key added many times is handed out once", async () => {
  const { queue } = setup();
  for (let i = 0; i < 5; i++) queue.add("a");
  queue.add("b");
  assert.equal(await queue.take(signal), "a");
  assert.equal(await queue.take(signal), "b");
  assert.equal(queue.depth, 0);
});

test("a key added while it is worked on comes back when that worker is done, and not before", async () => {
  const { queue } = setup();
  queue.add("a");
  await queue.take(signal);
  queue.add("a");
  queue.add("a");
  assert.equal(queue.depth, 0);
  queue.done("a");
  assert.equal(await queue.take(signal), "a");
  queue.done("a");
  assert.equal(queue.depth, 0);
});

test("of several delays the shortest stands", async () => {
  const { clock, queue } = setup();
  queue.addAfter("a", 10_000);
  queue.addAfter("a", 1_000);
  queue.addAfter("a", 5_000);
  await clock.advance(999);
  assert.equal(queue.depth, 0);
  await clock.advance(1);
  assert.equal(queue.depth, 1);
  assert.deepEqual(clock.pending(), [], "the longer delays are gone");
});

test("the shortest delay stands although the machine's clock is set back", async () => {
  const { clock, queue } = setup();
  queue.addAfter("a", 1_000);
  clock.jump(-3_600_000);
  queue.addAfter("a", 600_000);
  await clock.advance(1_000);
  assert.equal(queue.depth, 1);
});

test("an immediate add replaces a pending delay", async () => {
  const { clock, queue } = setup();
  queue.addAfter("a", 1_000);
  queue.add("a");
  assert.equal(await queue.take(signal), "a");
  queue.done("a");
  await clock.advance(2_000);
  assert.equal(queue.depth, 0);
});

test("a delay that ends while the key is worked on makes it due again", async () => {
  const { clock, queue } = setup();
  queue.add("a");
  await queue.take(signal);
  queue.addAfter("a", 100);
  await clock.advance(100);
  assert.equal(queue.depth, 0);
  queue.done("a");
  assert.equal(queue.depth, 1);
});

test("failures of a key double its delay up to the cap; forget starts again; other keys are untouched", () => {
  const { queue } = setup();
  const delays = Array.from({ length: 6 }, () => queue.addBackoff("a"));
  assert.deepEqual(delays, [100, 200, 400, 800, 1_000, 1_000]);
  assert.equal(queue.addBackoff("b"), 100);
  queue.forget("a");
  assert.equal(queue.addBackoff("a"), 100);
});

test("a waiting worker is served by the next add; an aborted wait yields nothing and loses no key", async () => {
  const { queue } = setup();
  const impatient = new AbortController();
  const first = queue.take(impatient.signal);
  const second = queue.take(signal);
  impatient.abort();
  assert.equal(await first, undefined);
  queue.add("a");
  assert.equal(await second, "a");
});

test("draining hands out nothing more, drops what waits, and ends when the last worker is done", async () => {
  const { clock, queue } = setup();
  queue.add("a");
  await queue.take(signal);
  queue.add("b");
  queue.addAfter("c", 100);
  let drained = false;
  const draining = queue.drain(signal).then(() => {
    drained = true;
  });
  assert.equal(await queue.take(signal), undefined);
  await clock.advance(1_000);
  assert.equal(drained, false);
  queue.done("a");
  await draining;
  queue.add("d");
  assert.equal(queue.depth, 0);
});

test("done without take is a mistake that is named", () => {
  const { queue } = setup();
  assert.throws(() => queue.done("a"), /done\("a"\) without take/);
});

/** The queue as its contract reads, without its cleverness: a due time per key, and who holds what. */
class Model {
  now = 0;
  readonly due = new Map<string, number>();
  readonly taken = new Set<string>();
  /** Keys in the order in which they became ready. */
  order: string[] = [];

  add(key: string, after: number): void {
    const dueAt = this.now + after;
    if (dueAt < (this.due.get(key) ?? Number.POSITIVE_INFINITY)) {
      // Of two that are due at the same moment, the one asked for later comes later.
      this.due.delete(key);
      this.due.set(key, dueAt);
    }
    this.refresh();
  }
  advance(ms: number): void {
    const target = this.now + ms;
    for (const at of [...this.due.values()].filter((at) => at > this.now && at <= target).sort((a, b) => a - b)) {
      this.now = at;
      this.refresh();
    }
    this.now = target;
  }
  refresh(): void {
    for (const [key, at] of this.due) {
      if (at <= this.now && !this.taken.has(key) && !this.order.includes(key)) this.order.push(key);
    }
  }
  take(): string | undefined {
    const key = this.order.shift();
    if (key === undefined) return undefined;
    this.due.delete(key);
    this.taken.add(key);
    return key;
  }
  done(key: string): void {
    this.taken.delete(key);
    this.refresh();
  }
}

const key = fc.constantFrom("a", "b", "c", "d");
const step = fc.oneof(
  fc.record({ do: fc.constant("add" as const), key }),
  fc.record({ do: fc.constant("addAfter" as const), key, ms: fc.integer({ min: -5, max: 50 }) }),
  fc.record({ do: fc.constant("advance" as const), ms: fc.integer({ min: 0, max: 40 }) }),
  fc.record({ do: fc.constant("take" as const) }),
  fc.record({ do: fc.constant("done" as const), which: fc.nat(3) }),
);

test("for any sequence of calls the queue equals its model: deduplicated, one worker per key, re-added, earliest delay wins", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), async (steps) => {
      const { clock, queue } = setup();
      const model = new Model();
      for (const one of steps) {
        if (one.do === "add") {
          queue.add(one.key);
          model.add(one.key, 0);
        } else if (one.do === "addAfter") {
          queue.addAfter(one.key, one.ms);
          model.add(one.key, Math.max(one.ms, 0));
        } else if (one.do === "advance") {
          await clock.advance(one.ms);
          model.advance(one.ms);
        } else if (one.do === "take") {
          const want = model.take();
          if (want !== undefined) assert.equal(await queue.take(signal), want);
        } else {
          const held = [...model.taken][one.which];
          if (held === undefined) continue;
          queue.done(held);
          model.done(held);
        }
        assert.equal(queue.depth, model.order.length);
      }
      // Nothing is lost: time and workers bring out every key that was ever due.
      for (const held of [...model.taken]) {
        queue.done(held);
        model.done(held);
      }
      await clock.advance(100);
      model.advance(100);
      const rest: string[] = [];
      while (queue.depth > 0) {
        const got = await queue.take(signal);
        assert.ok(got !== undefined && !rest.includes(got));
        rest.push(got);
      }
      assert.deepEqual(rest.toSorted(), model.order.toSorted());

      let drained = false;
      const draining = queue.drain(signal).then(() => {
        drained = true;
      });
      for (const got of rest) {
        await settle();
        assert.equal(drained, false, "draining waits for every key that is out");
        queue.done(got);
      }
      await draining;
    }),
    { numRuns: 150 },
  );
});
