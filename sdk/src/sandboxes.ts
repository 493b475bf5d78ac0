import { randomUUID } from "node:crypto";
import type { NewSandbox, Sandbox } from "@agentworlds/crds";
import type { Connected } from "./connected.ts";
import { type CallOptions, Deadline } from "./deadline.ts";
import { ConfigurationError, ConflictError, RequestError } from "./errors.ts";
import { type OptionNames, refuseUnknown } from "./known-options.ts";
import { nameForKey } from "./naming.ts";
import type { ObjectRef } from "./objects.ts";
import { judgeSandbox } from "./readiness.ts";
import { Session } from "./session.ts";
import { notReady, READY_TIMEOUT_MS, untilSettled, type WaitOptions } from "./wait-ready.ts";

/** What the session works in: a World, at its newest or the given version, or a throwaway image of which nothing is saved. */
export type SandboxSource =
  | { readonly world: string | { readonly name: string; readonly version?: number }; readonly image?: undefined }
  | { readonly image: string; readonly world?: undefined };

/** A Sandbox to be created. */
export type CreateSandboxOptions = SandboxSource &
  WaitOptions & {
    /** Default: made from World and key. */
    readonly name?: string | undefined;
    /** Default: the client's. */
    readonly namespace?: string | undefined;
    /**
     * Creating again with the same key returns to the same session, in any process, and wakes it when it sleeps. Default: a
     * random one, so that each call makes a session of its own.
     */
    readonly key?: string | undefined;
    /** Seconds until it hibernates unless it is used. Default: the World's. */
    readonly ttlSeconds?: number | undefined;
    /** Seconds until it hibernates however much it is used. Default: the World's. */
    readonly maxLifetimeSeconds?: number | undefined;
    /** Who works in it; every version carries it. A person states none. */
    readonly agent?: string | { readonly id: string; readonly conversation?: string } | undefined;
    /** Name of the Runtime. Default: the World's, else the default one. */
    readonly runtime?: string | undefined;
    /** Environment of its commands: values, or keys of Secrets that you may read. Never part of a version. */
    readonly env?:
      | Readonly<Record<string, string | { readonly secretKeyRef: { readonly name: string; readonly key: string } }>>
      | undefined;
    /** Limits, for example `{cpu: "500m", memory: "2Gi"}`. */
    readonly resources?: { readonly cpu?: string; readonly memory?: string } | undefined;
    /** What closing does with work that is not yet a version. Default `Snapshot`. */
    readonly closePolicy?: "Snapshot" | "Discard" | undefined;
    /** What a boot does while work of the World is kept as a rescue. Default `Wait`. */
    readonly rescuePolicy?: "Wait" | "Ignore" | undefined;
    /** What becomes of a Sandbox that does not become Ready. Default `Delete`; with a key `Keep`: another call goes on waiting. */
    readonly ifNotReady?: "Delete" | "Keep" | undefined;
  };

const CREATE: OptionNames<CreateSandboxOptions> = {
  world: true,
  image: true,
  name: true,
  namespace: true,
  key: true,
  ttlSeconds: true,
  maxLifetimeSeconds: true,
  agent: true,
  runtime: true,
  env: true,
  resources: true,
  closePolicy: true,
  rescuePolicy: true,
  ifNotReady: true,
  onProgress: true,
  graceMs: true,
  signal: true,
  timeoutMs: true,
};

/** Where an object is. */
export interface NamespaceOption {
  /** Default: the client's. */
  readonly namespace?: string | undefined;
}

/** A closed session's object stays this long, so that a lost answer can be read again. */
const KEPT_AFTER_CLOSE_SECONDS = 600;
const READ_TIMEOUT_MS = 30_000;
const CLEAN_UP_MS = 15_000;

/** Sandboxes of the cluster. */
export class Sandboxes {
  readonly #connect: () => Promise<Connected>;

  constructor(connect: () => Promise<Connected>) {
    this.#connect = connect;
  }

