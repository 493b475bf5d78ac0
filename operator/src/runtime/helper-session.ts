import { createHash } from "node:crypto";
import { z } from "zod";
import { commandHeader, DEFAULT_MAX_OUTPUT_BYTES } from "./command-header.ts";
import type { ExecRecord, ExecRequest, FileWrite } from "./contract.ts";
import { RuntimeError, type RuntimeErrorCode } from "./errors.ts";
import {
  contentFrames,
  decodeFrames,
  encodeFrame,
  encodeJsonFrame,
  FRAME,
  type Frame,
  FrameTooLarge,
} from "./frames.ts";

/** A running sub-command of the helper, however the driver reaches it. */
export interface HelperChannel {
  /** What the helper writes to its stdout. Ends, or throws, when the connection does. */
  readonly output: AsyncIterable<Uint8Array>;
  /** Writes to the helper's stdin; resolves when more may be sent, rejects when the connection is gone. */
  send(bytes: Uint8Array): Promise<void>;
  /** Ends the connection. A command whose answer has not been acknowledged is killed by the helper. */
  close(): void;
  /** What the helper or the host wrote as plain text, for an error message. */
  diagnostics(): string;
}

const streamProof = z.object({ bytes: z.number(), sha256: z.string() });
const execRecord = z.object({
  exitCode: z.number().int(),
  signal: z.number().int(),
  timedOut: z.boolean(),
  outputTooLarge: z.boolean(),
  durationMs: z.number(),
  stdout: streamProof,
  stderr: streamProof,
});
const fileInfo = z.object({ size: z.number().int(), mode: z.number().int(), mtimeNs: z.number() });
const fileProof = z.object({ length: z.number().int(), sha256: z.string() });
const failure = z.object({ code: z.string(), message: z.string() });
const syncAnswer = z.object({ synced: z.literal(true) });
const sessionAnswer = z.object({ protocol: z.literal(1) });

/** Helper failures that mean the same to a client of the driver. */
const passedOn: ReadonlySet<RuntimeErrorCode> = new Set([
  "CommandNotStarted",
  "FileNotFound",
  "NotAFile",
  "FileRefused",
]);

/** Tells the helper who commands run as by default (the image's USER); its answer proves that it works. */
export async function startSession(channel: HelperChannel, session: { user: string }): Promise<void> {
  using _ = closing(channel);
  await channel.send(encodeJsonFrame(FRAME.header, session));
  parse(sessionAnswer, (await finalFrame(channel, FRAME.record)).payload);
  await acknowledge(channel);
}

/** Has the session's files brought to the disk. */
export async function syncFiles(channel: HelperChannel): Promise<void> {
  using _ = closing(channel);
  try {
    await channel.send(encodeJsonFrame(FRAME.header, {}));
    parse(syncAnswer, (await finalFrame(channel, FRAME.record)).payload);
  } catch (error) {
    // A container that was booted before the helper could do it: its work must not be kept from publication for ever.
    if (channel.diagnostics().includes('unknown command "sync"')) return;
    throw error;
  }
  await acknowledge(channel);
}

/**
 * Runs one command. The result is the supervisor's record, checked against the bytes that arrived; without a record
 * there is none: `ExecConnectionLost`.
 */
export async function runCommand(channel: HelperChannel, request: ExecRequest): Promise<ExecRecord> {
  using _ = closing(channel);
  const header = commandHeader(request);
  // A connection that breaks under it also ends the output, which says so.
  const sent = settled(sendCommand(channel, header, request.stdin));
  const streams = { [FRAME.stdout]: new Collected(), [FRAME.stderr]: new Collected() };
  const frame = await finalFrame(channel, FRAME.record, (next) => {
    if (next.kind === FRAME.stdout || next.kind === FRAME.stderr) streams[next.kind].add(next.payload);
  });
  const record = parse(execRecord, frame.payload);
  await sent;
  await acknowledge(channel);
  const stdout = streams[FRAME.stdout];
  const stderr = streams[FRAME.stderr];
  stdout.check("stdout", record.stdout);
  stderr.check("stderr", record.stderr);
  if (record.outputTooLarge) {
    const limit = request.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
    throw new RuntimeError("OutputTooLarge", `the command wrote more than ${limit} bytes and was ended`);
  }
  return {
    exitCode: record.exitCode,
    signal: record.signal,
    timedOut: record.timedOut,
    stdout: stdout.bytes(),
    stderr: stderr.bytes(),
    durationMs: record.durationMs,
  };
}

