/** Something that is made once. Callers share the work; a failure is not remembered. */
export class Remembered<T> {
  readonly #make: (signal: AbortSignal) => Promise<T>;
  readonly #ms: number;
  #value: Promise<T> | undefined;

  /** `ms` limits the work. */
  constructor(make: (signal: AbortSignal) => Promise<T>, ms: number) {
    this.#make = make;
    this.#ms = ms;
  }

  /** The work has a signal of its own: the abort of one caller ends that caller's wait, not what others wait for. */
  async get(signal: AbortSignal): Promise<T> {
    signal.throwIfAborted();
    return await orAbort(this.#value ?? this.#begin(), signal);
  }

  /** The next `get` makes it anew. */
  forget(): void {
    this.#value = undefined;
  }

  #begin(): Promise<T> {
    const value = this.#make(AbortSignal.timeout(this.#ms));
    this.#value = value;
    value.catch(() => {
      if (this.#value === value) this.#value = undefined;
    });
    return value;
  }
}

async function orAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
