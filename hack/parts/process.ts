import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type FileHandle, open, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { MissingProgram, PartFailed, systemErrorCode } from "./errors.ts";
import { eventually } from "./wait.ts";

/** A long-running program of the local parts. */
export interface ProcessOptions {
  /** Name used in messages. */
  name: string;
  command: string;
  args: readonly string[];
  /** Replaces the environment of this process; default: inherited. */
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** File that receives stdout and stderr; appended to, so that a restart keeps the earlier lines. */
  logPath: string;
  /** Written to stdin, which is then closed. Default: no stdin. */
  input?: string;
}

/** A started program. Ends with this process, however this process ends. */
export interface RunningProcess extends AsyncDisposable {
  readonly name: string;
  readonly pid: number;
  readonly logPath: string;
  /** Resolves with a sentence ("exited with 1", "killed by SIGKILL") when the program is gone. */
  readonly exited: Promise<string>;
  /** Whether the program still runs, as far as this process was told. */
  isRunning(): boolean;
  /** TERM, then KILL after `graceMs` (default 10 000); resolves when the program is gone. */
  stop(graceMs?: number): Promise<void>;
  /** KILL; resolves when the program is gone. */
  kill(): Promise<void>;
  /**
   * Waits until `probe` returns true.
   * @throws PartFailed with the last log lines when the program ends first or the time is over.
   */
  ready(
    probe: (signal: AbortSignal) => Promise<boolean>,
    limits: { timeoutMs: number; signal: AbortSignal },
  ): Promise<void>;
}

/**
 * Starts a program that the kernel kills when this process dies (PR_SET_PDEATHSIG by util-linux `setpriv`), even by
 * SIGKILL. The kernel ties that to the starting *thread*: call it from the main thread only.
 * @throws MissingProgram when the program is not there.
 */
export async function startProcess(options: ProcessOptions): Promise<RunningProcess> {
  await using log = await open(options.logPath, "a");
  const child = await spawned(options, log);
  let status: string | undefined;
  const exited = new Promise<string>((resolve) => {
    child.once("exit", (code, signal) => {
      status = signal === null ? `exited with ${code}` : `killed by ${signal}`;
      resolve(status);
    });
  });
  const pid = child.pid;
  if (pid === undefined) throw new PartFailed(options.name, "started without a process id");

  const stop = async (graceMs = 10_000): Promise<void> => {
    if (status !== undefined) return;
    child.kill("SIGTERM");
    const patience = new AbortController();
    const timer = sleep(graceMs, undefined, { signal: patience.signal }).catch(() => undefined);
    await Promise.race([exited, timer]);
    patience.abort();
    if (status === undefined) child.kill("SIGKILL");
    await exited;
  };
  return {
    name: options.name,
    pid,
    logPath: options.logPath,
    exited,
    isRunning: () => status === undefined,
    stop,
    async kill() {
      child.kill("SIGKILL");
      await exited;
    },
    async ready(probe, limits) {
      try {
        await eventually(
          async (signal) => {
            if (status !== undefined) return "ended";
            return (await probe(AbortSignal.any([signal, AbortSignal.timeout(5_000)]))) ? "ready" : undefined;
          },
          { timeoutMs: limits.timeoutMs, signal: limits.signal, intervalMs: 100, what: `${options.name} ready` },
        );
      } catch (error) {
        limits.signal.throwIfAborted();
        throw new PartFailed(options.name, `not ready: ${await lastLines(options.logPath)}`, { cause: error });
      }
      if (status !== undefined) throw new PartFailed(options.name, `${status}: ${await lastLines(options.logPath)}`);
    },
    [Symbol.asyncDispose]: () => stop(),
  };
}

async function spawned(options: ProcessOptions, log: FileHandle): Promise<ChildProcess> {
  const child = spawn("setpriv", ["--pdeathsig", "KILL", "--", options.command, ...options.args], {
    cwd: options.cwd,
    env: options.env,
    stdio: [options.input === undefined ? "ignore" : "pipe", log.fd, log.fd],
    // A Ctrl-C on the terminal must reach only us: we end the parts in order.
    detached: true,
  });
  try {
    await once(child, "spawn");
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") {
      throw new MissingProgram("setpriv", "setpriv is not installed: install the Debian package util-linux");
    }
    throw error;
  }
  child.stdin?.end(options.input);
  return child;
}

/** The last lines of a log, for a message. Empty when there is no such file. */
export async function lastLines(path: string, count = 12): Promise<string> {
  try {
    return (await readFile(path, "utf8")).trimEnd().split("\n").slice(-count).join("\n");
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return "";
    throw error;
  }
}

/** A short program that must end by itself. */
export interface CommandOptions {
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  /** Written to stdin. */
  input?: string | Buffer;
  signal: AbortSignal;
}

/** What a short program printed, and how it ended. */
export interface CommandResult {
  code: number;
  stdout: string;
  stderr: string;
}

/**
 * Runs a program to its end and returns whatever it ended with.
 * @throws MissingProgram when there is no such program.
 */
export async function attempt(command: readonly string[], options: CommandOptions): Promise<CommandResult> {
  const [program, ...args] = command;
  if (program === undefined) throw new TypeError("no command given");
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: options.env,
    stdio: ["pipe", "pipe", "pipe"],
    signal: options.signal,
    killSignal: "SIGKILL",
  });
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
  // A program that ends without reading its input is judged by its exit code, not by our broken pipe.
  child.stdin.on("error", (error) => stderr.push(Buffer.from(`(stdin: ${error.message})`)));
  child.stdin.end(options.input);
  try {
    const [code, signal] = await once(child, "close");
    return {
      code: typeof code === "number" ? code : 128,
      stdout: Buffer.concat(stdout).toString("utf8"),
      stderr: Buffer.concat(stderr).toString("utf8") + (typeof signal === "string" ? ` (${signal})` : ""),
    };
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") throw new MissingProgram(program, `${program} is not installed`);
    throw error;
  }
}

/**
 * Runs a program to its end and returns its stdout.
 * @throws PartFailed when it exits with anything but 0; MissingProgram when it is not there.
 */
export async function run(command: readonly string[], options: CommandOptions): Promise<string> {
  const result = await attempt(command, options);
  if (result.code !== 0) {
    const said = (result.stderr.trim() || result.stdout.trim()).split("\n").slice(-12).join("\n");
    throw new PartFailed(command[0] ?? "", `exited with ${result.code}: ${said}`);
  }
  return result.stdout;
}