async function sendCommand(
  channel: HelperChannel,
  header: Buffer,
  stdin: Uint8Array = new Uint8Array(),
): Promise<void> {
  await channel.send(header);
  for (const frame of contentFrames(stdin)) await channel.send(frame);
  await channel.send(encodeFrame(FRAME.end));
}

/** Opens a regular file. The content must be read to its end or returned early; either closes the channel. */
export async function openFile(
  channel: HelperChannel,
  path: Uint8Array,
): Promise<{ size: number; content: AsyncIterable<Uint8Array> }> {
  try {
    await channel.send(fileHeader({ path }));
    const frames = decodeFrames(channel.output);
    const first = await frames.next();
    if (first.done === true) throw connectionLost(channel);
    if (first.value.kind !== FRAME.info) throw unexpected(first.value, channel);
    const { size } = parse(fileInfo, first.value.payload);
    return { size, content: fileContent(channel, frames, size) };
  } catch (error) {
    channel.close();
    throw asConnectionLost(error, channel);
  }
}

async function* fileContent(
  channel: HelperChannel,
  frames: AsyncGenerator<Frame>,
  size: number,
): AsyncGenerator<Uint8Array> {
  using _ = closing(channel);
  const hash = createHash("sha256");
  let length = 0;
  try {
    for await (const frame of frames) {
      if (frame.kind === FRAME.data) {
        hash.update(frame.payload);
        length += frame.payload.length;
        yield frame.payload;
        continue;
      }
      if (frame.kind !== FRAME.end) throw unexpected(frame, channel);
      const proof = parse(fileProof, frame.payload);
      if (length !== size || proof.length !== length || proof.sha256 !== hash.digest("hex"))
        throw new RuntimeError("ExecConnectionLost", `the file arrived damaged: ${length} of ${size} bytes`);
      await acknowledge(channel);
      return;
    }
  } catch (error) {
    throw asConnectionLost(error, channel);
  }
  throw connectionLost(channel);
}

/** Writes a file in one step. A failure of `content` leaves the old bytes and is thrown on. */
export async function storeFile(channel: HelperChannel, write: FileWrite): Promise<void> {
  using _ = closing(channel);
  const header = fileHeader(write);
  const answer = settled(finalFrame(channel, FRAME.record));
  const sending = settled(sendFile(channel, header, write.content));
  // A refusal can come before the last byte was taken; a failed source never gets an answer.
  const first = await Promise.race([
    answer.then((outcome) => ({ kind: "answer" as const, outcome })),
    sending.then((outcome) => ({ kind: "sent" as const, outcome })),
  ]);
  if (first.kind === "sent" && !first.outcome.ok && first.outcome.error instanceof SourceFailed)
    throw first.outcome.error.cause;
  const outcome = await answer;
  if (!outcome.ok) throw outcome.error;
  parse(fileProof, outcome.value.payload);
  await acknowledge(channel);
}

class SourceFailed extends Error {
  override readonly name = "SourceFailed";
}

/** A path beyond any file system's limit is refused before the helper waits for it. */
function fileHeader({ path, mode }: { path: Uint8Array; mode?: number | undefined }): Buffer {
  try {
    return encodeJsonFrame(FRAME.header, {
      path: Buffer.from(path).toString("base64"),
      ...(mode === undefined ? {} : { mode }),
    });
  } catch (error) {
    if (!(error instanceof FrameTooLarge)) throw error;
    throw new RuntimeError("FileRefused", `a path of ${path.length} bytes is too long`);
  }
}