  /**
   * Creates a Sandbox and returns its session when it is Ready. Rejects with `NotReadyError` as soon as waiting is vain,
   * after `graceMs` where only somebody else can help (`WorldNotFound`, `RuntimeNotFound` …), or after `timeoutMs` (default
   * 5 minutes). What does not become Ready is deleted again, unless `ifNotReady` or a key says otherwise.
   */
  async create(options: CreateSandboxOptions): Promise<Session> {
    refuseUnknown("sandboxes.create", options, CREATE);
    const deadline = new Deadline(options.timeoutMs ?? READY_TIMEOUT_MS, options.signal);
    const spec = specOf(options);
    const connected = await this.#connect();
    const key = options.key ?? randomUUID();
    const ref = {
      namespace: options.namespace ?? connected.namespace,
      name: options.name ?? nameForKey(sourceOf(options), key),
    };
    const creating = { timeoutMs: Math.min(READ_TIMEOUT_MS, deadline.milliseconds), signal: options.signal };
    let wasRefused = false;
    try {
      const creation = connected.sandboxes.createOnce({ ref, key, spec }, creating);
      const { object, adopted } = await creation.catch((error: unknown) => {
        wasRefused = error instanceof RequestError && error.status < 500;
        throw error;
      });
      if (adopted) refuseOtherWish(object, spec);
      return await this.#open(connected, object, { deadline, ...options });
    } catch (error) {
      const ifNotReady = options.ifNotReady ?? (options.key === undefined ? "Delete" : "Keep");
      if (ifNotReady === "Delete" && !wasRefused) await cleanUp(connected, { ref, key }, options.onProgress);
      throw error;
    }
  }

  /** Attaches to a Sandbox, whatever its state; `NotFoundError` when there is none. */
  async get(name: string, options: CallOptions & NamespaceOption = {}): Promise<Session> {
    const connected = await this.#connect();
    const ref = { namespace: options.namespace ?? connected.namespace, name };
    const calling = { timeoutMs: options.timeoutMs ?? READ_TIMEOUT_MS, signal: options.signal };
    return this.#session(connected, await connected.sandboxes.get(ref, calling));
  }

  /** The Sandboxes of a namespace as the API server holds them. Default deadline of each page 30 s. */
  async list(options: CallOptions & NamespaceOption = {}): Promise<Sandbox[]> {
    const connected = await this.#connect();
    const calling = { timeoutMs: options.timeoutMs ?? READ_TIMEOUT_MS, signal: options.signal };
    return connected.sandboxes.list(options.namespace ?? connected.namespace, calling);
  }

  /** Attaches when the Sandbox is Ready, and wakes it when it sleeps. Rejects as `create`. */
  async waitReady(name: string, options: WaitOptions & NamespaceOption = {}): Promise<Session> {
    const deadline = new Deadline(options.timeoutMs ?? READY_TIMEOUT_MS, options.signal);
    const connected = await this.#connect();
    const ref = { namespace: options.namespace ?? connected.namespace, name };
    const calling = { timeoutMs: Math.min(READ_TIMEOUT_MS, deadline.milliseconds), signal: options.signal };
    const sandbox = await connected.sandboxes.get(ref, calling);
    return this.#open(connected, sandbox, { deadline, ...options });
  }

  /** The session of a Sandbox once it is Ready; woken when it is found asleep. */
  async #open(
    connected: Connected,
    sandbox: Sandbox,
    options: WaitOptions & { readonly deadline: Deadline },
  ): Promise<Session> {
    const { deadline, onProgress, graceMs, signal } = options;
    const judge = (state: Sandbox) => judgeSandbox(state);
    const wait = { ...waitFor(connected, sandbox), judge };
    const { object, readiness } = await untilSettled({ ...wait, deadline, onProgress, graceMs });
    const session = this.#session(connected, object);
    if (readiness.kind === "Hibernated") {
      onProgress?.({ reason: "Hibernated", message: `${readiness.message}; waking it` });
      await session.touch({ signal, onProgress, graceMs, timeoutMs: deadline.remainingMs });
    }
    return session;
  }

  #session(connected: Connected, sandbox: Sandbox): Session {
    return new Session({
      sandbox,
      ref: refOf(sandbox),
      transport: connected.sessions,
      untilReady: async (options, wake) => {
        const wait = waitFor(connected, sandbox);
        const { object, readiness } = await untilSettled({
          ...wait,
          judge: (state: Sandbox) => judgeSandbox(state, wake),
          deadline: new Deadline(options.timeoutMs ?? READY_TIMEOUT_MS, options.signal),
          onProgress: options.onProgress,
          graceMs: options.graceMs,
        });
        if (readiness.kind === "Ready") return object;
        const why = { reason: "Hibernated", message: readiness.message, remediation: "touch it again" };
        throw notReady(wait, why);
      },
    });
  }
}

