/** Commits of one engine wait for each other, and nobody waits longer than its own signal says. */
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { createDockerDriver } from "./driver.ts";
import { httpAnswer, scriptedEngine } from "./scripted-engine.test-kit.ts";

const { signal } = new AbortController();
const ID = "c".repeat(64);
const CONTAINER = httpAnswer(
  200,
  JSON.stringify({
    Id: ID,
    Name: "/aw-u-1",
    Image: `sha256:${"1".repeat(64)}`,
    Config: {
      Labels: {
        "agentworlds.dev/installation": "i",
        "agentworlds.dev/namespace": "team",
        "agentworlds.dev/sandbox": "s",
        "agentworlds.dev/sandbox-uid": "u",
        "agentworlds.dev/boot": "1",
      },
    },
    State: {
      Status: "running",
      Running: true,
      Paused: false,
      ExitCode: 0,
      OOMKilled: false,
      StartedAt: "",
      FinishedAt: "",
    },
  }),
);
const MISSING = httpAnswer(404, '{"message":"no such image"}');
const COMMITTED = httpAnswer(201, `{"Id":"sha256:${"0".repeat(64)}"}`);

test("a commit that waits for its turn ends with its signal, and the one behind it still waits for the first", {
  timeout: 10_000,
}, async () => {
  const begun: { name: string; socket: Socket }[] = [];
  const first = Promise.withResolvers<void>();
  const looked = Promise.withResolvers<void>();
  let looks = 0;
  await using engine = await scriptedEngine(({ line }, socket) => {
    if (line.includes("/containers/")) {
      socket.write(CONTAINER);
      if (++looks === 3) looked.resolve();
      return;
    }
    if (!line.startsWith("POST")) return void socket.write(MISSING);
    begun.push({ name: /tag=(\w+)/.exec(line)?.[1] ?? "", socket });
    first.resolve();
    if (begun.length > 1) socket.write(COMMITTED);
  });
  const driver = createDockerDriver({
    installation: "i",
    endpoint: `unix://${engine.path}`,
    helper: () => Promise.reject(new TypeError("no container is made here")),
  });
  const one = driver.commit("aw-u-1", "agentworlds/capture:one", signal);
  await first.promise;
  const impatient = new AbortController();
  const two = driver.commit("aw-u-1", "agentworlds/capture:two", impatient.signal);
  const three = driver.commit("aw-u-1", "agentworlds/capture:three", signal);
  // Both have found their container and stand in line; one more round trip, and they have heard so.
  await looked.promise;
  await driver.inspect("aw-u-1", signal);
  impatient.abort(new Error("the lease is over"));
  await assert.rejects(two, /the lease is over/);
  assert.deepEqual(
    begun.map(({ name }) => name),
    ["one"],
    "nobody overtakes the first",
  );
  begun[0]?.socket.write(COMMITTED);
  await one;
  await three;
  assert.deepEqual(
    begun.map(({ name }) => name),
    ["one", "three"],
  );
  await driver.close();
});
