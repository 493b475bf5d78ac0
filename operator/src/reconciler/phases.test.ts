import assert from "node:assert/strict";
import { test } from "node:test";
import { PassDeadlineExceeded } from "./deadline.ts";
import { type PassOutcome, type Phase, runPhases } from "./phases.ts";
import { Terminal, Waiting } from "./policy.ts";
import { CONTINUE, type ReconcileContext, type ReconcileResult, requeueAfter, STOP } from "./reconcile.ts";
import { createTestClock } from "./test-clock.test-kit.ts";

interface Scope {
  readonly walked: string[];
}

const context: ReconcileContext = {
  signal: new AbortController().signal,
  clock: createTestClock(),
  reconcileId: "test",
};

const walk =
  (name: string): Phase<Scope> =>
  async (scope) => {
    scope.walked.push(name);
    return CONTINUE;
  };

async function pass(
  phases: readonly Phase<Scope>[],
  finish: () => Promise<ReconcileResult> = async () => ({}),
): Promise<{ walked: string[]; outcomes: PassOutcome[]; result: ReconcileResult | undefined; error: unknown }> {
  const scope: Scope = { walked: [] };
  const outcomes: PassOutcome[] = [];
  const seen = { walked: scope.walked, outcomes, result: undefined, error: undefined };
  try {
    const result = await runPhases({
      phases,
      scope,
      context,
      finish: (_, outcome) => {
        outcomes.push(outcome);
        return finish();
      },
    });
    return { ...seen, result };
  } catch (error) {
    return { ...seen, error };
  }
}

test("phases run in order, and finish sees that all were completed", async () => {
  const { walked, outcomes, result } = await pass([walk("one"), walk("two")]);
  assert.deepEqual(walked, ["one", "two"]);
  assert.deepEqual(outcomes, [{ kind: "completed" }]);
  assert.deepEqual(result, {});
});

test("a phase that stops ends the pass, and finish still runs once", async () => {
  const halt: Phase<Scope> = async () => STOP;
  const { walked, outcomes } = await pass([walk("one"), halt, walk("never")]);
  assert.deepEqual(walked, ["one"]);
  assert.deepEqual(outcomes, [{ kind: "stopped", phase: "halt" }]);
});

test("a phase that asks to come back ends the pass; the sooner of its wish and finish's is the result", async () => {
  const later: Phase<Scope> = async () => requeueAfter(5_000);
  assert.deepEqual((await pass([later])).result, { requeueAfterMs: 5_000 });
  assert.deepEqual((await pass([later], async () => ({ requeueAfterMs: 100 }))).result, { requeueAfterMs: 100 });
  assert.deepEqual((await pass([later], async () => ({ requeueAfterMs: 9_000 }))).result, { requeueAfterMs: 5_000 });
});

test("a phase's error is seen by finish, and thrown afterwards for the loop to judge", async () => {
  const waiting = new Waiting("WorldHeld", { message: "held", afterMs: 1 });
  const held: Phase<Scope> = async () => {
    throw waiting;
  };
  const { outcomes, error } = await pass([held, walk("never")]);
  assert.deepEqual(outcomes, [{ kind: "failed", phase: "held", error: waiting }]);
  assert.equal(error, waiting);
});

test("a Terminal whose condition could not be written is retried, not rested on", async () => {
  const conflict = Object.assign(new Error("conflict"), { status: 409 });
  const stalled: Phase<Scope> = async () => {
    throw new Terminal("Nope", { message: "no" });
  };
  const { error } = await pass([stalled], () => Promise.reject(conflict));
  assert.equal(error, conflict);
});

test("two real failures are both reported", async () => {
  const first = new Error("phase");
  const second = new Error("finish");
  const broken: Phase<Scope> = async () => {
    throw first;
  };
  const { error } = await pass([broken], () => Promise.reject(second));
  assert.ok(error instanceof AggregateError);
  assert.deepEqual(error.errors, [first, second]);
});

test("a pass that was cut off by its own deadline finishes under a fresh signal, unless its process ends", async () => {
  for (const isEnding of [false, true]) {
    const [pass, process] = [new AbortController(), new AbortController()];
    const reason = new PassDeadlineExceeded(1_000);
    const hangs: Phase<Scope> = async () => {
      if (isEnding) process.abort(new Error("lease lost"));
      pass.abort(reason);
      throw new Error("aborted");
    };
    let isAborted: boolean | undefined;
    const running = runPhases<Scope>({
      phases: [hangs],
      scope: { walked: [] },
      context: { ...context, signal: pass.signal, process: process.signal },
      finish: async (_scope, outcome, { signal }) => {
        isAborted = signal.aborted;
        assert.equal(outcome.kind === "failed" && outcome.isCutOff === true, !isEnding);
        return {};
      },
    });
    await assert.rejects(running, isEnding ? /aborted/ : (error) => error === reason);
    assert.equal(isAborted, isEnding);
  }
});

test("an aborted pass runs no phase, and finish learns why", async () => {
  const abort = new AbortController();
  abort.abort(new Error("lease lost"));
  const outcomes: PassOutcome[] = [];
  const running = runPhases<Scope>({
    phases: [walk("never")],
    scope: { walked: [] },
    context: { ...context, signal: abort.signal },
    finish: async (scope, outcome) => {
      assert.deepEqual(scope.walked, []);
      outcomes.push(outcome);
      return {};
    },
  });
  await assert.rejects(running, /lease lost/);
  assert.equal(outcomes[0]?.kind, "failed");
});
