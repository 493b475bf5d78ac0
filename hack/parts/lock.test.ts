import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { withLock } from "./lock.ts";
import { run } from "./process.ts";
import { eventually } from "./wait.ts";

async function scratch(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "agent-worlds-test-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

const limit = (): AbortSignal => AbortSignal.timeout(20_000);

test("two holders never overlap, and both get their turn", async () => {
  await using folder = await scratch();
  const events: string[] = [];
  const work = (name: string) => () =>
    new Promise<void>((resolve) => {
      events.push(`${name} in`);
      setImmediate(() => {
        events.push(`${name} out`);
        resolve();
      });
    });
  const lock = join(folder.path, "lock");
  await Promise.all(["a", "b", "c"].map((name) => withLock(lock, limit(), work(name))));
  assert.equal(events.length, 6);
  for (let i = 0; i < 6; i += 2) assert.equal(events[i]?.replace("in", "out"), events[i + 1]);
});

test("a lock is let go when the work fails, and the error is the work's", async () => {
  await using folder = await scratch();
  const lock = join(folder.path, "lock");
  await assert.rejects(
    withLock(lock, limit(), () => Promise.reject(new Error("mine"))),
    /mine/,
  );
  assert.equal(await withLock(lock, limit(), async () => "free"), "free");
});

test("who queues can give up, and does not hold the lock afterwards", async () => {
  await using folder = await scratch();
  const lock = join(folder.path, "lock");
  const done = Promise.withResolvers<void>();
  const holding = Promise.withResolvers<void>();
  const first = withLock(lock, limit(), () => {
    holding.resolve();
    return done.promise;
  });
  await holding.promise;
  const giveUp = new AbortController();
  const second = withLock(lock, giveUp.signal, async () => assert.fail("was not to be held"));
  giveUp.abort(new Error("enough"));
  await assert.rejects(second, /enough|abort/i);
  done.resolve();
  await first;
  await withLock(lock, limit(), async () => undefined);
});

test("the lock of a process killed by SIGKILL is free at once", async () => {
  await using folder = await scratch();
  const lock = join(folder.path, "lock");
  const holder = `import { withLock } from ${JSON.stringify(new URL("./lock.ts", import.meta.url).href)};
    await withLock(${JSON.stringify(lock)}, AbortSignal.timeout(20000), async () => process.kill(process.pid, "SIGKILL"));`;
  await assert.rejects(run([process.execPath, "--input-type=module", "-e", holder], { signal: limit() }));
  await eventually(() => withLock(lock, limit(), async () => true));
});
