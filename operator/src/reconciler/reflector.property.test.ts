import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { backoffMs, REFLECTOR_BACKOFF } from "./backoff.ts";
import { apiError, FakeListWatch } from "./fake-list-watch.test-kit.ts";
import type { KubeObject } from "./list-watch.ts";
import { Reflector } from "./reflector.ts";
import { ObjectStore } from "./store.ts";
import { createTestClock } from "./test-clock.test-kit.ts";

/** With its jitter. */
const LONGEST_PAUSE_MS = backoffMs(REFLECTOR_BACKOFF, 100, 1);

const name = fc.constantFrom("a", "b", "c", "d", "e");
const failure = fc.constantFrom(
  apiError(500),
  apiError(503),
  apiError(429, { retryAfterMs: 3_000 }),
  new Error("reset"),
);

/** What can happen to a mirror and its server. */
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("write" as const), name }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("remove" as const), name }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("recreate" as const), name }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("advance" as const), ms: fc.integer({ min: 0, max: 20_000 }) }) },
  // Lets everybody take what was sent so far, without time.
  { weight: 8, arbitrary: fc.record({ do: fc.constant("advance" as const), ms: fc.constant(0) }) },
  fc.record({ do: fc.constant("bookmark" as const) }),
  fc.record({ do: fc.constant("compact" as const) }),
  fc.record({ do: fc.constant("break" as const), failure }),
  fc.record({ do: fc.constant("end" as const) }),
  fc.record({ do: fc.constant("failLists" as const), failure, times: fc.integer({ min: 1, max: 3 }) }),
  fc.record({ do: fc.constant("failWatches" as const), failure, times: fc.integer({ min: 1, max: 3 }) }),
  fc.record({ do: fc.constant("repeat" as const), count: fc.integer({ min: 1, max: 6 }) }),
  { weight: 2, arbitrary: fc.record({ do: fc.constant("stale" as const), back: fc.nat(6) }) },
  fc.record({ do: fc.constant("silence" as const) }),
  fc.record({ do: fc.constant("restartReflector" as const) }),
);

type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

function happen(server: FakeListWatch, one: Step): void {
  if (one.do === "write") server.write(one.name);
  else if (one.do === "remove") server.remove(one.name);
  else if (one.do === "recreate") {
    server.remove(one.name);
    server.write(one.name);
  } else if (one.do === "bookmark") server.bookmark();
  else if (one.do === "compact") server.compact();
  else if (one.do === "break") server.breakWatches(one.failure);
  else if (one.do === "end") server.endWatches();
  else if (one.do === "repeat") server.repeatLast(one.count);
  else if (one.do === "stale") server.repeatOne(one.back);
  else if (one.do === "silence") server.silent = !server.silent;
  else if (one.do === "failLists") server.listFailures.push(...Array(one.times).fill(one.failure));
  else if (one.do === "failWatches") server.watchFailures.push(...Array(one.times).fill(one.failure));
}

const stateOf = (objects: Iterable<KubeObject>): string[] =>
  [...objects].map(({ metadata: m }) => `${m.name} ${m.uid} ${m.resourceVersion}`).toSorted();

test("after any interleaving of writes, breaks, compactions, restarts, repeated and withheld events the store equals the server, and every final state was delivered", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 50, size: "max" }),
      fc.infiniteStream(fc.double({ min: 0, max: 0.999, noNaN: true })),
      async (steps, randoms) => {
        const clock = createTestClock();
        const server = new FakeListWatch();
        const store = new ObjectStore<KubeObject>({ resource: "things" });
        const random = (): number => Number(randoms.next().value);
        const options = {
          source: server,
          store,
          clock,
          random,
          pageSize: 2,
          watchTimeoutSeconds: 30,
          watchGraceMs: 5_000,
        };
        const reflector = new Reflector<KubeObject>(options);

        // A mirror kept by listening alone: what a controller knows. It also checks that each change is possible.
        const heard = new Map<string, KubeObject>();
        store.subscribe((change) => {
          const { name: key, uid } = change.object.metadata;
          const before = heard.get(key);
          if (change.kind === "added") assert.equal(before, undefined, `added twice: ${key}`);
          else assert.equal(before?.metadata.uid, uid, `${change.kind} of another incarnation: ${key}`);
          if (change.kind === "deleted") heard.delete(key);
          else heard.set(key, change.object);
        });

        let stop = new AbortController();
        let running = reflector.run(stop.signal);
        for (const one of steps) {
          if (one.do === "advance") await clock.advance(one.ms);
          else if (one.do === "restartReflector") {
            stop.abort();
            await clock.advance(0);
            await running;
            stop = new AbortController();
            running = reflector.run(stop.signal);
          } else happen(server, one);
        }
        // The trouble ends; what a silent watch withheld must come by the watchdog. Each failure that is still to come costs
        // a pause: 25 in a row were once more than the ten minutes.
        server.silent = false;
        const failuresLeft = server.listFailures.length + server.watchFailures.length;
        await clock.advance(600_000 + failuresLeft * LONGEST_PAUSE_MS);

        assert.deepEqual(stateOf(store.list()), stateOf(server.objects.values()));
        assert.deepEqual(stateOf(heard.values()), stateOf(server.objects.values()));
        assert.equal(reflector.hasSynced(), true);
        assert.equal(server.open.size, 1, "one watch, not several");

        stop.abort();
        await clock.advance(0);
        await running;
        assert.deepEqual(clock.pending(), [], "nothing is left waiting");
      },
    ),
    { numRuns: 100 },
  );
});
