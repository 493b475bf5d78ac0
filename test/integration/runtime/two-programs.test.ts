/**
 * The gateway starts commands, the leader freezes, each in a program of its own: two drivers here that know nothing of each
 * other but what is written of the session. A start into a freeze wedges the container and then the whole engine.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { createDockerDriver } from "../../../operator/src/runtime/docker/driver.ts";
import { isRuntimeError } from "../../../operator/src/runtime/errors.ts";
import { loadHelper } from "../../../operator/src/runtime/helper.ts";
import { Bench } from "../../conformance/driver/bench.ts";
import { makeDocker } from "../../conformance/driver/docker.ts";

const TURNS = 8;

test("commands of one program and freezes of another exclude each other", { timeout: 180_000 }, async () => {
  await using under = await makeDocker();
  await using bench = new Bench(under);
  const id = await bench.create();
  const signal = AbortSignal.timeout(170_000);
  let intended = false;
  const gateway = createDockerDriver({
    installation: under.installation,
    endpoint: under.dockerHost,
    helper: (platform, until) => loadHelper({ platform }, until),
    mayStart: async () => (intended ? "NotYet" : "Now"),
  });
  let done = false;
  let ran = 0;
  async function work(): Promise<void> {
    while (!done) {
      try {
        await gateway.exec(id, { command: ["true"], timeoutMs: 20_000 }, signal);
        ran++;
      } catch (error) {
        // A command that waited in the container when it was frozen is told so.
        if (!isRuntimeError(error, "ComputeNotRunning") && !isRuntimeError(error, "ExecConnectionLost")) throw error;
      }
    }
  }
  async function freeze(): Promise<void> {
    try {
      for (let turn = 0; turn < TURNS; turn++) {
        intended = true;
        await under.driver.freeze(id, signal);
        await under.driver.thaw(id, signal);
        intended = false;
        const before = ran;
        while (ran === before) await pause(10, undefined, { signal });
      }
    } finally {
      done = true;
    }
  }
  try {
    await Promise.all([freeze(), work(), work(), work(), work()]);
    assert.equal((await under.driver.inspect(id, signal)).state, "Running");
    assert.ok(ran >= TURNS);
  } finally {
    await gateway.close();
  }
});
