import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { systemClock } from "../../reconciler/clock.ts";
import { ExecStarts } from "./exec-starts.ts";

const never = new AbortController().signal;
const soon = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) await setImmediate();
};

/** A start that the engine takes. */
const begin = (exec: string) => async (onCreated: (exec: string) => void) => {
  onCreated(exec);
  return exec;
};

function engine() {
  const pending = new Set<string>();
  return {
    pending,
    starts: new ExecStarts(
      { pending: async () => [...pending], isPending: async (exec) => pending.has(exec) },
      systemClock,
    ),
  };
}

test("a freeze waits until the engine says that a start of this process runs", async () => {
  const { pending, starts } = engine();
  pending.add("e1");
  await starts.start("c", begin("e1"), never);
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
  pending.add("theirs");
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
  const noting = (exec: string) => async (onCreated: (exec: string) => void) => {
    begun.push(exec);
    return begin(exec)(onCreated);
  };
  const waiting = starts.start("c", noting("here"), never);
  await starts.start("d", noting("elsewhere"), never);
  assert.deepEqual(begun, ["elsewhere"]);
  freeze.resolve();
  await freezing;
  assert.equal(await waiting, "here");
});

test("a start that fails, and a freeze that fails, hold nobody up", async () => {
  const { starts } = engine();
  await assert.rejects(
    starts.start("c", () => Promise.reject(new Error("refused")), never),
    /refused/,
  );
  await assert.rejects(
    starts.exclude("c", () => Promise.reject(new Error("no freezer")), never),
    /no freezer/,
  );
  assert.equal(await starts.start("c", begin("e"), never), "e");
});

test("a start that was refused after its creation is not waited for, although the engine keeps it as pending", async () => {
  const { pending, starts } = engine();
  pending.add("refused");
  await assert.rejects(
    starts.start(
      "c",
      async (onCreated) => {
        onCreated("refused");
        throw new Error("is paused");
      },
      never,
    ),
  );
  assert.equal(await starts.exclude("c", async () => "frozen at once", AbortSignal.timeout(1_000)), "frozen at once");
});
