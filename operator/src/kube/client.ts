import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject, ListPage, WatchEvent } from "../reconciler/list-watch.ts";
import { isRecord, readStatus } from "./answer.ts";
import { Connection, type ConnectionSource } from "./connection.ts";
import type { CallOptions, KubeClient, MergePatch, ObjectRef, ResourceClient, ResourceType } from "./contract.ts";
import { ApiError, ConnectionError } from "./errors.ts";
import { Transport } from "./transport.ts";

export interface KubeClientOptions {
  readonly source: ConnectionSource;
  readonly clock?: Clock;
  /** For each call that states none. Default 30 s. */
  readonly deadlineMs?: number;
  /** Connections for calls; each watch has one of its own besides. Default 8. */
  readonly poolSize?: number;
  /** Default `agent-worlds`. */
  readonly userAgent?: string;
  /** Largest answer, in bytes. Default 64 MiB. */
  readonly maxAnswerBytes?: number;
  /** 0 ≤ x < 1, for jitter. Default `Math.random`. */
  readonly random?: () => number;
}

/** The field manager of every write. */
export const FIELD_MANAGER = "agent-worlds";

const MERGE_PATCH = "application/merge-patch+json";
/** The server reads YAML here, of which JSON is a part. */
const APPLY_PATCH = "application/apply-patch+yaml";

/** Makes a client. Nothing is read or dialled before the first call. */
export function createKubeClient(options: KubeClientOptions): KubeClient {
  const { source, poolSize, ...transportOptions } = options;
  const connection = new Connection({ source, ...(poolSize === undefined ? {} : { poolSize }) });
  const transport = new Transport({ connection, ...transportOptions });
  return {
    resource: <T extends KubeObject>(type: ResourceType) => resourceClient<T>(transport, type),
    async request<R>(method: string, path: string, call: Parameters<KubeClient["request"]>[2]): Promise<R> {
      return as<R>(await transport.call({ method, path, ...call }));
    },
    close: () => connection.close(),
  };
}

/** The API's JSON as the type the caller names: unchecked, as the contract says. */
function as<R>(answer: unknown): R {
  return answer as R;
}

function resourceClient<T extends KubeObject>(transport: Transport, type: ResourceType): ResourceClient<T> {
  const call = async <R>(method: string, path: string, options: CallOptions & WriteOptions): Promise<R> => {
    const { query, ...rest } = options;
    const writes = method === "POST" || method === "PATCH";
    const fields = writes ? { fieldManager: FIELD_MANAGER, ...query } : query;
    return as<R>(await transport.call({ method, path, ...rest, ...(fields === undefined ? {} : { query: fields }) }));
  };
  return {
    type,
    get: (ref, options) => call<T>("GET", objectPath(type, ref), callOnly(options)),

    async list(options) {
      const query = selection(options);
      if (options.limit !== undefined && options.limit > 0) query["limit"] = String(options.limit);
      if (options.continueToken !== undefined) query["continue"] = options.continueToken;
      return listPage<T>(await call("GET", collectionPath(type, options.namespace), { ...callOnly(options), query }));
    },

    async *watch(options) {
      const query = {
        ...selection(options),
        watch: "1",
        allowWatchBookmarks: "true",
        resourceVersion: options.resourceVersion,
        timeoutSeconds: String(options.timeoutSeconds),
      };
      const path = collectionPath(type, options.namespace);
      const lines = transport.lines({ method: "GET", path, query, signal: options.signal });
      for await (const line of lines) yield watchEvent<T>(line);
    },

    create: (object, options) =>
      call<T>("POST", collectionPath(type, options.namespace), { ...callOnly(options), body: object }),

    patch: (ref, patch, options) => call<T>("PATCH", objectPath(type, ref), mergePatch(patch, options)),

    patchStatus: (ref, patch, options) =>
      call<T>("PATCH", `${objectPath(type, ref)}/status`, mergePatch(patch, options)),

    apply: (ref, object, options) =>
      call<T>("PATCH", objectPath(type, ref), {
        ...callOnly(options),
        body: object,
        contentType: APPLY_PATCH,
        query: { force: "true" },
      }),

    async delete(ref, options) {
      const preconditions = {
        ...(options.uid === undefined ? {} : { uid: options.uid }),
        ...(options.resourceVersion === undefined ? {} : { resourceVersion: options.resourceVersion }),
      };
      const body = {
        apiVersion: "v1",
        kind: "DeleteOptions",
        ...(Object.keys(preconditions).length === 0 ? {} : { preconditions }),
        ...(options.propagationPolicy === undefined ? {} : { propagationPolicy: options.propagationPolicy }),
      };
      await call("DELETE", objectPath(type, ref), { ...callOnly(options), body });
    },
  };
}

