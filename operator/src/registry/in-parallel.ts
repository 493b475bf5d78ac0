/**
 * Runs `work` on every item, at most `limit` at a time, and returns the results in order. The first failure aborts the
 * others, and all have ended when it is thrown.
 */
export async function inParallel<T, R>(
  items: readonly T[],
  { limit, signal }: { readonly limit: number; readonly signal: AbortSignal },
  work: (item: T, signal: AbortSignal) => Promise<R>,
): Promise<R[]> {
  signal.throwIfAborted();
  const stop = new AbortController();
  const onAbort = () => stop.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  const results: R[] = [];
  const queue = items.entries();
  const worker = async () => {
    for (const [index, item] of queue) {
      stop.signal.throwIfAborted();
      results[index] = await work(item, stop.signal);
    }
  };
  const workers = Array.from({ length: Math.min(limit, items.length) }, () =>
    worker().catch((error: unknown) => {
      if (!stop.signal.aborted) stop.abort(error);
    }),
  );
  await Promise.all(workers);
  signal.removeEventListener("abort", onAbort);
  stop.signal.throwIfAborted();
  return results;
}
