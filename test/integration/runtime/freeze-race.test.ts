// An exec that the engine started into a frozen cgroup wedged container and host (docker 20.10, first snapshot under eight
// parallel commands): inspect, thaw and every image removal hung until the engine was killed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isRuntimeError } from "../../../operator/src/runtime/errors.ts";
import { Bench } from "../../conformance/driver/bench.ts";
import { makeDocker } from "../../conformance/driver/docker.ts";

const FREEZES = 8;
const COMMANDS = 8;

test("freezing while commands start never wedges the container: it thaws, answers and is removed", async () => {
  await using under = await makeDocker();
  await using bench = new Bench(under);
  const id = await bench.create();
  const { driver } = under;
  const signal = AbortSignal.timeout(120_000);
  let done = false;
  let ran = 0;
  const keepStarting = async (): Promise<void> => {
    while (!done) {
      try {
        await driver.exec(id, { command: ["true"], timeoutMs: 20_000 }, signal);
        ran++;
      } catch (error) {
        // A frozen container refuses by name, and one that is frozen in mid-command may cut the connection.
        const isExpected = isRuntimeError(error, "ComputeNotRunning") || isRuntimeError(error, "ExecConnectionLost");
        if (!isExpected) throw error;
      }
    }
  };
  const keepFreezing = async (): Promise<void> => {
    try {
      for (let turn = 0; turn < FREEZES; turn++) {
        await driver.freeze(id, signal);
        assert.equal((await driver.inspect(id, signal)).state, "Frozen");
        await driver.thaw(id, signal);
        assert.equal((await driver.inspect(id, signal)).state, "Running");
      }
    } finally {
      done = true;
    }
  };
  await Promise.all([keepFreezing(), ...Array.from({ length: COMMANDS }, keepStarting)]);
  assert.ok(ran > 0, "commands ran in between");
  assert.equal((await driver.exec(id, { command: ["echo", "alive"] }, signal)).exitCode, 0);
});
