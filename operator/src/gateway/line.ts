/** Lets a number of things run at a time, the others in the order in which they came. */
export class Line {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  /** Waits for a turn, which is kept until disposed. Rejects with the signal's reason. */
  async enter(signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(signal);
    let entered = true;
    return {
      [Symbol.dispose]: () => {
        if (!entered) return;
        entered = false;
        this.#handOn();
      },
    };
  }

  #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const onAbort = () => {
      this.#waiting.delete(onTurn);
      reject(signal.reason);
    };
    const onTurn = () => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    };
    this.#waiting.add(onTurn);
    signal.addEventListener("abort", onAbort, { once: true });
    return promise;
  }

  /** The turn goes to whoever waits longest: it is never free in between. */
  #handOn(): void {
    const next = this.#waiting.values().next();
    if (next.done) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next.value);
    next.value();
  }
}
