import { type CallOptions, type Deadline, LONGEST_TIMER_MS } from "./deadline.ts";
import { NotReadyError } from "./errors.ts";
import type { ObjectRef, Objects, StoredObject } from "./objects.ts";
import type { Readiness } from "./readiness.ts";

/** What a wait reports while it lasts, at most once per change. */
export interface Progress {
  /** Reason of the condition that holds it up: `WorldHeld`, `RuntimeFull`, `Provisioning`, … */
  readonly reason: string;
  /** The same for a person. */
  readonly message: string;
}

/** How to wait until something is Ready. */
export interface WaitOptions extends CallOptions {
  /** Told what is waited for, whenever that changes. What it throws ends the wait. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /**
   * Milliseconds for which it may stay in want of what only somebody else brings about: a World or Runtime that does not
   * exist, is not for this namespace … Then it is given up. Default 10 s; `Infinity` waits as for anything else.
   */
  readonly graceMs?: number | undefined;
}

/** Five minutes: a large image may have to be pulled. */
export const READY_TIMEOUT_MS = 300_000;
/** Manifests of a World and of a Sandbox that are applied together may be seen in either order. */
const GRACE_MS = 10_000;

/** One wait for one object. */
export interface Wait<T extends StoredObject> {
  readonly objects: Pick<Objects<T>, "follow">;
  readonly kind: "Sandbox" | "World";
  readonly ref: ObjectRef;
  /** Only the object of this UID; absent: whichever has the name first. */
  readonly uid?: string | undefined;
  readonly judge: (object: T) => Readiness;
  readonly deadline: Deadline;
  readonly onProgress: WaitOptions["onProgress"];
  readonly graceMs: WaitOptions["graceMs"];
}

/**
 * Watches until the object is Ready or asleep (`Readiness` says which). Rejects with `NotReadyError` as soon as waiting is
 * vain, after the grace for what only somebody else heals, or at the deadline, and with the caller's reason when that aborts.
 */
export async function untilSettled<T extends StoredObject>(
  wait: Wait<T>,
): Promise<{ object: T; readiness: Extract<Readiness, { kind: "Ready" | "Hibernated" }> }> {
  const { ref, deadline } = wait;
  using grace = new Grace(wait.graceMs ?? GRACE_MS);
  let last: Progress | undefined;
  try {
    for await (const object of wait.objects.follow(ref, AbortSignal.any([deadline.signal, grace.signal]))) {
      const isGone = object === undefined || (wait.uid !== undefined && object.metadata.uid !== wait.uid);
      if (isGone) throw notReady(wait, { reason: "NotFound", message: "it does not exist", remediation: CHECK_NAME });
      const readiness = wait.judge(object);
      if (readiness.kind === "Ready" || readiness.kind === "Hibernated") return { object, readiness };
      if (readiness.kind === "Failed") throw notReady(wait, readiness);
      grace.runs(readiness.heals === "BySomebody");
      if (readiness.reason === last?.reason && readiness.message === last.message) continue;
      last = { reason: readiness.reason, message: readiness.message };
      wait.onProgress?.(last);
    }
  } catch (error) {
    // Whatever broke off is a consequence of these.
    if (deadline.passed) throw tooLate(wait, last, error);
    const isGraceOver = grace.signal.aborted && !deadline.signal.aborted;
    throw isGraceOver && last !== undefined ? notReady(wait, { ...last, remediation: SEE_TO_IT }) : error;
  }
  throw new TypeError("a watch without an end ended");
}

const CHECK_NAME = "check namespace and name";
const SEE_TO_IT = "see to what the message names and ask again, or allow more with graceMs while it is being made";

/** Aborts when what only somebody else heals has stood for so long without a break. */
class Grace implements Disposable {
  readonly #milliseconds: number;
  readonly #over = new AbortController();
  #timer: NodeJS.Timeout | undefined;

  constructor(milliseconds: number) {
    this.#milliseconds = milliseconds;
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Begins, goes on, or is forgotten. */
  runs(wanted: boolean): void {
    if (!wanted) this[Symbol.dispose]();
    // No timer reaches further, and no wait.
    else if (this.#milliseconds <= LONGEST_TIMER_MS)
      this.#timer ??= setTimeout(() => this.#over.abort(), this.#milliseconds);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

/** The error of an object that will not become Ready by waiting. */
export function notReady<T extends StoredObject>(
  wait: Pick<Wait<T>, "kind" | "ref">,
  why: { reason: string; message: string; remediation: string },
): NotReadyError {
  const { kind, ref } = wait;
  return new NotReadyError({
    code: why.reason,
    reason: why.reason,
    message: `${kind} ${ref.namespace}/${ref.name} is not Ready: ${why.message}`,
    remediation: why.remediation,
    object: { kind, ...ref },
    cause: why.message,
  });
}

function tooLate<T extends StoredObject>(wait: Wait<T>, last: Progress | undefined, cause: unknown): NotReadyError {
  const { kind, ref, deadline } = wait;
  const why = last === undefined ? "" : `: ${last.reason}, ${last.message}`;
  return new NotReadyError({
    code: "DeadlineExceeded",
    reason: last?.reason,
    message: `${kind} ${ref.namespace}/${ref.name} was not Ready within ${deadline.milliseconds} ms${why}`,
    remediation: "allow more with timeoutMs, or see to what it waits for",
    object: { kind, ...ref },
    cause,
  });
}
