import type { KubeObject, ListPage, WatchEvent } from "../reconciler/list-watch.ts";

/** Names one resource of the API: `{group: "agentworlds.dev", version: "v1alpha1", plural: "worlds", namespaced: true}`. */
export interface ResourceType {
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
}

export interface ObjectRef {
  readonly namespace?: string;
  readonly name: string;
}

/** A JSON merge patch. To make it a compare-and-swap, set `metadata.resourceVersion`. */
export type MergePatch = { readonly metadata?: Record<string, unknown>; readonly [field: string]: unknown };

/** Every call has a deadline of its own (default 30 s) besides the caller's signal. */
export interface CallOptions {
  readonly signal: AbortSignal;
  readonly deadlineMs?: number;
}

/**
 * Calls on one resource type. Reads return the API's JSON as `T`, unchecked; callers that need a checked object parse it
 * with the schema of its kind. Errors: `ApiError`, `ConnectionError` (errors.ts).
 */
export interface ResourceClient<T extends KubeObject> {
  readonly type: ResourceType;
  get(ref: ObjectRef, options: CallOptions): Promise<T>;
  list(
    options: CallOptions & {
      namespace?: string;
      limit?: number;
      continueToken?: string;
      labelSelector?: string;
      fieldSelector?: string;
    },
  ): Promise<ListPage<T>>;
  watch(options: {
    namespace?: string;
    resourceVersion: string;
    timeoutSeconds: number;
    signal: AbortSignal;
    labelSelector?: string;
    fieldSelector?: string;
  }): AsyncIterable<WatchEvent<T>>;
  create(object: unknown, options: CallOptions & { namespace?: string }): Promise<T>;
  /** `application/merge-patch+json` on the object itself. */
  patch(ref: ObjectRef, patch: MergePatch, options: CallOptions): Promise<T>;
  /** `application/merge-patch+json` on the status subresource. */
  patchStatus(ref: ObjectRef, patch: MergePatch, options: CallOptions): Promise<T>;
  /** Server-side apply, field manager `agent-worlds`, forced. */
  apply(ref: ObjectRef, object: unknown, options: CallOptions): Promise<T>;
  /** Deletes with preconditions when given. A 404 is thrown like any other error. */
  delete(
    ref: ObjectRef,
    options: CallOptions & { uid?: string; resourceVersion?: string; propagationPolicy?: "Background" | "Foreground" },
  ): Promise<void>;
}

/** The one door to the API server. */
export interface KubeClient {
  resource<T extends KubeObject>(type: ResourceType): ResourceClient<T>;
  /** A raw JSON call for what has no resource type (`/readyz`, `/apis`, reviews). */
  request<R>(
    method: string,
    path: string,
    options: CallOptions & { body?: unknown; contentType?: string; query?: Record<string, string> },
  ): Promise<R>;
  /** Closes every connection; calls in flight fail. */
  close(): Promise<void>;
}
