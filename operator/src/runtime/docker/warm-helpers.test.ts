import assert from "node:assert/strict";
import { type Duplex, PassThrough } from "node:stream";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { WarmHelpers } from "./warm-helpers.ts";

const soon = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) await setImmediate();
};

function opening(): { opened: { container: string; socket: PassThrough }[]; open: (name: string) => Promise<Duplex> } {
  const opened: { container: string; socket: PassThrough }[] = [];
  return {
    opened,
    open: async (container) => {
      const socket = new PassThrough();
      opened.push({ container, socket });
      return socket;
    },
  };
}

test("a waiting helper is taken once, and the taker reads what it says from then on", async () => {
  const { opened, open } = opening();
  const warm = new WarmHelpers({ open });
  warm.warm("a");
  warm.warm("a");
  await soon();
  assert.equal(opened.length, 1, "one waits, however often it is asked for");
  const taken = warm.take("a");
  assert.equal(taken, opened[0]?.socket);
  assert.equal(warm.take("a"), undefined);
  taken?.write("record");
  const [first] = await Array.fromAsync({
    async *[Symbol.asyncIterator]() {
      for await (const chunk of taken ?? []) {
        yield String(chunk);
        return;
      }
    },
  });
  assert.equal(first, "record");
});

test("one that ends, breaks or speaks before it is taken is not given to anybody", async () => {
  for (const fault of [
    (socket: PassThrough) => socket.end(),
    (socket: PassThrough) => socket.destroy(new Error("reset")),
    (socket: PassThrough) => socket.write("OCI runtime exec failed"),
  ]) {
    const { opened, open } = opening();
    const warm = new WarmHelpers({ open });
    warm.warm("a");
    await soon();
    fault(opened[0]?.socket ?? new PassThrough());
    await soon();
    assert.equal(warm.take("a"), undefined);
  }
});

test("what becomes of one that was taken does nothing to the one that waits after it", async () => {
  for (const fault of [(socket: Duplex) => socket.destroy(new Error("reset")), (socket: Duplex) => socket.destroy()]) {
    const { opened, open } = opening();
    const warm = new WarmHelpers({ open });
    warm.warm("a");
    await soon();
    const taken = warm.take("a") ?? assert.fail("none waits");
    warm.warm("a");
    await soon();
    fault(taken);
    await soon();
    assert.equal(warm.take("a"), opened[1]?.socket);
  }
});

test("a drop ends the one that waits and the one that is being started", async () => {
  const { opened, open } = opening();
  const warm = new WarmHelpers({ open });
  warm.warm("waiting");
  await soon();
  warm.warm("starting");
  warm.drop("waiting");
  warm.drop("starting");
  await soon();
  assert.deepEqual(
    opened.map(({ socket }) => socket.destroyed),
    [true, true],
  );
  assert.equal(warm.take("waiting") ?? warm.take("starting"), undefined);
});

test("beyond the limit the one that has waited longest ends; closing ends all and starts none", async () => {
  const { opened, open } = opening();
  const warm = new WarmHelpers({ open, most: 2 });
  for (const name of ["a", "b", "c"]) {
    warm.warm(name);
    await soon();
  }
  assert.deepEqual(
    opened.map(({ socket }) => socket.destroyed),
    [true, false, false],
  );
  warm.close();
  warm.warm("d");
  await soon();
  assert.deepEqual(
    opened.map(({ socket }) => socket.destroyed),
    [true, true, true],
  );
});

test("a helper that cannot be started is no failure of anybody; the next wish tries again", async () => {
  let tries = 0;
  const warm = new WarmHelpers({
    open: async () => {
      tries++;
      throw new Error("the engine is away");
    },
  });
  warm.warm("a");
  await soon();
  warm.warm("a");
  await soon();
  assert.equal(tries, 2);
  assert.equal(warm.take("a"), undefined);
});
