import { randomUUID } from "node:crypto";
import type { NewWorld, World } from "@agentworlds/crds";
import type { Connected } from "./connected.ts";
import { type CallOptions, Deadline } from "./deadline.ts";
import { judgeWorld } from "./readiness.ts";
import { Rescues } from "./rescues.ts";
import type { NamespaceOption } from "./sandboxes.ts";
import { READY_TIMEOUT_MS, untilSettled, type WaitOptions } from "./wait-ready.ts";

/** A World to be created: its spec as in a manifest, and its name. */
export type CreateWorldOptions = NewWorld["spec"] & CallOptions & NamespaceOption & { readonly name: string };

const TIMEOUT_MS = 30_000;

/** Worlds of the cluster. */
export class Worlds {
  /** Work that could not be published. */
  readonly rescues: Rescues;
  readonly #connect: () => Promise<Connected>;

  constructor(connect: () => Promise<Connected>) {
    this.#connect = connect;
    this.rescues = new Rescues(connect);
  }

  /** Creates a World and returns it as it was stored, before it is Ready; `ConflictError` `NameTaken` when there is one. */
  async create(options: CreateWorldOptions): Promise<World> {
    const { name, namespace, signal, timeoutMs, ...spec } = options;
    const connected = await this.#connect();
    const ref = { namespace: namespace ?? connected.namespace, name };
    const calling = { timeoutMs: timeoutMs ?? TIMEOUT_MS, signal };
    return (await connected.worlds.createOnce({ ref, key: randomUUID(), spec }, calling)).object;
  }

  /** Reads a World; `NotFoundError` when there is none. */
  async get(name: string, options: CallOptions & NamespaceOption = {}): Promise<World> {
    const connected = await this.#connect();
    const ref = { namespace: options.namespace ?? connected.namespace, name };
    return connected.worlds.get(ref, { timeoutMs: options.timeoutMs ?? TIMEOUT_MS, signal: options.signal });
  }

  /** The Worlds of a namespace. Default deadline of each page 30 s. */
  async list(options: CallOptions & NamespaceOption = {}): Promise<World[]> {
    const connected = await this.#connect();
    const calling = { timeoutMs: options.timeoutMs ?? TIMEOUT_MS, signal: options.signal };
    return connected.worlds.list(options.namespace ?? connected.namespace, calling);
  }

  /**
   * Returns the World when Sandboxes can boot from it. Rejects with `NotReadyError` as soon as waiting is vain, after
   * `graceMs` where only somebody else can help, or after `timeoutMs` (default 5 minutes).
   */
  async waitReady(name: string, options: WaitOptions & NamespaceOption = {}): Promise<World> {
    const deadline = new Deadline(options.timeoutMs ?? READY_TIMEOUT_MS, options.signal);
    const connected = await this.#connect();
    const ref = { namespace: options.namespace ?? connected.namespace, name };
    const { onProgress, graceMs } = options;
    const wait = { objects: connected.worlds, kind: "World", ref, judge: judgeWorld } as const;
    return (await untilSettled({ ...wait, deadline, onProgress, graceMs })).object;
  }
}
