import type { Clock } from "../reconciler/clock.ts";
import { RegistryError } from "./errors.ts";

/**
 * A signal that aborts with its parent, or with `Unavailable` when nothing happened for a while. Dispose it when the
 * work is over: its timer and its listener on the parent stay until then.
 */
export interface ProgressDeadline extends Disposable {
  readonly signal: AbortSignal;
  /** Something happened: the wait begins anew. Never called, the deadline is one for the whole work. */
  touch(): void;
  /** The silence is ours: nothing is waited for until the next `touch`. */
  hold(): void;
}

export interface ProgressDeadlineOptions {
  readonly clock: Clock;
  /** The silence that is tolerated; it is noticed after at least this and less than twice this. */
  readonly milliseconds: number;
  readonly parent: AbortSignal;
  /** What is being waited for; part of the error's message. */
  readonly what: string;
}

/** Starts the wait. Throws the parent's reason when that is aborted already. */
export function startProgressDeadline(options: ProgressDeadlineOptions): ProgressDeadline {
  const { clock, milliseconds, parent, what } = options;
  parent.throwIfAborted();
  const controller = new AbortController();
  const ended = new AbortController();
  const onParent = () => controller.abort(parent.reason);
  parent.addEventListener("abort", onParent, { once: true });
  let state: "waiting" | "touched" | "held" = "waiting";

  const watch = async () => {
    do {
      if (state === "touched") state = "waiting";
      await clock.sleep(milliseconds, ended.signal);
    } while (state !== "waiting");
    controller.abort(new RegistryError("Unavailable", `${what}: nothing was heard for ${milliseconds} ms`));
  };
  // The sleep rejects only because the disposal below ended it.
  watch().catch(() => undefined);

  return {
    signal: controller.signal,
    touch: () => {
      state = "touched";
    },
    hold: () => {
      state = "held";
    },
    [Symbol.dispose]: () => {
      parent.removeEventListener("abort", onParent);
      ended.abort();
    },
  };
}
