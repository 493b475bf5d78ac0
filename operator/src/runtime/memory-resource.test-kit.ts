/**
 * A `ResourceClient` over a map, for tests: resourceVersions, conflicts, merge patches and UIDs as an API server has them,
 * and a place where somebody else writes between a read and the write that follows it.
 */
import type { MergePatch, ObjectRef, ResourceClient, ResourceType } from "../kube/contract.ts";
import { ApiError, ConnectionError } from "../kube/errors.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";

/** One write as it arrived, refused ones included. */
export interface SeenWrite {
  readonly verb: "create" | "patch" | "patchStatus" | "delete";
  readonly name: string;
  readonly body: unknown;
  readonly outcome: "written" | "conflict" | "notFound" | "exists" | "lost" | "unsent";
}

export interface MemoryResource<T extends KubeObject> extends ResourceClient<T> {
  /** Every write so far. */
  readonly writes: readonly SeenWrite[];
  /** What is stored now; undefined when nothing is. */
  peek(ref: ObjectRef): T | undefined;
  /** Stores an object as it is, under a new resourceVersion: another writer, or another object of the same name. */
  put(object: T): T;
  /** Removes an object, as if its last finalizer had gone. */
  drop(ref: ObjectRef): void;
  /**
   * What others do between a read and the write that follows: one for each write from now on, in order. Replaces those of an
   * earlier call that no write met.
   */
  interfere(...others: readonly (() => void)[]): void;
  /** The next write's answer does not arrive. `written` says whether the server carried it out. */
  loseNextAnswer(written: boolean): void;
}

type Json = Readonly<Record<string, unknown>>;

export function memoryResource<T extends KubeObject>(
  type: ResourceType,
  objects: readonly T[] = [],
): MemoryResource<T> {
  const stored = new Map<string, T>();
  const writes: SeenWrite[] = [];
  const interferences: (() => void)[] = [];
  let lostAnswer: { readonly written: boolean } | undefined;
  let version = 100;

  const keyOf = (ref: ObjectRef): string => `${type.namespaced ? (ref.namespace ?? "") : ""}/${ref.name}`;
  const keep = (key: string, object: T): T => {
    version += 1;
    const fresh = frozenCopy({ ...object, metadata: { ...object.metadata, resourceVersion: String(version) } });
    stored.set(key, fresh);
    return fresh;
  };

  function write(ref: ObjectRef, verb: SeenWrite["verb"], body: unknown, carryOut: (known: T | undefined) => T): T {
    interferences.shift()?.();
    const lost = lostAnswer;
    lostAnswer = undefined;
    const see = (outcome: SeenWrite["outcome"]) => writes.push({ verb, name: ref.name, body, outcome });
    if (lost?.written === false) {
      see("unsent");
      throw new ConnectionError("the connection was refused", { outcomeUnknown: false });
    }
    let result: T;
    try {
      result = carryOut(stored.get(keyOf(ref)));
    } catch (error) {
      if (error instanceof ApiError) see(outcomeOf(error));
      throw error;
    }
    see(lost ? "lost" : "written");
    if (lost) throw new ConnectionError("the answer was cut", { outcomeUnknown: true });
    return result;
  }

  function patchPart(ref: ObjectRef, verb: "patch" | "patchStatus", patch: MergePatch): T {
    return write(ref, verb, patch, (known) => {
      if (!known) throw notFound(type, ref);
      const expected = patch.metadata?.["resourceVersion"];
      if (expected !== undefined && expected !== known.metadata.resourceVersion) throw conflict(type, ref);
      const { status, ...rest } = patch;
      // The status subresource takes status only, the object itself everything else.
      const taken = verb === "patchStatus" ? { status } : rest;
      return keep(keyOf(ref), as<T>(applyMergePatch(known, taken)));
    });
  }

  const memory: MemoryResource<T> = {
    type,
    writes,
    peek: (ref) => stored.get(keyOf(ref)),
    put: (object) => keep(keyOf(object.metadata), object),
    drop: (ref) => void stored.delete(keyOf(ref)),
    interfere: (...others) => void interferences.splice(0, interferences.length, ...others),
    loseNextAnswer: (written) => {
      lostAnswer = { written };
    },

    async get(ref, { signal }) {
      signal.throwIfAborted();
      const known = stored.get(keyOf(ref));
      if (!known) throw notFound(type, ref);
      return known;
    },
    async list({ signal }) {
      signal.throwIfAborted();
      return { items: [...stored.values()], resourceVersion: String(version) };
    },
    watch() {
      throw new TypeError("nothing watches a memory resource");
    },
    async create(object, { signal, namespace }) {
      signal.throwIfAborted();
      const made = as<T>(object);
      const ref = { ...(namespace === undefined ? {} : { namespace }), name: made.metadata.name };
      return write(ref, "create", object, (known) => {
        if (known) throw new ApiError({ status: 409, reason: "AlreadyExists", message: `${ref.name} exists` });
        return keep(keyOf(ref), {
          ...made,
          metadata: { ...made.metadata, uid: made.metadata.uid ?? `uid-${version}` },
        });
      });
    },
    async patch(ref, patch, { signal }) {
      signal.throwIfAborted();
      return patchPart(ref, "patch", patch);
    },
    async patchStatus(ref, patch, { signal }) {
      signal.throwIfAborted();
      return patchPart(ref, "patchStatus", patch);
    },
    async apply() {
      throw new TypeError("nothing applies to a memory resource");
    },
    async delete(ref, { signal, uid, resourceVersion }) {
      signal.throwIfAborted();
      write(ref, "delete", { uid, resourceVersion }, (known) => {
        if (!known) throw notFound(type, ref);
        if (uid !== undefined && uid !== known.metadata.uid) throw conflict(type, ref);
        stored.delete(keyOf(ref));
        return known;
      });
    },
  };
  for (const object of objects) memory.put(object);
  return memory;
}

/** RFC 7386, as the RFC writes it. */
export function applyMergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const result: Record<string, unknown> = isObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else if (value !== undefined) result[key] = applyMergePatch(result[key], value);
  }
  return result;
}

/** Given out as it is, again and again: what is frozen needs no copy, and who would alter it learns of it. */
function frozenCopy<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  const copy = Array.isArray(value)
    ? value.map(frozenCopy)
    : Object.fromEntries(Object.entries(value).map(([key, part]) => [key, frozenCopy(part)]));
  return as<T>(Object.freeze(copy));
}

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The map's JSON as the type the test names: unchecked, as with the real client. */
function as<T>(value: unknown): T {
  return value as T;
}

function outcomeOf(error: ApiError): SeenWrite["outcome"] {
  if (error.status === 404) return "notFound";
  return error.reason === "AlreadyExists" ? "exists" : "conflict";
}

const notFound = (type: ResourceType, ref: ObjectRef): ApiError =>
  new ApiError({ status: 404, reason: "NotFound", message: `${type.plural} "${ref.name}" not found` });

const conflict = (type: ResourceType, ref: ObjectRef): ApiError =>
  new ApiError({
    status: 409,
    reason: "Conflict",
    message: `${type.plural} "${ref.name}": the object has been modified`,
  });