interface WriteOptions {
  readonly body?: unknown;
  readonly contentType?: string;
  readonly query?: Readonly<Record<string, string>>;
}

function callOnly(options: CallOptions): CallOptions {
  const { signal, deadlineMs } = options;
  return deadlineMs === undefined ? { signal } : { signal, deadlineMs };
}

function mergePatch(patch: MergePatch, options: CallOptions): CallOptions & WriteOptions {
  return { ...callOnly(options), body: patch, contentType: MERGE_PATCH };
}

function selection(options: { labelSelector?: string; fieldSelector?: string }): Record<string, string> {
  return {
    ...(options.labelSelector === undefined ? {} : { labelSelector: options.labelSelector }),
    ...(options.fieldSelector === undefined ? {} : { fieldSelector: options.fieldSelector }),
  };
}

/** Path of a collection; across all namespaces when none is given. */
function collectionPath(type: ResourceType, namespace: string | undefined): string {
  const group = type.group === "" ? `/api/${type.version}` : `/apis/${type.group}/${type.version}`;
  if (!type.namespaced || namespace === undefined) return `${group}/${type.plural}`;
  return `${group}/namespaces/${segment(namespace)}/${type.plural}`;
}

function objectPath(type: ResourceType, ref: ObjectRef): string {
  if (type.namespaced && ref.namespace === undefined) {
    throw new TypeError(`${type.kind} "${ref.name}" needs a namespace`);
  }
  return `${collectionPath(type, ref.namespace)}/${segment(ref.name)}`;
}

/** One path segment. An empty or dotted one would name something else than the caller meant. */
function segment(name: string): string {
  if (name === "" || name === "." || name === "..") throw new TypeError(`"${name}" is no name of an object`);
  return encodeURIComponent(name);
}

function listPage<T extends KubeObject>(answer: unknown): ListPage<T> {
  const metadata = isRecord(answer) && isRecord(answer["metadata"]) ? answer["metadata"] : {};
  const items = isRecord(answer) ? (answer["items"] ?? []) : undefined;
  const { resourceVersion, continue: continueToken } = metadata;
  if (!Array.isArray(items) || typeof resourceVersion !== "string") {
    throw new ConnectionError("the answer is no list", { outcomeUnknown: false });
  }
  const more = typeof continueToken === "string" && continueToken !== "" ? { continueToken } : {};
  return { items, resourceVersion, ...more };
}

function watchEvent<T extends KubeObject>(line: unknown): WatchEvent<T> {
  const type = isRecord(line) ? line["type"] : undefined;
  const object = isRecord(line) ? line["object"] : undefined;
  if (type === "ERROR") {
    const { code, reason, message, details } = readStatus(object);
    const asked = details?.retryAfterSeconds;
    throw new ApiError({
      status: code ?? 500,
      reason: reason ?? "",
      message: message ?? "the watch ended with an error",
      retryAfterMs: asked === undefined ? undefined : asked * 1_000,
    });
  }
  const metadata = isRecord(object) ? object["metadata"] : undefined;
  const resourceVersion = isRecord(metadata) ? metadata["resourceVersion"] : undefined;
  if (typeof resourceVersion !== "string") {
    throw new ConnectionError("an event of the watch has no resourceVersion", { outcomeUnknown: false });
  }
  if (type === "BOOKMARK") return { type, resourceVersion };
  if (type === "ADDED" || type === "MODIFIED" || type === "DELETED") return { type, object: as<T>(object) };
  throw new ConnectionError(`an event of the watch has the unknown type "${String(type)}"`, { outcomeUnknown: false });
}
