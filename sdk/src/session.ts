import { randomUUID } from "node:crypto";
import type { Sandbox } from "@agentworlds/crds";
import type { CallOptions } from "./deadline.ts";
import { Deadline } from "./deadline.ts";
import { ConfigurationError, NotFoundError, ProtocolError } from "./errors.ts";
import { type ExecResult, execResultIn } from "./exec-result.ts";
import { isRecord, numberIn, textIn, timeIn } from "./json.ts";
import { type OptionNames, refuseUnknown } from "./known-options.ts";
import { segment } from "./naming.ts";
import type { ObjectRef } from "./objects.ts";
import type { Transport } from "./transport.ts";
import { READY_TIMEOUT_MS, type WaitOptions } from "./wait-ready.ts";

/** How to run a command. */
export interface ExecOptions extends CallOptions {
  /** Added to the session's environment. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Default: the image's working directory. */
  readonly workingDir?: string | undefined;
  /** `uid[:gid]` or a name the image knows. Default: the image's user. */
  readonly user?: string | undefined;
  /** What the command reads; text is sent as UTF-8. Default: nothing. */
  readonly stdin?: string | Uint8Array | undefined;
  /**
   * Seconds until the command's process group is killed and the result says `timedOut`. Default 50 through
   * kube-apiserver, which cuts a request after 60 s, so that more than 50 is refused there (`TimeoutTooLong`); 60 by the
   * gateway's own endpoint, where more is allowed.
   */
  readonly timeoutSeconds?: number | undefined;
}

/** How to read a file. */
export type ReadFileOptions = CallOptions & { readonly maxBytes?: number | undefined };
/** How to write a file. */
export type WriteFileOptions = CallOptions & { readonly mode?: number | undefined };
/** How far to extend a session. */
export type TouchOptions = WaitOptions & { readonly ttlSeconds?: number | undefined };
/** How to make a version. */
export type SnapshotOptions = CallOptions & {
  readonly description?: string | undefined;
  readonly id?: string | undefined;
};
/** How to end a session. */
export type CloseOptions = CallOptions & {
  readonly policy?: "Snapshot" | "Discard" | undefined;
  readonly description?: string | undefined;
};

const CALL: OptionNames<CallOptions> = { signal: true, timeoutMs: true };
const EXEC: OptionNames<ExecOptions> = {
  ...CALL,
  env: true,
  workingDir: true,
  user: true,
  stdin: true,
  timeoutSeconds: true,
};
const READ: OptionNames<ReadFileOptions> = { ...CALL, maxBytes: true };
const WRITE: OptionNames<WriteFileOptions> = { ...CALL, mode: true };
const TOUCH: OptionNames<TouchOptions> = { ...CALL, ttlSeconds: true, onProgress: true, graceMs: true };
const SNAPSHOT: OptionNames<SnapshotOptions> = { ...CALL, description: true, id: true };
const CLOSE: OptionNames<CloseOptions> = { ...CALL, policy: true, description: true };

/** A version that was made and read back. */
export interface VersionResult {
  /** Number in the World; absent where nothing was saved. */
  readonly version: number | undefined;
  /** Digest of its manifest; absent where nothing was saved. */
  readonly digest: string | undefined;
}

/** When a session ends. */
export interface TouchResult {
  readonly expiresAt: Date | undefined;
  /** No touch reaches beyond this. */
  readonly lifetimeEndsAt: Date | undefined;
}

/** What a session is made of. */
export interface SessionParts {
  readonly sandbox: Sandbox;
  readonly ref: ObjectRef;
  readonly transport: Transport;
  /** Waits until the Sandbox is Ready (again); `wake` is the touch that is to wake it. */
  readonly untilReady: (options: WaitOptions, wake: string | undefined) => Promise<Sandbox>;
}

/** Path of the sessions API. */
export const SESSIONS_API = "/apis/sessions.agentworlds.dev/v1alpha1";
/** Whether a path belongs to it. */
export const isSessionPath = (path: string): boolean => path.startsWith(`${SESSIONS_API}/`);

const TOUCH_TIMEOUT_MS = 30_000;
const FILE_TIMEOUT_MS = 300_000;
/** Ten minutes: a large World's layer may have to be uploaded. */
const VERSION_TIMEOUT_MS = 600_000;
const DEFAULT_EXEC_SECONDS = 60;
/** What the answer may take beyond the command's own time. */
const EXEC_GRACE_MS = 30_000;
const MAX_FILE_BYTES = 256 * 1024 * 1024;

/**
 * A Sandbox to work in. Commands, writes and touches extend its deadline; reads do not. Errors are `AgentWorldsError`s;
 * after `ConflictError` `Hibernated` a touch wakes it, after `ComputeLost` it begins anew without the work that is lost. `await using` closes it.
 */
