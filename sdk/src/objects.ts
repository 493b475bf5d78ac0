import type { ObjectMeta } from "@agentworlds/crds";
import {
  AgentWorldsError,
  ConflictError,
  ConnectionError,
  DeadlineError,
  ProtocolError,
  RequestError,
} from "./errors.ts";
import { isRecord, numberIn, recordIn, textIn } from "./json.ts";
import { fingerprintOfKey, segment } from "./naming.ts";
import type { Transport } from "./transport.ts";

/** An object of ours, as the API server returns it. */
export interface StoredObject {
  readonly kind: string;
  readonly metadata: ObjectMeta;
  readonly spec: unknown;
  readonly status: { readonly observedGeneration: number };
}

export interface ObjectRef {
  readonly namespace: string;
  readonly name: string;
}

/** Names a kind. */
export interface KindNames {
  readonly kind: "Sandbox" | "World";
  readonly plural: "sandboxes" | "worlds";
}

interface Signals {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** Marks an object with the key that made it, so that a lost answer's object is found to be one's own. */
const KEY_ANNOTATION = "agentworlds.dev/sdk-key";
const API_VERSION: typeof import("@agentworlds/crds").API_VERSION = "agentworlds.dev/v1alpha1";

const PAGE = "500";
const WATCH_SECONDS = 60;
/** A watch that the server should have ended by itself is dead. */
const WATCH_LIMIT_MS = (WATCH_SECONDS + 15) * 1_000;
const READ_TIMEOUT_MS = 30_000;

/** Get, list, create, delete and follow objects of one kind. */
export class Objects<T extends StoredObject> {
  readonly #transport: Transport;
  readonly #names: KindNames;

  constructor(transport: Transport, names: KindNames) {
    this.#transport = transport;
    this.#names = names;
  }

  async get(ref: ObjectRef, options: Signals): Promise<T> {
    const path = this.#path(ref.namespace, ref.name);
    return this.#read(await this.#transport.json({ method: "GET", path, repetition: "Repeatable", ...options }));
  }

  async list(namespace: string, options: Signals): Promise<T[]> {
    const items: T[] = [];
    let more: string | undefined;
    do {
      const query = new URLSearchParams({ limit: PAGE, ...(more === undefined ? {} : { continue: more }) });
      const page = await this.#page(namespace, query, options);
      items.push(...page.items);
      more = page.more;
    } while (more !== undefined);
    return items;
  }

  /**
   * Creates the object once per key: when its name is taken by what the same key made before, that is returned
   * (`adopted`). Throws `ConflictError` `NameTaken` when somebody else has the name.
   */
  async createOnce(
    wish: { ref: ObjectRef; key: string; spec: unknown },
    options: Signals,
  ): Promise<{ object: T; adopted: boolean }> {
    const { ref, key, spec } = wish;
    const fingerprint = fingerprintOfKey(key);
    const metadata = { ...ref, annotations: { [KEY_ANNOTATION]: fingerprint } };
    const json = { apiVersion: API_VERSION, kind: this.#names.kind, metadata, spec };
    try {
      const path = this.#path(ref.namespace);
      // Repeatable: the name is fixed, so that a second try meets the first one's object.
      const call = { method: "POST", path, body: { json }, repetition: "Repeatable", ...options } as const;
      return { object: this.#read(await this.#transport.json(call)), adopted: false };
    } catch (error) {
      if (!(error instanceof ConflictError && error.code === "AlreadyExists")) throw error;
      const object = await this.get(ref, options);
      if (object.metadata.annotations?.[KEY_ANNOTATION] === fingerprint) return { object, adopted: true };
      throw new ConflictError({
        status: 409,
        code: "NameTaken",
        message: `${this.#names.kind} ${ref.namespace}/${ref.name} exists and was not made with this key`,
        remediation: "use another name or key, or attach with get",
        cause: error,
      });
    }
  }

  /** Deletes what a key made, and nothing else of its name; resolves also when there is nothing. */
  async deleteMade(made: { ref: ObjectRef; key: string }, options: Signals): Promise<void> {
    const { ref, key } = made;
    try {
      const { annotations, uid } = (await this.get(ref, options)).metadata;
      if (annotations?.[KEY_ANNOTATION] !== fingerprintOfKey(key)) return;
      const body = { json: { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid } } };
      const path = this.#path(ref.namespace, ref.name);
      await this.#transport.json({ method: "DELETE", path, body, repetition: "Repeatable", ...options });
    } catch (error) {
      // Gone already; or another one by now, which the precondition kept.
      if (!(error instanceof RequestError && (error.status === 404 || error.status === 409))) throw error;
    }
  }

  /**
   * Yields the object now and whenever it changes, `undefined` when there is none; ends only with the signal's reason or
   * an error that waiting does not heal. An API server that is away is waited for.
   */
  async *follow(ref: ObjectRef, signal: AbortSignal): AsyncGenerator<T | undefined> {
    let pauseMs = 100;
    let last: string | undefined;
    for (;;) {
      try {
        // A list and not a get: its resourceVersion is current, while that of an old object may be compacted away.
        const page = await this.#page(ref.namespace, this.#only(ref), { signal, timeoutMs: READ_TIMEOUT_MS });
        const now = page.items[0];
        if (now === undefined || now.metadata.resourceVersion !== last) yield now;
        last = now?.metadata.resourceVersion;
        for await (const event of this.#watch(ref, page.resourceVersion, signal)) {
          pauseMs = 100;
          last = event?.metadata.resourceVersion;
          yield event;
        }
      } catch (error) {
        signal.throwIfAborted();
        if (!heals(error)) throw error;
        pauseMs = Math.min(pauseMs * 2, 5_000);
      }
      // Also after an orderly end: a hop that ends every watch at once must not make this a busy loop.
      await this.#transport.sleep(pauseMs, signal);
    }
  }

  async *#watch(ref: ObjectRef, resourceVersion: string, signal: AbortSignal): AsyncGenerator<T | undefined> {
    const query = this.#only(ref);
    query.set("watch", "1");
    query.set("resourceVersion", resourceVersion);
    query.set("timeoutSeconds", String(WATCH_SECONDS));
    const call = {
      method: "GET",
      path: this.#path(ref.namespace),
      query: `${query}`,
      repetition: "Repeatable",
    } as const;
    for await (const event of this.#transport.lines({ ...call, signal, timeoutMs: WATCH_LIMIT_MS })) {
      const type = textIn(event, "type");
      // 410 for one: the version asked for is not kept any more. The next list starts anew.
      if (type === "ERROR") return;
      if (type === "DELETED") yield undefined;
      else if (type === "ADDED" || type === "MODIFIED") yield this.#read(recordIn(event, "object"));
    }
  }

