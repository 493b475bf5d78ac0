import { RuntimeError } from "../errors.ts";

/** A limit for one call: its signal aborts when the caller's does or when the time is over. */
export interface Deadline extends Disposable {
  readonly signal: AbortSignal;
  /** Starts the time anew: a stream that moves is alive. */
  progress(): void;
}

/** `what` names the call in the error, which is `HostUnreachable`. */
export function startDeadline(options: { parent: AbortSignal; ms: number; what: string }): Deadline {
  const controller = new AbortController();
  const expire = () =>
    controller.abort(new RuntimeError("HostUnreachable", `${options.what}: no answer within ${options.ms / 1000} s`));
  const timer = setTimeout(expire, options.ms);
  const onParent = () => controller.abort(options.parent.reason);
  if (options.parent.aborted) onParent();
  options.parent.addEventListener("abort", onParent, { once: true });
  return {
    signal: controller.signal,
    progress: () => {
      timer.refresh();
    },
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      options.parent.removeEventListener("abort", onParent);
    },
  };
}