export class Session implements AsyncDisposable {
  readonly name: string;
  readonly namespace: string;
  readonly #parts: SessionParts;
  #expiresAt: Date | undefined;
  #closed: Promise<VersionResult> | undefined;

  constructor(parts: SessionParts) {
    this.name = parts.ref.name;
    this.namespace = parts.ref.namespace;
    this.#parts = parts;
    this.#expiresAt = timeIn(parts.sandbox.status, "expiresAt");
  }

  /** When it hibernates unless it is used, as of the last answer; absent while it does not run. */
  get expiresAt(): Date | undefined {
    return this.#expiresAt;
  }

  /**
   * Runs a command to its end. A list is the command and its arguments; a text goes to `/bin/sh -c`. An exit code other
   * than 0 is a result, not an error. It is never run twice: when the connection breaks under it the error's
   * `outcomeUnknown` is true. More than 16 MiB of output is the error `OutputTooLarge`, more than 4 MiB of command and
   * environment `CommandTooLarge`.
   */
  async exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    refuseUnknown("exec", options, EXEC);
    const { env, workingDir, user, stdin, timeoutSeconds, signal } = options;
    const json = {
      command: typeof command === "string" ? ["/bin/sh", "-c", command] : command,
      ...(env === undefined ? {} : { env }),
      ...(workingDir === undefined ? {} : { workingDir }),
      ...(user === undefined ? {} : { user }),
      ...(stdin === undefined ? {} : { stdin: toBuffer(stdin).toString("base64") }),
      // Not stated unless the caller does: the gateway shortens its own default to the session's lifetime.
      ...(timeoutSeconds === undefined ? {} : { timeoutSeconds }),
    };
    const timeoutMs = options.timeoutMs ?? (timeoutSeconds ?? DEFAULT_EXEC_SECONDS) * 1_000 + EXEC_GRACE_MS;
    const path = this.#path("exec");
    const call = { method: "POST", path, body: { json }, repetition: "Once", timeoutMs, signal } as const;
    const result = execResultIn(await this.#parts.transport.json(call));
    this.#expiresAt = result.expiresAt;
    return result;
  }

  /**
   * The bytes of a regular file; `path` is absolute, and may be bytes where it is not UTF-8. Default deadline 5 minutes,
   * but kube-apiserver severs what takes more than 60 s: give the client `gateway` for large files.
   * More than `maxBytes` (default 256 MiB) is the error `AnswerTooLarge`.
   */
  async readFile(path: string | Uint8Array, options: ReadFileOptions = {}): Promise<Uint8Array> {
    refuseUnknown("readFile", options, READ);
    const { maxBytes = MAX_FILE_BYTES, timeoutMs = FILE_TIMEOUT_MS, signal } = options;
    const query = `path=${percentEncoded(path)}`;
    const call = {
      method: "GET",
      path: this.#path("files"),
      query,
      repetition: "Repeatable",
      timeoutMs,
      signal,
    } as const;
    return this.#parts.transport.bytes(call, maxBytes);
  }

  /** Like `readFile`, as text. `ProtocolError` `NotUtf8` for a file that is none, since writing it back would spoil it. */
  async readTextFile(path: string | Uint8Array, options: ReadFileOptions = {}): Promise<string> {
    const bytes = await this.readFile(path, options);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch (cause) {
      const message = "the file is not UTF-8 text";
      throw new ProtocolError({ code: "NotUtf8", message, remediation: "read it with readFile", cause });
    }
  }

  /**
   * Replaces a file atomically; text is written as UTF-8. `mode` are permission bits such as 0o755; default: those of the
   * file that is replaced, else 0o644. Default deadline 5 minutes; kube-apiserver answers after 60 s with an error whose outcome is unknown:
   * give the client `gateway` for large files.
   */
  async writeFile(
    path: string | Uint8Array,
    content: string | Uint8Array,
    options: WriteFileOptions = {},
  ): Promise<void> {
    refuseUnknown("writeFile", options, WRITE);
    const { mode, timeoutMs = FILE_TIMEOUT_MS, signal } = options;
    const bits = mode === undefined ? "" : `&mode=${mode.toString(8).padStart(4, "0")}`;
    const query = `path=${percentEncoded(path)}${bits}`;
    const body = { bytes: toBuffer(content) };
    const call = {
      method: "PUT",
      path: this.#path("files"),
      query,
      body,
      repetition: "Once",
      timeoutMs,
      signal,
    } as const;
    this.#expiresAt = timeIn(await this.#parts.transport.json(call), "expiresAt");
  }

