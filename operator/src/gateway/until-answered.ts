/** Waits for the leading controller's word on what was asked for, at most as long as a proxied request may take. */
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import type { Answer, Waiter } from "./call.ts";
import { followObject } from "./follow-object.ts";
import { noSuchObject, type ObjectRef, replaced, type SwappedKind } from "./status-swap.ts";

/** Undefined: there was no word in time, and the request goes on without whoever asked. */
export async function untilAnswered<T extends KubeObject>(
  call: Waiter,
  wait: {
    readonly kind: Omit<SwappedKind<T>, "get">;
    readonly ref: ObjectRef;
    /** The object as it was written. */
    readonly from: T;
    readonly clock: Clock;
    readonly longPollMs: number;
    readonly answerIn: (object: T) => Answer | undefined;
  },
): Promise<Answer | undefined> {
  const { kind, ref, from, answerIn } = wait;
  const first = answerIn(from);
  if (first !== undefined) return first;
  const states = followObject<KubeObject>({
    client: kind.client,
    ref,
    clock: wait.clock,
    signal: AbortSignal.any([call.signal, call.draining, AbortSignal.timeout(wait.longPollMs)]),
    from,
    onError: (error) => call.logger.warn({ err: error }, `watching a ${kind.kind} failed; trying again`),
  });
  for await (const state of states) {
    if (state === undefined) throw noSuchObject(kind, ref);
    if (state.metadata.uid !== from.metadata.uid) throw replaced(kind, ref);
    const answer = answerIn(kind.parse(state));
    if (answer !== undefined) return answer;
  }
  call.signal.throwIfAborted();
  return undefined;
}
