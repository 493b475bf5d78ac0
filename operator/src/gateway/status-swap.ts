/**
 * Compare-and-swap on the status of one object. Writers of one object queue up inside this process, so that three hundred
 * touches do not conflict with one another; conflicts with others are decided anew on the state that won.
 */
import type { ResourceClient } from "../kube/contract.ts";
import { ConnectionError, isConflict, isNotFound } from "../kube/errors.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { Failure } from "./failure.ts";

/** Names an object, as in the request's path. */
export interface ObjectRef {
  readonly namespace: string;
  readonly name: string;
}

/** What a decision over one observed state asks for. */
export interface Decision<W, R> {
  /** Absent: nothing is written. */
  readonly write?: W | undefined;
  readonly result: R;
}

interface SwapOptions<T, W, R> {
  readonly ref: ObjectRef;
  /** Only the object of this UID is written. */
  readonly uid?: string;
  /** What this same request has just read; saves the first read. */
  readonly read?: T | undefined;
  readonly decide: (object: T) => Decision<W, R>;
  readonly signal: AbortSignal;
}

/** One kind of object, as this gateway knows it. */
export interface SwappedKind<T extends KubeObject> {
  /** `Sandbox`, for messages. */
  readonly kind: string;
  readonly plural: string;
  readonly client: ResourceClient<KubeObject>;
  /** A fresh read. Throws `Failure` 404 when there is none. */
  get(ref: ObjectRef, signal: AbortSignal): Promise<T>;
  parse(object: KubeObject): T;
}

/** Most tries of one compare-and-swap; with the pauses about six seconds of contention. */
const MAX_ATTEMPTS = 24;
const LONGEST_PAUSE_MS = 400;
export const READ_DEADLINE_MS = 10_000;

export class StatusSwap<T extends KubeObject, W extends object> {
  /** What it writes. */
  readonly kind: SwappedKind<T>;
  readonly #clock: Clock;
  readonly #lanes = new Map<string, Promise<void>>();

  constructor(kind: SwappedKind<T>, clock: Clock) {
    this.kind = kind;
    this.#clock = clock;
  }

  /**
   * Reads, lets `decide` judge, and writes what it wants under the resourceVersion it judged. `decide` may run several
   * times and throws to refuse. With `uid` an object that was replaced meanwhile is refused as a stranger.
   * Returns the decision's result and the object as it stands after the write.
   */
  async update<R>(options: SwapOptions<T, W, R>): Promise<{ result: R; object: T }> {
    const key = `${options.ref.namespace}/${options.ref.name}`;
    const ahead = this.#lanes.get(key);
    const before = ahead ?? Promise.resolve();
    const { promise: done, resolve: leave } = Promise.withResolvers<void>();
    const lane = before.then(() => done);
    this.#lanes.set(key, lane);
    try {
      await before;
      options.signal.throwIfAborted();
      // Behind other writers what was read before is stale for certain.
      return await this.#swap(ahead === undefined ? options : { ...options, read: undefined });
    } finally {
      leave();
      if (this.#lanes.get(key) === lane) this.#lanes.delete(key);
    }
  }

  async #swap<R>(options: SwapOptions<T, W, R>): Promise<{ result: R; object: T }> {
    const { ref, signal } = options;
    const { client, parse } = this.kind;
    for (let attempt = 1; ; attempt++) {
      const known = attempt === 1 ? options.read : undefined;
      const object = known ?? (await this.kind.get(ref, signal));
      if (options.uid !== undefined && object.metadata.uid !== options.uid) throw replaced(this.kind, ref);
      const { write, result } = options.decide(object);
      if (write === undefined || Object.keys(write).length === 0) return { result, object };
      try {
        const written = await client.patchStatus(
          ref,
          { metadata: { resourceVersion: object.metadata.resourceVersion }, status: write },
          { signal, deadlineMs: READ_DEADLINE_MS },
        );
        return { result, object: parse(written) };
      } catch (error) {
        if (isNotFound(error)) throw noSuchObject(this.kind, ref, error);
        // A write whose outcome is unknown is decided anew: a touch is a maximum and a request has an id.
        const again = isConflict(error) || (error instanceof ConnectionError && !signal.aborted);
        if (!again || attempt >= MAX_ATTEMPTS) throw again ? contended(this.kind, ref, error) : error;
      }
      const longest = Math.min(10 * 2 ** attempt, LONGEST_PAUSE_MS);
      await this.#clock.sleep(longest * (0.5 + Math.random() / 2), signal);
    }
  }
}

type Named = Pick<SwappedKind<KubeObject>, "kind" | "plural">;

export const noSuchObject = ({ kind, plural }: Named, ref: ObjectRef, cause?: unknown): Failure =>
  new Failure({
    status: 404,
    code: "NotFound",
    message: `${kind} ${ref.namespace}/${ref.name} does not exist`,
    remediation: `check namespace and name: kubectl get ${plural}.agentworlds.dev`,
    cause,
  });

export const replaced = ({ kind }: Named, ref: ObjectRef): Failure =>
  new Failure({
    status: 409,
    code: "Replaced",
    message: `${kind} ${ref.namespace}/${ref.name} was replaced by another one of the same name`,
    remediation: `read the new ${kind} before working in it`,
  });

const contended = ({ kind }: Named, ref: ObjectRef, cause: unknown): Failure =>
  new Failure({
    status: 503,
    code: "Contended",
    message: `the status of ${kind} ${ref.namespace}/${ref.name} kept changing`,
    remediation: "try again; verbs that take an id may be repeated with the same id",
    retryAfterSeconds: 1,
    cause,
  });
