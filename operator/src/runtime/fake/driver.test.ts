import assert from "node:assert/strict";
import { test } from "node:test";
import { isRuntimeError, RuntimeError } from "../errors.ts";
import { FakeDriver } from "./driver.ts";
import { type FakeCall, FakeHost } from "./host.ts";

const { signal } = new AbortController();
const spec = {
  owner: { installation: "i", namespace: "n", sandbox: "s", sandboxUid: "u", boot: 1 },
  image: "base",
  limits: { pids: 1 },
  isolation: { network: "None" },
} as const;

test("a fault before the effect leaves nothing; a fault after it leaves the effect without an answer", async () => {
  const faulty = (moment: FakeCall["moment"]) =>
    new FakeHost({
      onCall: (call) => {
        if (call.operation === "create" && call.moment === moment)
          throw new RuntimeError("HostUnreachable", "injected");
      },
    });
  for (const [moment, left] of [
    ["before", 0],
    ["after", 1],
  ] as const) {
    const host = faulty(moment);
    await assert.rejects(new FakeDriver(host, "i").create(spec, signal), (e) => isRuntimeError(e, "HostUnreachable"));
    assert.equal(host.containers.size, left, moment);
  }
});

test("a host outlives the drivers that talk to it", async () => {
  const host = new FakeHost();
  const id = await new FakeDriver(host, "i").create(spec, signal);
  assert.equal((await new FakeDriver(host, "i").inspect(id, signal)).state, "Running");
});

test("a delayed call ends with its caller's abort", async () => {
  const abort = new AbortController();
  const host = new FakeHost({
    onCall: (_, signal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
        abort.abort(new Error("enough"));
      }),
  });
  await assert.rejects(new FakeDriver(host, "i").probe(abort.signal), /enough/);
});

test("commands are the test's, and what is pushed is handed over", async () => {
  const pushed: string[] = [];
  const host = new FakeHost({
    command: (request) => ({ exitCode: request.command.length, stdout: Buffer.from("out") }),
    onPush: ({ repository, tag, files }) => {
      pushed.push(`${repository}:${tag} ${[...files.keys()].join()}`);
    },
  });
  const driver = new FakeDriver(host, "i");
  const id = await driver.create(spec, signal);
  assert.equal((await driver.exec(id, { command: ["a", "b"] }, signal)).exitCode, 2);
  const content = (async function* () {
    yield Buffer.from("x");
  })();
  await driver.writeFile(id, { path: Buffer.from("/f"), content }, signal);
  await driver.commit(id, "c", signal);
  await driver.push("c", { repository: "r", tag: "t", login: undefined }, signal);
  assert.deepEqual(pushed, ["r:t /f"]);
});
