import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { test } from "node:test";
import { isRuntimeError } from "../errors.ts";
import { encodeFrame, encodeJsonFrame, FRAME } from "../frames.ts";
import { type HelperChannel, openFile, runCommand, storeFile } from "../helper-session.ts";
import { attachExec, createHelperExec, type HelperCall, helperChannel } from "./exec.ts";
import { httpAnswer, scriptedEngine } from "./scripted-engine.test-kit.ts";
import { EngineTransport } from "./transport.ts";

const never = new AbortController().signal;
const UPGRADED = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

/** A chunk as an engine sends it for an exec without a TTY. */
function multiplexed(stream: 1 | 2, payload: Uint8Array): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(payload.length, 4);
  return Buffer.concat([header, payload]);
}

/** Runs `true` against an engine whose exec stream is `bytes`. */
async function execAgainst(bytes: Uint8Array, then: "end" | "destroy" | "stay"): Promise<unknown> {
  await using engine = await scriptedEngine(({ line }, socket: Socket) => {
    if (!line.includes("/start")) {
      socket.write(httpAnswer(201, '{"Id":"e1"}'));
      return;
    }
    socket.removeAllListeners("data");
    socket.resume();
    socket.write(UPGRADED);
    socket.write(bytes, () => {
      if (then === "end") socket.end();
      if (then === "destroy") socket.destroy();
    });
  });
  const transport = new EngineTransport({ kind: "unix", path: engine.path });
  try {
    const channel = await openHelper(transport, { container: "c", command: "exec", silenceMs: 300 }, never);
    return await runCommand(channel, { command: ["true"] });
  } catch (error) {
    return error;
  } finally {
    await transport.close();
  }
}

const emptyProof = { bytes: 0, sha256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" };
const record = {
  exitCode: 0,
  signal: 0,
  timedOut: false,
  outputTooLarge: false,
  durationMs: 1,
  stdout: emptyProof,
  stderr: emptyProof,
};

async function openHelper(transport: EngineTransport, call: HelperCall, signal: AbortSignal) {
  const exec = await createHelperExec(transport, call, signal);
  return helperChannel(await attachExec(transport, exec, signal), call, signal);
}

test("a stream with its record is the record", async () => {
  const answer = await execAgainst(multiplexed(1, encodeJsonFrame(FRAME.record, record)), "end");
  assert.deepEqual(answer, {
    exitCode: 0,
    signal: 0,
    timedOut: false,
    durationMs: 1,
    stdout: Buffer.alloc(0),
    stderr: Buffer.alloc(0),
  });
});

const output = encodeFrame(FRAME.stdout, Buffer.from("partial"));
const whole = multiplexed(1, encodeJsonFrame(FRAME.record, record));
const lost: [name: string, bytes: Uint8Array, then: "end" | "destroy"][] = [
  ["no byte at all", Buffer.alloc(0), "end"],
  ["output and then the end", multiplexed(1, output), "end"],
  ["output and then a reset", multiplexed(1, output), "destroy"],
  ["a record cut within a chunk of the engine", whole.subarray(0, whole.length - 1), "end"],
  ["a record cut within a frame", multiplexed(1, encodeJsonFrame(FRAME.record, record).subarray(0, 30)), "end"],
  ["a record that is not JSON", multiplexed(1, encodeFrame(FRAME.record, Buffer.from("{"))), "end"],
  ["a record without an exit code", multiplexed(1, encodeJsonFrame(FRAME.record, { signal: 0 })), "end"],
  ["a stream that is not multiplexed", Buffer.from("OCI runtime exec failed: no such file"), "end"],
  [
    "fewer bytes than the record counts",
    multiplexed(1, encodeJsonFrame(FRAME.record, { ...record, stdout: { ...emptyProof, bytes: 7 } })),
    "end",
  ],
  [
    "other bytes than the record's digest",
    multiplexed(
      1,
      Buffer.concat([output, encodeJsonFrame(FRAME.record, { ...record, stdout: { ...emptyProof, bytes: 7 } })]),
    ),
    "end",
  ],
];
for (const [name, bytes, then] of lost)
  test(`${name} is a lost connection, never an exit code`, async () => {
    const error = await execAgainst(bytes, then);
    assert.ok(isRuntimeError(error, "ExecConnectionLost"), String(error));
  });

test("what the runtime wrote to stderr explains a lost connection", async () => {
  const error = await execAgainst(multiplexed(2, Buffer.from("exec format error")), "end");
  assert.match(String(error), /exec format error/);
});

test("silence beyond the limit ends the wait", async () => {
  const error = await execAgainst(multiplexed(1, output), "stay");
  assert.ok(isRuntimeError(error, "HostUnreachable"), String(error));
});

/** A helper that says nothing for ever. */
function silentHelper() {
  const sent: Uint8Array[] = [];
  const silence = new Promise<never>(() => undefined);
  const channel: HelperChannel = {
    output: (async function* () {
      yield await silence;
    })(),
    send: async (bytes) => void sent.push(bytes),
    close: () => undefined,
    diagnostics: () => "",
  };
  return { sent, channel };
}

test("a command that does not fit the helper's header is refused, not waited for", async () => {
  const { sent, channel } = silentHelper();
  const command = ["true", "x".repeat(5 << 20)];
  await assert.rejects(runCommand(channel, { command }), (error) => isRuntimeError(error, "CommandTooLarge"));
  assert.deepEqual(sent, []);
});

test("a path that does not fit is refused, not waited for", async () => {
  const { sent, channel } = silentHelper();
  const path = Buffer.alloc(4 << 20, "x");
  const content = Readable.from(["content"]);
  await assert.rejects(storeFile(channel, { path, content }), (error) => isRuntimeError(error, "FileRefused"));
  await assert.rejects(openFile(channel, path), (error) => isRuntimeError(error, "FileRefused"));
  assert.deepEqual(sent, []);
});
