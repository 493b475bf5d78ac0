/** A transfer that stands still is ended. */

/** Aborts when nobody has called `moved` for a while. A transfer has no total deadline, only this one. */
export function stallGuard(stallMs: number): Disposable & { readonly signal: AbortSignal; moved(): void } {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new DOMException("no byte moved", "TimeoutError")), stallMs);
  timer.unref();
  return {
    signal: controller.signal,
    moved: () => void timer.refresh(),
    [Symbol.dispose]: () => clearTimeout(timer),
  };
}

/** Passes the bytes on and tells the guard of each. */
export async function* watched(
  content: AsyncIterable<Uint8Array>,
  stall: Disposable & { moved(): void },
  onBytes?: (count: number) => void,
): AsyncGenerator<Uint8Array> {
  using _ = stall;
  for await (const chunk of content) {
    stall.moved();
    onBytes?.(chunk.length);
    yield chunk;
    stall.moved();
  }
}
