import type { KubeObject, ListPage, ListWatch, WatchEvent } from "./list-watch.ts";

/** An API error by shape, as the runtime reads it. */
export function apiError(status: number, details: { reason?: string; retryAfterMs?: number } = {}): Error {
  return Object.assign(new Error(`HTTP ${status} ${details.reason ?? ""}`), { status, reason: "", ...details });
}

interface Revision {
  readonly version: number;
  readonly event: WatchEvent<KubeObject>;
}

interface OpenWatch {
  /** Sends one event to whoever reads. */
  deliver(event: WatchEvent<KubeObject>): void;
  end(): void;
  fail(error: unknown): void;
}

/**
 * One resource of an API server, in memory and scripted by a test: global revisions, a history that can be compacted, paged
 * lists of one snapshot, watches that replay, and faults on demand. For tests of the runtime only.
 */
export class FakeListWatch implements ListWatch<KubeObject> {
  readonly objects = new Map<string, KubeObject>();
  /** Every list and watch asked for, in order. */
  readonly calls: string[] = [];
  /** Watches open now. */
  readonly open = new Set<OpenWatch>();
  /** Thrown by the next lists, in turn. */
  readonly listFailures: Error[] = [];
  /** Thrown by the next watches before their first event, in turn. */
  readonly watchFailures: Error[] = [];
  /** While set, lists wait for it. */
  listGate: Promise<void> | undefined;
  /** While true, what is sent to a watch goes nowhere, and so does everything after it on that watch: half-open. */
  silent = false;
  readonly #deaf = new WeakSet<OpenWatch>();
  #history: Revision[] = [];
  #revision = 100;
  #compacted = 100;
  #uids = 0;
  readonly #snapshots = new Map<string, { items: KubeObject[]; version: number }>();

  /** Creates the object, or writes it anew. */
  write(name: string): void {
    this.#revision += 1;
    const before = this.objects.get(name);
    const uid = before?.metadata.uid ?? `uid-${++this.#uids}`;
    const object = { metadata: { name, uid, resourceVersion: String(this.#revision) } };
    this.objects.set(name, object);
    this.#record({ type: before === undefined ? "ADDED" : "MODIFIED", object });
  }

  remove(name: string): void {
    const before = this.objects.get(name);
    if (before === undefined) return;
    this.#revision += 1;
    this.objects.delete(name);
    const object = { metadata: { ...before.metadata, resourceVersion: String(this.#revision) } };
    this.#record({ type: "DELETED", object });
  }

  /** Tells every open watch that it has seen everything so far; other resources may have moved the revision on. */
  bookmark(): void {
    this.#revision += 1;
    for (const watch of this.open) this.#send(watch, { type: "BOOKMARK", resourceVersion: String(this.#revision) });
  }

  /** Forgets the history: positions before now become 410. */
  compact(): void {
    this.#history = [];
    this.#compacted = this.#revision;
    this.#snapshots.clear();
  }

  /** Goes back to an earlier revision number with the objects as they are, as a restored etcd would. */
  restore(revision: number): void {
    this.#revision = revision;
    this.#compacted = revision;
    this.#history = [];
    for (const [name, object] of this.objects) {
      this.objects.set(name, { metadata: { ...object.metadata, resourceVersion: String(++this.#revision) } });
    }
  }

  /** Sends the last `count` events of the history to open watches once more. */
  repeatLast(count: number): void {
    for (const { event } of this.#history.slice(-count)) for (const watch of this.open) this.#send(watch, event);
  }

  /** Sends one event, so many before the newest, to open watches once more. */
  repeatOne(back: number): void {
    const found = this.#history.at(-1 - back);
    if (found !== undefined) for (const watch of this.open) this.#send(watch, found.event);
  }

  /** Breaks every open watch. */
  breakWatches(error: unknown): void {
    for (const watch of [...this.open]) watch.fail(error);
  }

  /** Ends every open watch in good order, as its timeout would. */
  endWatches(): void {
    for (const watch of [...this.open]) if (!this.silent && !this.#deaf.has(watch)) watch.end();
  }

  async list(options: { limit: number; continueToken?: string; signal: AbortSignal }): Promise<ListPage<KubeObject>> {
    this.calls.push(`list limit=${options.limit}${options.continueToken === undefined ? "" : " continued"}`);
    await this.listGate;
    const failure = this.listFailures.shift();
    if (failure !== undefined) throw failure;
    const token = options.continueToken ?? "";
    const from = token === "" ? 0 : Number(token.split("/")[1]);
    const snapshot =
      token === ""
        ? { items: [...this.objects.values()], version: this.#revision }
        : this.#snapshots.get(token.split("/")[0] ?? "");
    if (snapshot === undefined) throw apiError(410, { reason: "Expired" });
    const to = options.limit === 0 ? snapshot.items.length : from + options.limit;
    const resourceVersion = String(snapshot.version);
    this.#snapshots.set(resourceVersion, snapshot);
    const more = to < snapshot.items.length ? { continueToken: `${resourceVersion}/${to}` } : {};
    return { items: snapshot.items.slice(from, to), resourceVersion, ...more };
  }

  async *watch(options: {
    resourceVersion: string;
    timeoutSeconds: number;
    signal: AbortSignal;
  }): AsyncGenerator<WatchEvent<KubeObject>> {
    this.calls.push(`watch from=${options.resourceVersion}`);
    const from = Number(options.resourceVersion);
    const failure = this.watchFailures.shift();
    if (failure !== undefined) throw failure;
    if (from < this.#compacted) throw apiError(410, { reason: "Expired" });

    const queue: WatchEvent<KubeObject>[] = this.#history
      .filter((revision) => revision.version > from)
      .map((revision) => revision.event);
    let wake = Promise.withResolvers<void>();
    let ended = false;
    let broken: { error: unknown } | undefined;
    const watch: OpenWatch = {
      deliver(event) {
        queue.push(event);
        wake.resolve();
      },
      end: () => {
        this.open.delete(watch);
        ended = true;
        wake.resolve();
      },
      fail: (error) => {
        this.open.delete(watch);
        // A reset connection loses what its reader had not taken yet.
        queue.length = 0;
        broken = { error };
        wake.resolve();
      },
    };
    const onAbort = () => watch.fail(options.signal.reason);
    options.signal.addEventListener("abort", onAbort);
    this.open.add(watch);
    try {
      for (;;) {
        for (let event = queue.shift(); event !== undefined; event = queue.shift()) yield event;
        if (broken !== undefined) throw broken.error;
        if (ended) return;
        await wake.promise;
        wake = Promise.withResolvers();
      }
    } finally {
      options.signal.removeEventListener("abort", onAbort);
      this.open.delete(watch);
    }
  }

  #record(event: WatchEvent<KubeObject>): void {
    this.#history.push({ version: this.#revision, event });
    for (const watch of this.open) this.#send(watch, event);
  }

  #send(watch: OpenWatch, event: WatchEvent<KubeObject>): void {
    // A byte stream has no holes: once something was withheld, nothing later arrives either.
    if (this.silent) this.#deaf.add(watch);
    else if (!this.#deaf.has(watch)) watch.deliver(event);
  }
}