const refOf = (sandbox: Sandbox): ObjectRef => ({
  namespace: sandbox.metadata.namespace ?? "",
  name: sandbox.metadata.name,
});

const waitFor = (connected: Connected, sandbox: Sandbox) =>
  ({ objects: connected.sandboxes, kind: "Sandbox", ref: refOf(sandbox), uid: sandbox.metadata.uid }) as const;

function sourceOf(options: SandboxSource): { kind: "World" | "Image"; name: string } {
  if (options.image !== undefined) return { kind: "Image", name: options.image };
  if (options.world !== undefined) {
    return { kind: "World", name: typeof options.world === "string" ? options.world : options.world.name };
  }
  throw new ConfigurationError({
    code: "NoSource",
    message: "neither world nor image is given",
    remediation: "name the World to work in, or the image of a throwaway session",
  });
}

function specOf(options: CreateSandboxOptions): NewSandbox["spec"] {
  const { world, image, ttlSeconds, maxLifetimeSeconds, agent, runtime, env, resources, closePolicy, rescuePolicy } =
    options;
  sourceOf(options);
  return {
    ...(world === undefined ? {} : { world: typeof world === "string" ? { name: world } : world }),
    ...(image === undefined ? {} : { image }),
    ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
    ...(maxLifetimeSeconds === undefined ? {} : { maxLifetimeSeconds }),
    ...(agent === undefined ? {} : { agent: typeof agent === "string" ? { id: agent } : agent }),
    ...(runtime === undefined ? {} : { runtime: { name: runtime } }),
    ...(env === undefined ? {} : { env: Object.entries(env).map(([name, value]) => variable(name, value)) }),
    ...(resources === undefined ? {} : { resources }),
    ...(closePolicy === undefined ? {} : { closePolicy }),
    ...(rescuePolicy === undefined ? {} : { rescuePolicy }),
    ttlSecondsAfterClosed: KEPT_AFTER_CLOSE_SECONDS,
  };
}

const variable = (name: string, value: string | { secretKeyRef: { name: string; key: string } }) =>
  typeof value === "string" ? { name, value } : { name, ...value };

/** The fields that never change must be those of the first call, or the caller would get another session than asked for. */
function refuseOtherWish(found: Sandbox, wished: NewSandbox["spec"]): void {
  for (const field of ["world", "image", "runtime", "agent"] as const) {
    if (isSame(found.spec[field], wished[field])) continue;
    throw new ConflictError({
      status: 409,
      code: "KeyReused",
      message: `the key made Sandbox ${found.metadata.name} with another ${field}`,
      remediation: "use a key of its own for each session",
    });
  }
}

/** Both are JSON of at most two levels; the API server may have sorted the members. */
function isSame(left: unknown, right: unknown): boolean {
  const sorted = (value: unknown): string =>
    typeof value === "object" && value !== null
      ? JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : String(value);
  return sorted(left) === sorted(right);
}

/** Nobody has a handle on it, and nothing was run in it. What it fails with is told beside the error that matters. */
async function cleanUp(
  connected: Connected,
  made: { ref: ObjectRef; key: string },
  onProgress: WaitOptions["onProgress"],
): Promise<void> {
  try {
    await connected.sandboxes.deleteMade(made, { timeoutMs: CLEAN_UP_MS });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    onProgress?.({ reason: "LeftBehind", message: `Sandbox ${made.ref.name} could not be deleted: ${why}` });
  }
}
