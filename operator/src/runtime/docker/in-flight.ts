/** Counts what is going on, so that an end can wait for it. */
export class InFlight {
  #count = 0;
  readonly #waiting = new Set<() => void>();

  /** Counts until the result is disposed of. */
  begin(): Disposable {
    this.#count++;
    return { [Symbol.dispose]: () => this.#end() };
  }

  /** Resolves when nothing is going on, or when the signal aborts. */
  idle(signal: AbortSignal): Promise<void> {
    if (this.#count === 0 || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        this.#waiting.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#waiting.add(done);
      signal.addEventListener("abort", done, { once: true });
    });
  }

  #end(): void {
    this.#count--;
    if (this.#count === 0) for (const done of this.#waiting) done();
  }
}
