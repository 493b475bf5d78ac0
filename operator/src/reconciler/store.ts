import type { KubeObject } from "./list-watch.ts";
import { type Log, silentLog } from "./log.ts";
import { noMetrics, type ReconcilerMetrics } from "./metrics.ts";
import type { Key } from "./reconcile.ts";

/** One change of the store. A same-name object with a new UID arrives as `deleted` then `added`, never as `updated`. */
export type StoreChange<T extends KubeObject> =
  | { readonly kind: "added"; readonly object: T }
  | { readonly kind: "updated"; readonly object: T; readonly previous: T }
  /** `object` is the last state seen; the server's final state may be newer when the deletion was found by a relist. */
  | { readonly kind: "deleted"; readonly object: T };

/** Called after the store holds the change. What it throws is logged and counted, and reaches nobody else. */
export type StoreListener<T extends KubeObject> = (change: StoreChange<T>) => void;

/** Index values of an object, for example its World's name. */
export type IndexFunction<T extends KubeObject> = (object: T) => readonly string[];

/** What readers see of a store. Objects are shared: never mutate them. */
export interface StoreReader<T extends KubeObject> {
  get(key: Key): T | undefined;
  list(): readonly T[];
  /** Objects that carry `value` under the named index; throws when there is no such index. */
  byIndex(index: string, value: string): readonly T[];
  readonly size: number;
  /** Calls the listener for every later change, after one `added` per object already held. Returns the way out. */
  subscribe(listener: StoreListener<T>): () => void;
}

export interface StoreOptions<T extends KubeObject> {
  /** Names the resource in logs and metrics. */
  readonly resource: string;
  readonly indexes?: Readonly<Record<string, IndexFunction<T>>>;
  readonly log?: Log;
  readonly metrics?: ReconcilerMetrics;
}

/** `namespace/name`, or `name` for a cluster-scoped object. */
export function keyOf(object: KubeObject): Key {
  const { namespace, name } = object.metadata;
  return namespace === undefined || namespace === "" ? name : `${namespace}/${name}`;
}

/** Takes a key apart again. */
export function splitKey(key: Key): { namespace?: string; name: string } {
  const slash = key.indexOf("/");
  return slash < 0 ? { name: key } : { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/**
 * The local mirror of one resource, fed by a reflector. Indexes are computed once per object: an index function that throws
 * refuses nothing, the object is held without that index and the failure is logged.
 */
export class ObjectStore<T extends KubeObject> implements StoreReader<T> {
  readonly resource: string;
  readonly #objects = new Map<Key, T>();
  readonly #listeners = new Set<StoreListener<T>>();
  readonly #indexes: ReadonlyMap<string, ObjectIndex<T>>;
  readonly #log: Log;
  readonly #metrics: ReconcilerMetrics;

  constructor(options: StoreOptions<T>) {
    this.resource = options.resource;
    this.#log = options.log ?? silentLog;
    this.#metrics = options.metrics ?? noMetrics;
    this.#indexes = new Map(
      Object.entries(options.indexes ?? {}).map(([name, values]) => [
        name,
        new ObjectIndex(this.#guarded(name, values)),
      ]),
    );
  }

  get size(): number {
    return this.#objects.size;
  }

  get(key: Key): T | undefined {
    return this.#objects.get(key);
  }

  list(): readonly T[] {
    return [...this.#objects.values()];
  }

  byIndex(index: string, value: string): readonly T[] {
    const found = this.#indexes.get(index);
    if (found === undefined) throw new RangeError(`store of ${this.resource} has no index "${index}"`);
    return found.keys(value).flatMap((key) => this.#objects.get(key) ?? []);
  }

  subscribe(listener: StoreListener<T>): () => void {
    for (const object of this.#objects.values()) this.#call(listener, { kind: "added", object });
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes one object over. The same UID and resourceVersion again changes nothing and tells nobody. */
  set(object: T): void {
    const key = keyOf(object);
    const previous = this.#objects.get(key);
    if (previous === undefined) {
      this.#put(key, object);
      this.#tell({ kind: "added", object });
    } else if (previous.metadata.uid !== object.metadata.uid) {
      this.#drop(key, previous);
      this.#tell({ kind: "deleted", object: previous });
      this.#put(key, object);
      this.#tell({ kind: "added", object });
    } else if (previous.metadata.resourceVersion !== object.metadata.resourceVersion) {
      this.#drop(key, previous);
      this.#put(key, object);
      this.#tell({ kind: "updated", object, previous });
    }
  }

  /** Removes one object; its last state is what listeners see. A key not held changes nothing. */
  delete(object: T): void {
    const key = keyOf(object);
    const previous = this.#objects.get(key);
    if (previous === undefined) return;
    // A deletion of another incarnation still means that the one held is gone: the server has one object per name.
    const last = previous.metadata.uid === object.metadata.uid ? object : previous;
    this.#drop(key, previous);
    this.#tell({ kind: "deleted", object: last });
  }

  /** Makes the store equal to a complete list, telling only the differences, deletions first. */
  replace(objects: readonly T[]): void {
    const kept = new Set(objects.map(keyOf));
    for (const [key, previous] of [...this.#objects]) if (!kept.has(key)) this.delete(previous);
    for (const object of objects) this.set(object);
  }

  #put(key: Key, object: T): void {
    this.#objects.set(key, object);
    for (const index of this.#indexes.values()) index.add(key, object);
  }

  #drop(key: Key, object: T): void {
    this.#objects.delete(key);
    for (const index of this.#indexes.values()) index.remove(key, object);
  }

  #tell(change: StoreChange<T>): void {
    for (const listener of [...this.#listeners]) this.#call(listener, change);
  }

  #call(listener: StoreListener<T>, change: StoreChange<T>): void {
    const report = (error: unknown) => {
      this.#metrics.listenerFailed(this.resource);
      this.#log.error({ resource: this.resource, key: keyOf(change.object), err: error }, "a store listener threw");
    };
    try {
      // A listener typed as returning nothing may still be an async function; its rejection belongs here, not to the process.
      const result: unknown = listener(change);
      if (result instanceof Promise) result.catch(report);
    } catch (error) {
      report(error);
    }
  }

  #guarded(index: string, values: IndexFunction<T>): IndexFunction<T> {
    return (object) => {
      try {
        return values(object);
      } catch (error) {
        this.#log.error({ resource: this.resource, index, key: keyOf(object), err: error }, "an index function threw");
        return [];
      }
    };
  }
}

class ObjectIndex<T extends KubeObject> {
  readonly #values: IndexFunction<T>;
  readonly #keys = new Map<string, Set<Key>>();

  constructor(values: IndexFunction<T>) {
    this.#values = values;
  }

  keys(value: string): readonly Key[] {
    return [...(this.#keys.get(value) ?? [])];
  }

  add(key: Key, object: T): void {
    for (const value of this.#values(object)) {
      const keys = this.#keys.get(value) ?? new Set();
      this.#keys.set(value, keys.add(key));
    }
  }

  remove(key: Key, object: T): void {
    for (const value of this.#values(object)) {
      const keys = this.#keys.get(value);
      keys?.delete(key);
      if (keys?.size === 0) this.#keys.delete(value);
    }
  }
}
