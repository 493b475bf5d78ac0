import type { ObjectRef, ResourceClient } from "../kube/contract.ts";
import type { Clock } from "../reconciler/clock.ts";
import { startDeadline } from "../reconciler/deadline.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";

/** One server-side watch; shorter than any proxy's patience, longer than a poll. */
const WATCH_SECONDS = 240;
/** A watch that outlives its timeout by this much is half-open: nothing would ever come, and no error either. */
const WATCH_GRACE_MS = 30_000;

/**
 * Yields the object now and whenever it changes; `undefined` while it does not exist. Failures of the API server are
 * reported to `onError` and tried again with a growing pause, for ever; ends only when the signal aborts.
 */
export async function* followObject<T extends KubeObject>(options: {
  client: Pick<ResourceClient<T>, "list" | "watch">;
  ref: ObjectRef;
  clock: Clock;
  signal: AbortSignal;
  /** The state already known: it is not yielded again, and the watch starts behind it. */
  from?: T;
  onError: (error: unknown) => void;
}): AsyncGenerator<T | undefined> {
  const { client, ref, clock, signal } = options;
  let resourceVersion = options.from?.metadata.resourceVersion;
  let pauseMs = 100;
  const only = {
    ...(ref.namespace === undefined ? {} : { namespace: ref.namespace }),
    fieldSelector: `metadata.name=${ref.name}`,
  };
  while (!signal.aborted) {
    try {
      if (resourceVersion === undefined) {
        // A list, not a get: an absent object has a resourceVersion to watch from as well.
        const page = await client.list({ ...only, limit: 1, signal });
        resourceVersion = page.resourceVersion;
        yield page.items[0];
      }
      const milliseconds = WATCH_SECONDS * 1_000 + WATCH_GRACE_MS;
      using watchdog = startDeadline({ clock, milliseconds, parent: signal });
      const watch = { ...only, resourceVersion, timeoutSeconds: WATCH_SECONDS, signal: watchdog.signal };
      for await (const event of client.watch(watch)) {
        pauseMs = 100;
        if (event.type === "BOOKMARK") resourceVersion = event.resourceVersion;
        else {
          resourceVersion = event.object.metadata.resourceVersion;
          yield event.type === "DELETED" ? undefined : event.object;
        }
      }
      // A hop that ends every watch at once must not turn this into a busy loop.
      await pause(clock, 100, signal);
    } catch (error) {
      if (signal.aborted) return;
      options.onError(error);
      resourceVersion = undefined;
      await pause(clock, pauseMs, signal);
      pauseMs = Math.min(pauseMs * 2, 10_000);
    }
  }
}

/** Sleeps, or returns early when the signal aborts. */
export async function pause(clock: Clock, milliseconds: number, signal: AbortSignal): Promise<void> {
  try {
    await clock.sleep(milliseconds, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
