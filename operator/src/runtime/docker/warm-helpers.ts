import type { Duplex } from "node:stream";

/** A helper that was started in advance and waits for its header. */
interface WarmHelper {
  readonly socket: Duplex;
  /** Takes the listeners off again. */
  release(): void;
}

export interface WarmHelpersOptions {
  /** Starts a helper in a container and returns its raw connection. */
  readonly open: (container: string, signal: AbortSignal) => Promise<Duplex>;
  /** One that nobody took for this long is ended. Default 60 s. */
  readonly idleMs?: number;
  /** Most that wait at one time; the one that has waited longest gives way. Default 64. */
  readonly most?: number;
}

/**
 * One waiting helper per container that was used lately. An engine needs about 45 ms to start a process in a container
 * (measured, two cores), most of a short command's round trip; a helper that is there already costs none of it. It runs
 * nothing before it is taken, is taken once, and ends with its connection.
 */
export class WarmHelpers {
  readonly #open: WarmHelpersOptions["open"];
  readonly #idleMs: number;
  readonly #most: number;
  readonly #waiting = new Map<string, WarmHelper>();
  readonly #opening = new Map<string, AbortController>();
  #closed = false;

  constructor(options: WarmHelpersOptions) {
    this.#open = options.open;
    this.#idleMs = options.idleMs ?? 60_000;
    this.#most = options.most ?? 64;
  }

  /** The waiting helper's connection, once; undefined when there is none that is known to be alive. */
  take(container: string): Duplex | undefined {
    const helper = this.#waiting.get(container);
    if (helper === undefined) return undefined;
    this.#waiting.delete(container);
    helper.release();
    return helper.socket.destroyed ? undefined : helper.socket;
  }

  /** Has a helper wait there from soon on. Returns at once; when it cannot be started, the next command starts its own. */
  warm(container: string): void {
    if (this.#closed || this.#waiting.has(container) || this.#opening.has(container)) return;
    const giveUp = new AbortController();
    this.#opening.set(container, giveUp);
    this.#open(container, giveUp.signal).then(
      (socket) => {
        if (giveUp.signal.aborted) socket.destroy();
        else this.#keep(container, socket);
        this.#forgetOpening(container, giveUp);
      },
      () => this.#forgetOpening(container, giveUp),
    );
  }

  /** Ends the helper that waits in a container: before it is frozen, stopped or removed. */
  drop(container: string): void {
    this.#opening.get(container)?.abort();
    const helper = this.#waiting.get(container);
    if (helper === undefined) return;
    this.#waiting.delete(container);
    helper.release();
    helper.socket.destroy();
  }

  close(): void {
    this.#closed = true;
    for (const container of [...this.#opening.keys(), ...this.#waiting.keys()]) this.drop(container);
  }

  #forgetOpening(container: string, giveUp: AbortController): void {
    if (this.#opening.get(container) === giveUp) this.#opening.delete(container);
  }

  #keep(container: string, socket: Duplex): void {
    if (this.#closed) {
      socket.destroy();
      return;
    }
    const end = () => this.drop(container);
    const idle = setTimeout(end, this.#idleMs);
    // A waiting helper says nothing: whatever becomes readable is its end, or an engine's complaint.
    const events = ["readable", "end", "error", "close"];
    for (const event of events) socket.on(event, end);
    this.#waiting.set(container, {
      socket,
      release: () => {
        clearTimeout(idle);
        for (const event of events) socket.off(event, end);
        // The taker hears of a failure by its reads and writes; without any listener an error would end the process.
        socket.on("error", () => undefined);
      },
    });
    const [longest] = this.#waiting.keys();
    if (this.#waiting.size > this.#most && longest !== undefined) this.drop(longest);
  }
}
