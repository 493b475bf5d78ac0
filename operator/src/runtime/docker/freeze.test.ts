// An engine goes on with a start and with a pause that it was asked for, whether or not the client still listens. A start into
// a frozen cgroup wedges container and host, so each waits for the other's end in the engine, not for its own call's.
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { createDockerDriver } from "./driver.ts";
import { labelsOf } from "./labels.ts";
import { httpAnswer, scriptedEngine } from "./scripted-engine.test-kit.ts";

const NAME = "aw-uid-1";
const never = new AbortController().signal;
const Labels = labelsOf({ installation: "ours", namespace: "n", sandbox: "s", sandboxUid: "uid", boot: 1 });
const UPGRADED = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
const State = { Status: "running", ExitCode: 0, OOMKilled: false, StartedAt: "", FinishedAt: "" };

interface Exec {
  Running: boolean;
  Pid: number;
  ExitCode: number | null;
}

/** What the engine answers to the start of an exec, and to a pause. */
interface Manners {
  start?: (socket: Socket) => void;
  pause?: (socket: Socket) => void;
}

/** An engine with one container of ours; `calls` are those that act, with what the exec was doing at the time. */
async function engineWith(manners: Manners) {
  const exec: Exec = { Running: false, Pid: 0, ExitCode: null };
  const calls: string[] = [];
  let looks = 0;
  const waiting = new Set<() => void>();
  const note = (call: string) => {
    calls.push(call);
    for (const look of waiting) look();
  };
  const until = (isTrue: () => boolean) =>
    new Promise<void>((resolve) => {
      const look = () => {
        if (!isTrue()) return;
        waiting.delete(look);
        resolve();
      };
      waiting.add(look);
      look();
    });
  const json = (socket: Socket, status: number, body: unknown) =>
    socket.write(httpAnswer(status, JSON.stringify(body)));
  const engine = await scriptedEngine(({ line }, socket) => {
    if (line.includes("/exec/e1/start")) {
      note("start");
      exec.Running = true;
      (manners.start ?? ((at) => at.write(UPGRADED)))(socket);
    } else if (line.includes("/exec/e1/json")) {
      json(socket, 200, exec);
      looks++;
      for (const look of waiting) look();
    } else if (line.includes("/pause")) {
      note(`pause, exec ${exec.Running && exec.Pid === 0 ? "starting" : "settled"}`);
      (manners.pause ?? ((at) => at.write("HTTP/1.1 204 No Content\r\n\r\n")))(socket);
    } else if (line.startsWith("POST") && line.includes("/exec")) json(socket, 201, { Id: "e1" });
    else json(socket, 200, { Id: "id1", Image: "i", Config: { Labels }, State, ExecIDs: ["e1"] });
  });
  const driver = createDockerDriver({
    installation: "ours",
    endpoint: `unix://${engine.path}`,
    helper: () => Promise.reject(new TypeError("no container is made here")),
  });
  return {
    driver,
    exec,
    calls,
    looked: () => looks,
    hears: (call: string) => until(() => calls.includes(call)),
    /** Resolves when the engine was asked so often how far the exec is, or is told to pause without that. */
    looks: (more: number) => {
      const enough = looks + more;
      return until(() => looks >= enough || calls.some((call) => call.startsWith("pause")));
    },
    /** Gives whatever is under way time for several calls of its own. */
    answersFor: async (name: string) => {
      for (let turn = 0; turn < 8; turn++) await driver.inspect(name, never);
    },
    async [Symbol.asyncDispose]() {
      await driver.close();
      await engine[Symbol.asyncDispose]();
    },
  };
}

const breaks: [how: string, start: (socket: Socket) => void, givesUp: boolean][] = [
  ["whose caller gave up", () => undefined, true],
  ["whose connection broke", (socket) => socket.destroy(), false],
  ["whose answer a proxy cut off", (socket) => socket.write(httpAnswer(504, "{}")), false],
];
for (const [how, start, givesUp] of breaks)
  test(`a start ${how} is waited for before the pause: the engine goes on with it`, async () => {
    const begun = Promise.withResolvers<Socket>();
    await using engine = await engineWith({
      start: (socket) => {
        start(socket);
        begun.resolve(socket);
      },
    });
    const caller = new AbortController();
    const failed = assert.rejects(engine.driver.exec(NAME, { command: ["true"] }, caller.signal));
    const socket = await begun.promise;
    if (givesUp) caller.abort(new Error("the client hung up"));
    await failed;
    const freezing = engine.driver.freeze(NAME, never);
    if (givesUp) {
      await engine.answersFor(NAME);
      socket.write(UPGRADED);
    }
    await engine.looks(3);
    engine.exec.Pid = 42;
    await freezing;
    assert.deepEqual(engine.calls, ["start", "pause, exec settled"]);
  });

test("a start that the engine refused is not waited for", async () => {
  await using engine = await engineWith({
    start: (socket) => {
      engine.exec.Running = false;
      socket.write(httpAnswer(409, '{"message":"Container id1 is paused"}'));
    },
  });
  await assert.rejects(engine.driver.exec(NAME, { command: ["true"] }, never));
  const before = engine.looked();
  await engine.driver.freeze(NAME, never);
  assert.deepEqual(engine.calls, ["start", "pause, exec settled"]);
  assert.equal(engine.looked() - before, 1);
});

test("nothing is started while the engine still pauses for a caller that gave up", async () => {
  const pausing = Promise.withResolvers<Socket>();
  await using engine = await engineWith({ pause: (socket) => pausing.resolve(socket) });
  engine.exec.Pid = 42;
  const caller = new AbortController();
  const failed = assert.rejects(engine.driver.freeze(NAME, caller.signal));
  const socket = await pausing.promise;
  caller.abort(new Error("the pass was cut off"));
  await failed;
  const command = new AbortController();
  const ended = assert.rejects(engine.driver.exec(NAME, { command: ["true"] }, command.signal));
  await engine.answersFor(NAME);
  assert.deepEqual(engine.calls, ["pause, exec settled"]);
  socket.write("HTTP/1.1 204 No Content\r\n\r\n");
  await engine.hears("start");
  command.abort();
  await ended;
});
