/** The part of object metadata the runtime itself relies on. */
export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation?: number;
  readonly deletionTimestamp?: string;
  readonly finalizers?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Any object a reflector can mirror. */
export interface KubeObject {
  readonly metadata: ObjectMeta;
}

/** One page of a list. */
export interface ListPage<T extends KubeObject> {
  readonly items: readonly T[];
  /** The collection's resourceVersion: a watch from here misses nothing. */
  readonly resourceVersion: string;
  /** Token of the next page; absent on the last. */
  readonly continueToken?: string;
}

/** One event of a watch stream. `BOOKMARK` only moves the resourceVersion on. */
export type WatchEvent<T extends KubeObject> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T }
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string };

/**
 * What a reflector needs of an API: paged lists and a watch that ends by itself after `timeoutSeconds`.
 * Errors are thrown as the classes of kube/errors.ts; the reflector looks only at `status` and `retryAfterMs`.
 */
export interface ListWatch<T extends KubeObject> {
  list(options: { limit: number; continueToken?: string; signal: AbortSignal }): Promise<ListPage<T>>;
  watch(options: {
    resourceVersion: string;
    timeoutSeconds: number;
    signal: AbortSignal;
  }): AsyncIterable<WatchEvent<T>>;
}
