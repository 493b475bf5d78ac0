import type { Duplex } from "node:stream";
import type { Agent, Dispatcher } from "undici";
import { EngineRefused, readMessage } from "./engine-errors.ts";

/** A connection that the engine has turned into a raw stream of both directions. */
export interface Hijacked {
  readonly socket: Duplex;
}

export interface UpgradeRequest {
  readonly agent: Agent;
  readonly origin: string;
  readonly path: string;
  readonly json: unknown;
}

/** Sends the request with `Upgrade: tcp` and its body. Throws `EngineRefused` when the engine answers with an error. */
export function hijack(request: UpgradeRequest, signal: AbortSignal): Promise<Hijacked> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const handler = new UpgradeHandler({ resolve, reject }, signal);
    request.agent.dispatch(
      {
        origin: request.origin,
        path: request.path,
        method: "POST",
        upgrade: "tcp",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(request.json),
      },
      handler,
    );
  });
}

interface Outcome {
  resolve(hijacked: Hijacked): void;
  reject(reason: unknown): void;
}

class UpgradeHandler implements Dispatcher.DispatchHandler {
  readonly #outcome: Outcome;
  readonly #signal: AbortSignal;
  readonly #refusal: Buffer[] = [];
  #status = 0;
  #onAbort: (() => void) | undefined;

  constructor(outcome: Outcome, signal: AbortSignal) {
    this.#outcome = outcome;
    this.#signal = signal;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    const abort = () => {
      const { reason } = this.#signal;
      controller.abort(reason instanceof Error ? reason : new Error(String(reason)));
    };
    if (this.#signal.aborted) abort();
    this.#onAbort = abort;
    this.#signal.addEventListener("abort", abort, { once: true });
  }

  onRequestUpgrade(_: Dispatcher.DispatchController, __: number, ___: unknown, socket: Duplex): void {
    this.#release();
    this.#outcome.resolve({ socket });
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#refusal.push(chunk);
  }

  onResponseEnd(): void {
    this.#release();
    const body = Buffer.concat(this.#refusal).toString();
    this.#outcome.reject(new EngineRefused(this.#status, readMessage(body) ?? body.slice(0, 300)));
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.#release();
    this.#outcome.reject(error);
  }

  #release(): void {
    if (this.#onAbort !== undefined) this.#signal.removeEventListener("abort", this.#onAbort);
  }
}
