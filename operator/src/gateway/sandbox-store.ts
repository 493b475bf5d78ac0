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
import { isNotFound } from "../kube/errors.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { BoundedCache } from "./bounded-cache.ts";
import type { Failure } from "./failure.ts";
import { noSuchObject, type ObjectRef, READ_DEADLINE_MS, StatusSwap } from "./status-swap.ts";

/** Names a Sandbox, as in the request's path. */
export type SandboxRef = ObjectRef;

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

const KIND = { kind: "Sandbox", plural: "sandboxes" } as const;

/** Writes what a gateway may write of a Sandbox. */
export type SandboxWriter = StatusSwap<Sandbox, SandboxWrite>;

export const sandboxWriter = (options: { kube: KubeClient; reader: SandboxReader; clock: Clock }): SandboxWriter =>
  new StatusSwap(
    {
      ...KIND,
      client: options.kube.resource<KubeObject>(SANDBOXES),
      get: (ref, signal) => options.reader.get(ref, signal),
      parse: (object) => sandboxSchema.parse(object),
    },
    options.clock,
  );

export const noSuchSandbox = (ref: SandboxRef, cause?: unknown): Failure => noSuchObject(KIND, ref, cause);
