import { untilAborted } from "./deadline.ts";

/** Runs what must not run at the same time, one after the other, in the order in which it came. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs `effect` when every earlier one has ended. Whoever gives up waiting lets nobody past those it waited for. */
  take<R>(effect: () => Promise<R>, signal: AbortSignal): Promise<R> {
    const before = this.#last;
    const mine = untilAborted(before, signal).then(effect);
    this.#last = Promise.allSettled([before, mine]);
    return mine;
  }
}
