import {
  SANDBOXES,
  type Sandbox,
  type SandboxRequest,
  sandboxSchema,
  WORLDS,
  type World,
  worldSchema,
} from "@agentworlds/crds";
import type { KubeClient, ResourceClient } from "../kube/contract.ts";
import { ConnectionError, isConflict, isNotFound } from "../kube/errors.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { BoundedCache } from "./bounded-cache.ts";
import { Failure } from "./failure.ts";

/** Names a Sandbox, as in the request's path. */
export interface SandboxRef {
  readonly namespace: string;
  readonly name: string;
}

/**
 * Reads for the gateway. `get` always asks the API server: a stale cache would let a request meant for a deleted Sandbox
 * reach a stranger of the same name.
 */
export interface SandboxReader {
  /** Throws `Failure` 404 when there is none. */
  get(ref: SandboxRef, signal: AbortSignal): Promise<Sandbox>;
  /** The session's ttl in milliseconds: its own, else its World's, else 15 minutes. */
  ttlMs(sandbox: Sandbox, signal: AbortSignal): Promise<number>;
}

/** DESIGN §3: the ttl of a session that states none and has no World to ask. */
const DEFAULT_TTL_MS = 900_000;
const READ_DEADLINE_MS = 10_000;

/** Reads through the kube client. */
export function sandboxReader(kube: KubeClient, clock: Clock): SandboxReader {
  const sandboxes = kube.resource<KubeObject>(SANDBOXES);
  const worlds = kube.resource<KubeObject>(WORLDS);
  // Only a default lies in here; a World edited a moment ago may lengthen the next touch instead of this one.
  const worldTtls = new BoundedCache<number>(clock, { ttlMs: 10_000, maxEntries: 1_024 });
  return {
    async get(ref, signal) {
      try {
        return sandboxSchema.parse(await sandboxes.get(ref, { signal, deadlineMs: READ_DEADLINE_MS }));
      } catch (error) {
        throw isNotFound(error) ? noSuchSandbox(ref, error) : error;
      }
    },
    async ttlMs(sandbox, signal) {
      if (sandbox.spec.ttlSeconds !== undefined) return sandbox.spec.ttlSeconds * 1_000;
      const { namespace } = sandbox.metadata;
      const name = sandbox.spec.world?.name;
      if (namespace === undefined || name === undefined) return DEFAULT_TTL_MS;
      const key = `${namespace}/${name}`;
      const known = worldTtls.get(key);
      if (known !== undefined) return known;
      const ttl = await worldTtl(worlds, { namespace, name }, signal);
      worldTtls.set(key, ttl);
      return ttl;
    },
  };
}

async function worldTtl(worlds: ResourceClient<KubeObject>, ref: SandboxRef, signal: AbortSignal): Promise<number> {
  try {
    const world: World = worldSchema.parse(await worlds.get(ref, { signal, deadlineMs: READ_DEADLINE_MS }));
    return world.spec.session.ttlSeconds * 1_000;
  } catch (error) {
    // A deleted World's sessions run on until the controller ends them.
    if (isNotFound(error)) return DEFAULT_TTL_MS;
    throw error;
  }
}

/** The fields of `status` a gateway may write (DESIGN §4 rule 6). */
export interface SandboxWrite {
  readonly expiresAt?: string;
  readonly lastActivityAt?: string;
  readonly requests?: readonly SandboxRequest[];
}

/** What a decision over one observed state asks for. */
export interface Decision<R> {
  /** Absent: nothing is written. */
  readonly write?: SandboxWrite | undefined;
  readonly result: R;
}

interface SwapOptions<R> {
  readonly ref: SandboxRef;
  /** Only the Sandbox of this UID is written. */
  readonly uid?: string;
  /** What this same request has just read; saves the first read. */
  readonly read?: Sandbox | undefined;
  readonly decide: (sandbox: Sandbox) => Decision<R>;
  readonly signal: AbortSignal;
}

/** Most tries of one compare-and-swap; with the pauses about six seconds of contention. */
const MAX_ATTEMPTS = 24;
const LONGEST_PAUSE_MS = 400;

/**
 * Compare-and-swap on a Sandbox's status. Writers of one object queue up inside this process, so that three hundred
 * touches do not conflict with one another; conflicts with others are decided anew on the state that won.
 */
export class SandboxWriter {
  readonly #sandboxes: ResourceClient<KubeObject>;
  readonly #reader: SandboxReader;
  readonly #clock: Clock;
  readonly #lanes = new Map<string, Promise<void>>();

  constructor(options: { kube: KubeClient; reader: SandboxReader; clock: Clock }) {
    this.#sandboxes = options.kube.resource<KubeObject>(SANDBOXES);
    this.#reader = options.reader;
    this.#clock = options.clock;
  }

  /**
   * Reads, lets `decide` judge, and writes what it wants under the resourceVersion it judged. `decide` may run several
   * times and throws to refuse. With `uid` a Sandbox that was replaced meanwhile is refused as a stranger.
   * Returns the decision's result and the Sandbox as it stands after the write.
   */
  async update<R>(options: SwapOptions<R>): Promise<{ result: R; sandbox: Sandbox }> {
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

  async #swap<R>(options: SwapOptions<R>): Promise<{ result: R; sandbox: Sandbox }> {
    const { ref, signal } = options;
    for (let attempt = 1; ; attempt++) {
      const known = attempt === 1 ? options.read : undefined;
      const sandbox = known ?? (await this.#reader.get(ref, signal));
      if (options.uid !== undefined && sandbox.metadata.uid !== options.uid) throw replaced(ref);
      const { write, result } = options.decide(sandbox);
      if (write === undefined || Object.keys(write).length === 0) return { result, sandbox };
      try {
        const written = await this.#sandboxes.patchStatus(
          ref,
          { metadata: { resourceVersion: sandbox.metadata.resourceVersion }, status: write },
          { signal, deadlineMs: READ_DEADLINE_MS },
        );
        return { result, sandbox: sandboxSchema.parse(written) };
      } catch (error) {
        if (isNotFound(error)) throw noSuchSandbox(ref, error);
        // A write whose outcome is unknown is decided anew: a touch is a maximum and a request has an id.
        const again = isConflict(error) || (error instanceof ConnectionError && !signal.aborted);
        if (!again || attempt >= MAX_ATTEMPTS) throw again ? contended(ref, error) : error;
      }
      const longest = Math.min(10 * 2 ** attempt, LONGEST_PAUSE_MS);
      await this.#clock.sleep(longest * (0.5 + Math.random() / 2), signal);
    }
  }
}

export const noSuchSandbox = (ref: SandboxRef, cause?: unknown): Failure =>
  new Failure({
    status: 404,
    code: "NotFound",
    message: `Sandbox ${ref.namespace}/${ref.name} does not exist`,
    remediation: "check namespace and name: kubectl get sandboxes.agentworlds.dev",
    cause,
  });

export const replaced = (ref: SandboxRef): Failure =>
  new Failure({
    status: 409,
    code: "Replaced",
    message: `Sandbox ${ref.namespace}/${ref.name} was replaced by another one of the same name`,
    remediation: "read the new Sandbox before working in it",
  });

const contended = (ref: SandboxRef, cause: unknown): Failure =>
  new Failure({
    status: 503,
    code: "Contended",
    message: `the status of Sandbox ${ref.namespace}/${ref.name} kept changing`,
    remediation: "try again; verbs that take an id may be repeated with the same id",
    retryAfterSeconds: 1,
    cause,
  });
