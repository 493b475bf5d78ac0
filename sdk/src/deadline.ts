/** What every call takes. */
export interface CallOptions {
  /** Gives the call up: it then rejects with the signal's reason. What was begun in the session is stopped. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the call is given up; the default is stated at each call. */
  readonly timeoutMs?: number | undefined;
}

/** `setTimeout` past this fires at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** One call's end: the caller's signal or a number of milliseconds, whichever comes first. */
export class Deadline {
  readonly milliseconds: number;
  readonly signal: AbortSignal;
  readonly #timer: AbortSignal;
  readonly #caller: AbortSignal | undefined;
  readonly #endsAt: number;

  constructor(milliseconds: number, caller?: AbortSignal | undefined) {
    this.milliseconds = Math.min(Math.ceil(milliseconds), LONGEST_TIMER_MS);
    this.#timer = AbortSignal.timeout(this.milliseconds);
    this.#caller = caller;
    this.#endsAt = performance.now() + this.milliseconds;
    this.signal = caller === undefined ? this.#timer : AbortSignal.any([caller, this.#timer]);
  }

  /** True when the time, and not the caller, ended the call. */
  get passed(): boolean {
    return this.#timer.aborted && this.#caller?.aborted !== true;
  }

  /** Whole milliseconds that are left. */
  get remainingMs(): number {
    return Math.max(0, Math.ceil(this.#endsAt - performance.now()));
  }
}

/** Rejects with the signal's reason when that comes first; the promise itself runs on. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: raced, resolve, reject } = Promise.withResolvers<T>();
  const onAbort = (): void => reject(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  return raced;
}
