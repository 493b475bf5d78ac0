/** Reads a stream of chunks of any size into buffers of a chosen size. */
export class ContentReader implements AsyncDisposable {
  readonly #iterator: AsyncIterator<Uint8Array>;
  readonly #signal: AbortSignal;
  #rest: Uint8Array = new Uint8Array(0);
  #ended = false;

  constructor(content: AsyncIterable<Uint8Array>, signal: AbortSignal) {
    this.#iterator = content[Symbol.asyncIterator]();
    this.#signal = signal;
  }

  /**
   * Fills the buffer as far as the content goes and returns how much that was; less than asked for means the end. Throws
   * what the content throws, and the signal's reason even if the content does not heed the signal.
   */
  async fill(buffer: Uint8Array): Promise<number> {
    let filled = 0;
    while (filled < buffer.length) {
      if (this.#rest.length === 0 && !(await this.#pull())) break;
      const part = this.#rest.subarray(0, buffer.length - filled);
      buffer.set(part, filled);
      filled += part.length;
      this.#rest = this.#rest.subarray(part.length);
    }
    return filled;
  }

  /** Tells content that was not read to its end that nobody is listening. Not waited for: it may be stuck. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended) return;
    // What the content says while it is being closed adds nothing: the reader has its reason already.
    this.#iterator.return?.().catch(() => undefined);
  }

  async #pull(): Promise<boolean> {
    if (this.#ended) return false;
    const next = await untilAborted(this.#iterator.next(), this.#signal);
    if (next.done === true) {
      this.#ended = true;
      return false;
    }
    this.#rest = next.value;
    return true;
  }
}

function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