  /**
   * Extends the deadline to `ttlSeconds` from now (default: the session's own ttl), never shortens it; `BeyondLifetime`
   * when that is beyond the lifetime. A hibernated session is woken, and the call returns when it is Ready again (default
   * deadline then 5 minutes).
   */
  async touch(options: TouchOptions = {}): Promise<TouchResult> {
    refuseUnknown("touch", options, TOUCH);
    const { ttlSeconds, signal, timeoutMs, onProgress, graceMs } = options;
    const deadline = new Deadline(timeoutMs ?? READY_TIMEOUT_MS, signal);
    const answer = await this.#parts.transport.json({
      method: "POST",
      path: this.#path("touch"),
      body: { json: ttlSeconds === undefined ? {} : { ttlSeconds } },
      repetition: "Repeatable",
      timeoutMs: Math.min(TOUCH_TIMEOUT_MS, deadline.milliseconds),
      signal,
    });
    const isWaking = isRecord(answer) && answer["waking"] === true;
    const waiting = { signal, timeoutMs: deadline.remainingMs, onProgress, graceMs };
    const state = isWaking ? (await this.#parts.untilReady(waiting, textIn(answer, "id"))).status : answer;
    this.#expiresAt = timeIn(state, "expiresAt");
    return { expiresAt: this.#expiresAt, lifetimeEndsAt: timeIn(state, "lifetimeEndsAt") };
  }

  /**
   * Makes a version of the running session and returns when it was read back from the registry. The same `id` again is
   * the same snapshot. Default deadline 10 minutes.
   */
  async snapshot(options: SnapshotOptions = {}): Promise<VersionResult> {
    refuseUnknown("snapshot", options, SNAPSHOT);
    const { description, id = randomUUID(), ...rest } = options;
    return this.#ask("snapshot", { id, ...(description === undefined ? {} : { description }) }, rest);
  }

  /**
   * Ends the session for good and returns the version it ended in; `policy` instead of its `closePolicy`. Closing again
   * returns the same. Default deadline 10 minutes.
   */
  async close(options: CloseOptions = {}): Promise<VersionResult> {
    refuseUnknown("close", options, CLOSE);
    if (this.#closed !== undefined) return this.#closed;
    const { policy, description, ...rest } = options;
    const wish = {
      id: randomUUID(),
      ...(policy === undefined ? {} : { policy }),
      ...(description === undefined ? {} : { description }),
    };
    const closing = this.#ask("close", wish, rest);
    this.#closed = closing;
    closing.then(
      () => {
        this.#expiresAt = undefined;
      },
      () => {
        // It may be tried again.
        if (this.#closed === closing) this.#closed = undefined;
      },
    );
    return closing;
  }

  /** Closes by the session's own policy; one that is gone already is closed. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.close();
    } catch (error) {
      if (!(error instanceof NotFoundError && error.code === "NotFound")) throw error;
    }
  }

  /** Asks with one id until the answer is there: each request waits below kube-apiserver's cut and answers 202 then. */
  async #ask(verb: "snapshot" | "close", json: { id: string }, options: CallOptions): Promise<VersionResult> {
    const deadline = new Deadline(options.timeoutMs ?? VERSION_TIMEOUT_MS, options.signal);
    for (;;) {
      const answer = await this.#parts.transport.json({
        method: "POST",
        path: this.#path(verb),
        body: { json },
        repetition: "Repeatable",
        timeoutMs: deadline.remainingMs,
        signal: options.signal,
      });
      if (!isRecord(answer) || typeof answer["done"] !== "boolean") {
        throw new ProtocolError({
          code: "BadAnswer",
          message: `the gateway's answer to ${verb} does not say whether it is done`,
        });
      }
      if (answer["done"]) return { version: numberIn(answer, "version"), digest: textIn(answer, "digest") };
      // A gateway that stops answers at once; the next request must not meet it in a busy loop.
      await this.#parts.transport.sleep(100, deadline.signal);
    }
  }

  #path(subresource: string): string {
    return `${SESSIONS_API}/namespaces/${segment(this.namespace)}/sandboxes/${segment(this.name)}/${subresource}`;
  }
}

const toBuffer = (content: string | Uint8Array): Buffer =>
  typeof content === "string"
    ? Buffer.from(content, "utf8")
    : Buffer.from(content.buffer, content.byteOffset, content.byteLength);

/** Every byte that is not plainly harmless: some hops drop a parameter over a raw `;` and read `+` as a space. */
function percentEncoded(path: string | Uint8Array): string {
  if (typeof path === "string" && !path.isWellFormed()) {
    throw new ConfigurationError({
      code: "BadPath",
      message: "the path holds half a character",
      remediation: "pass it as bytes",
    });
  }
  let encoded = "";
  for (const byte of toBuffer(path)) {
    const char = String.fromCharCode(byte);
    encoded += /[A-Za-z0-9._~/-]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return encoded;
}
