import type { Duplex } from "node:stream";
import { z } from "zod";
import { HELPER_PATH } from "../helper.ts";
import type { HelperChannel } from "../helper-session.ts";
import { startDeadline } from "./deadline.ts";
import { isStatus } from "./engine-errors.ts";
import type { ExecState } from "./exec-starts.ts";
import { demultiplex } from "./multiplex.ts";
import type { EngineTransport } from "./transport.ts";

const createdExec = z.object({ Id: z.string() });

export type HelperCommand = "session" | "exec" | "put" | "get" | "sync";

export interface HelperCall {
  readonly container: string;
  readonly command: HelperCommand;
  /** Longest time in which neither side says anything. */
  readonly silenceMs: number;
}

/** Most text of the helper's or the runtime's stderr that is kept for an error message. */
const DIAGNOSTIC_BYTES = 2048;

/**
 * Has the engine note a sub-command of the helper as an exec, and returns its Id; nothing is started yet. Its argv, all that a
 * process list of the host or the engine's own records show, names the sub-command only.
 */
export async function createHelperExec(
  transport: EngineTransport,
  call: Pick<HelperCall, "container" | "command">,
  signal: AbortSignal,
): Promise<string> {
  const json = {
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    Tty: false,
    // The helper changes to the command's user itself; as root the command cannot touch it.
    User: "0:0",
    Cmd: [HELPER_PATH, call.command],
  };
  const { Id } = await transport.json(
    createdExec,
    { method: "POST", path: `/containers/${call.container}/exec`, json },
    signal,
  );
  return Id;
}

/** Starts an exec and returns its raw connection. The engine goes on with it when the connection breaks or is given up. */
export async function attachExec(transport: EngineTransport, exec: string, signal: AbortSignal): Promise<Duplex> {
  const { socket } = await transport.upgrade(`/exec/${exec}/start`, { Detach: false, Tty: false }, signal);
  return socket;
}

const execState = z.object({
  Running: z.boolean().default(false),
  ExitCode: z.number().nullish(),
  Pid: z.number().default(0),
});

/** How far an exec is. One that the engine has forgotten has ended. */
export async function execStateOf(transport: EngineTransport, exec: string, signal: AbortSignal): Promise<ExecState> {
  try {
    const state = await transport.json(execState, { method: "GET", path: `/exec/${exec}/json` }, signal);
    if (state.Pid !== 0 || (state.ExitCode ?? null) !== null) return "Settled";
    // `Running` is set before the start; only the process id is proof of it (moby daemon/exec.go).
    return state.Running ? "Starting" : "Created";
  } catch (error) {
    if (isStatus(error, 404)) return "Settled";
    throw error;
  }
}

const execsOf = z.object({ ExecIDs: z.array(z.string()).nullish() });

/** Execs of a container that neither run nor have ended, whoever made them. */
export async function unsettledExecs(
  transport: EngineTransport,
  container: string,
  signal: AbortSignal,
): Promise<{ exec: string; state: ExecState }[]> {
  const path = `/containers/${container}/json`;
  const { ExecIDs } = await transport.json(execsOf, { method: "GET", path }, signal);
  const states = await Promise.all(
    (ExecIDs ?? []).map(async (exec) => ({ exec, state: await execStateOf(transport, exec, signal) })),
  );
  return states.filter(({ state }) => state !== "Settled");
}

/** The conversation over a connection that `attachExec` made, now or some time ago. */
export function helperChannel(socket: Duplex, call: HelperCall, signal: AbortSignal): HelperChannel {
  return new EngineChannel(socket, call, signal);
}

class EngineChannel implements HelperChannel {
  readonly output: AsyncIterable<Uint8Array>;
  readonly #socket: Duplex;
  #diagnostics = "";

  constructor(socket: Duplex, call: HelperCall, signal: AbortSignal) {
    this.#socket = socket;
    const what = `helper ${call.command}`;
    const deadline = startDeadline({ parent: signal, ms: call.silenceMs, what });
    const expire = () => socket.destroy(asError(deadline.signal.reason));
    if (deadline.signal.aborted) expire();
    else deadline.signal.addEventListener("abort", expire, { once: true });
    socket.once("close", () => deadline[Symbol.dispose]());
    // Every failure also ends a read or a write, which report it; without a listener Node would end the process.
    socket.on("error", () => undefined);
    this.output = this.#stdout(deadline.progress);
  }

  async *#stdout(progress: () => void): AsyncGenerator<Uint8Array> {
    for await (const { stream, payload } of demultiplex(this.#socket)) {
      progress();
      if (stream === "stdout") yield payload;
      else if (this.#diagnostics.length < DIAGNOSTIC_BYTES) this.#diagnostics += payload.toString();
      progress();
    }
  }

  send(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  }

  close(): void {
    // end() first: the acknowledgement may still be on its way, and destroy() would drop it.
    if (!this.#socket.destroyed) this.#socket.end(() => this.#socket.destroy());
  }

  diagnostics(): string {
    return this.#diagnostics;
  }
}

const asError = (reason: unknown): Error => (reason instanceof Error ? reason : new Error(String(reason)));
