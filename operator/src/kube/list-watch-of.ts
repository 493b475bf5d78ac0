import type { KubeObject, ListWatch } from "../reconciler/list-watch.ts";
import type { ResourceClient } from "./contract.ts";

/** What to mirror; everything of the type when empty. */
export interface Selection {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

/** A resource client as the source of a reflector. */
export function listWatchOf<T extends KubeObject>(client: ResourceClient<T>, selection: Selection = {}): ListWatch<T> {
  return {
    // The reflector sets a deadline of its own through the signal; the client's must not cut it short.
    list: (options) => client.list({ deadlineMs: LIST_DEADLINE_MS, ...selection, ...options }),
    watch: (options) => client.watch({ ...selection, ...options }),
  };
}

const LIST_DEADLINE_MS = 120_000;
