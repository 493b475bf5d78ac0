import { Failure } from "./failure.ts";

/** How many requests one identity, or one address, may have under way in one gateway. */
export class InFlightLimit {
  readonly #running = new Map<string, number>();
  readonly #max: number;
  readonly #what: string;

  /** `what`: of what and whose, for the refusal. */
  constructor(max: number, what: string) {
    this.#max = max;
    this.#what = what;
  }

  /** Takes a place until disposed. Throws a 429 when the identity has `max` of them. */
  enter(identity: string): Disposable {
    const running = this.#running.get(identity) ?? 0;
    if (running >= this.#max) {
      throw new Failure({
        status: 429,
        code: "TooManyRequests",
        message: `${this.#max} ${this.#what} are already under way in this gateway`,
        remediation: "wait for one of them to end, then try again",
        retryAfterSeconds: 1,
      });
    }
    this.#running.set(identity, running + 1);
    let entered = true;
    return {
      [Symbol.dispose]: () => {
        if (!entered) return;
        entered = false;
        const left = (this.#running.get(identity) ?? 1) - 1;
        if (left > 0) this.#running.set(identity, left);
        else this.#running.delete(identity);
      },
    };
  }
}