  async #page(
    namespace: string,
    query: URLSearchParams,
    options: Signals,
  ): Promise<{ items: T[]; resourceVersion: string; more: string | undefined }> {
    const path = this.#path(namespace);
    const call = { method: "GET", path, query: `${query}`, repetition: "Repeatable", ...options } as const;
    const answer = await this.#transport.json(call);
    const items: unknown[] | undefined =
      isRecord(answer) && Array.isArray(answer["items"]) ? answer["items"] : undefined;
    const metadata = recordIn(answer, "metadata");
    const resourceVersion = textIn(metadata, "resourceVersion");
    if (items === undefined || resourceVersion === undefined) throw this.#unexpected(answer);
    return { items: items.map((item) => this.#read(item)), resourceVersion, more: textIn(metadata, "continue") };
  }

  #only(ref: ObjectRef): URLSearchParams {
    return new URLSearchParams({ fieldSelector: `metadata.name=${segment(ref.name)}` });
  }

  #path(namespace: string, name?: string): string {
    const collection = `/apis/${API_VERSION}/namespaces/${segment(namespace)}/${this.#names.plural}`;
    return name === undefined ? collection : `${collection}/${segment(name)}`;
  }

  #read(value: unknown): T {
    // An item of a list may leave its kind out, and a status may be missing where the CRD's default is not in force.
    const object = isRecord(value)
      ? { apiVersion: API_VERSION, kind: this.#names.kind, status: { observedGeneration: -1 }, ...value }
      : value;
    if (this.#isOurs(object)) return object;
    throw this.#unexpected(value);
  }

  /** Checks what the SDK relies on; the rest was checked by the API server against the CRD. */
  #isOurs(value: unknown): value is T {
    const metadata = recordIn(value, "metadata");
    return (
      textIn(value, "kind") === this.#names.kind &&
      textIn(metadata, "name") !== undefined &&
      textIn(metadata, "uid") !== undefined &&
      textIn(metadata, "resourceVersion") !== undefined &&
      isRecord(value) &&
      isRecord(value["spec"]) &&
      isRecord(value["status"])
    );
  }

  #unexpected(value: unknown): ProtocolError {
    const seen = textIn(value, "kind") ?? typeof value;
    const generation = numberIn(recordIn(value, "metadata"), "generation");
    return new ProtocolError({
      code: "UnexpectedObject",
      message: `the API server answered ${seen}${generation === undefined ? "" : ` of generation ${generation}`} where a ${this.#names.kind} was due`,
      remediation: "check that the address is that of a Kubernetes API server",
    });
  }
}

/** Whether waiting and asking again may help. */
function heals(error: unknown): boolean {
  if (error instanceof RequestError) return error.status === 410 || error.status === 429 || error.status >= 500;
  if (error instanceof ConnectionError || error instanceof DeadlineError) return true;
  // A line of a watch that is no JSON: a hop cut it.
  return !(error instanceof AgentWorldsError) && error instanceof SyntaxError;
}