async function sendFile(channel: HelperChannel, header: Buffer, content: AsyncIterable<Uint8Array>): Promise<void> {
  await channel.send(header);
  const hash = createHash("sha256");
  let length = 0;
  for await (const chunk of namedSource(content)) {
    hash.update(chunk);
    length += chunk.length;
    for (const frame of contentFrames(chunk)) await channel.send(frame);
  }
  await channel.send(encodeJsonFrame(FRAME.end, { length, sha256: hash.digest("hex") }));
}

/** Tells a failure of the caller's content from one of the connection. */
async function* namedSource(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const iterator = content[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await iterator.next().catch((cause: unknown) => {
        throw new SourceFailed("the content could not be read", { cause });
      });
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    await iterator.return?.();
  }
}

/** The frame that ends a conversation; others on the way go to `each`. */
async function finalFrame(channel: HelperChannel, kind: number, each?: (frame: Frame) => void): Promise<Frame> {
  try {
    for await (const frame of decodeFrames(channel.output)) {
      if (frame.kind === kind) return frame;
      if (frame.kind === FRAME.failure) throw unexpected(frame, channel);
      each?.(frame);
    }
  } catch (error) {
    throw asConnectionLost(error, channel);
  }
  throw connectionLost(channel);
}

function unexpected(frame: Frame, channel: HelperChannel): RuntimeError {
  if (frame.kind !== FRAME.failure)
    return new RuntimeError("ExecConnectionLost", `unexpected frame of type ${frame.kind}${quoted(channel)}`);
  const { code, message } = parse(failure, frame.payload);
  for (const known of passedOn) if (known === code) return new RuntimeError(known, message);
  return new RuntimeError("HostRefused", `the helper failed with ${code}: ${message}`);
}

function parse<T>(schema: z.ZodType<T>, payload: Buffer): T {
  try {
    return schema.parse(JSON.parse(payload.toString()));
  } catch (cause) {
    throw new RuntimeError("ExecConnectionLost", "the helper's answer cannot be read", { cause });
  }
}

const connectionLost = (channel: HelperChannel, cause?: unknown): RuntimeError =>
  new RuntimeError("ExecConnectionLost", `the connection ended before the answer${quoted(channel)}`, { cause });

function asConnectionLost(error: unknown, channel: HelperChannel): RuntimeError {
  return error instanceof RuntimeError ? error : connectionLost(channel, error);
}

function quoted(channel: HelperChannel): string {
  const text = channel.diagnostics().trim();
  return text === "" ? "" : `: ${text}`;
}

/** The answer is complete already: a connection that is gone by now takes nothing away. */
const acknowledge = async (channel: HelperChannel): Promise<void> => {
  await settled(channel.send(encodeFrame(FRAME.ack)));
};

const closing = (channel: HelperChannel): Disposable => ({ [Symbol.dispose]: () => channel.close() });

type Outcome<T> = { ok: true; value: T } | { ok: false; error: unknown };

const settled = <T>(promise: Promise<T>): Promise<Outcome<T>> =>
  promise.then(
    (value) => ({ ok: true, value }),
    (error: unknown) => ({ ok: false, error }),
  );

/** One output stream as it arrives. */
class Collected {
  readonly #chunks: Buffer[] = [];

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  check(stream: string, proof: { bytes: number; sha256: string }): void {
    const hash = createHash("sha256");
    let length = 0;
    for (const chunk of this.#chunks) {
      hash.update(chunk);
      length += chunk.length;
    }
    if (length !== proof.bytes || hash.digest("hex") !== proof.sha256)
      throw new RuntimeError("ExecConnectionLost", `${stream} arrived damaged: ${length} of ${proof.bytes} bytes`);
  }
}
