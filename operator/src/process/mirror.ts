/** The local mirrors of the three kinds, and which keys become due when one of them changes. */
import { type Runtime, type Sandbox, SNAPSHOT_REQUESTED, type World } from "@agentworlds/crds";
import type { KubeClient } from "../kube/contract.ts";
import { listWatchOf } from "../kube/list-watch-of.ts";
import { RUNTIMES, SANDBOXES, WORLDS } from "../kube/resource-types.ts";
import type { Log } from "../reconciler/log.ts";
import type { ReconcilerMetrics } from "../reconciler/metrics.ts";
import { Reflector } from "../reconciler/reflector.ts";
import { keyOf, ObjectStore, type StoreChange } from "../reconciler/store.ts";
import type { WorkQueue } from "../reconciler/workqueue.ts";
import { drainOf } from "../runtime/drain.ts";

export interface Mirrors {
  readonly worlds: ObjectStore<World>;
  readonly sandboxes: ObjectStore<Sandbox>;
  readonly runtimes: ObjectStore<Runtime>;
  /** Follows the API server until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
  /** Resolves when all three hold a complete list. */
  synced(signal: AbortSignal): Promise<void>;
  /** What keeps the mirrors from being trusted, one sentence each; empty when all is well. */
  problems(): readonly string[];
}

/** Sandboxes by `namespace/world`. */
const BY_WORLD = "world";

export function createMirrors(options: { kube: KubeClient; log: Log; metrics: ReconcilerMetrics }): Mirrors {
  const { kube, log, metrics } = options;
  const shared = { log, metrics };
  const worlds = new ObjectStore<World>({ resource: "worlds", ...shared });
  const runtimes = new ObjectStore<Runtime>({ resource: "runtimes", ...shared });
  const sandboxes = new ObjectStore<Sandbox>({
    resource: "sandboxes",
    indexes: { [BY_WORLD]: (sandbox) => (sandbox.spec.world ? [worldKeyOf(sandbox)] : []) },
    ...shared,
  });
  const reflectors = [
    new Reflector({ source: listWatchOf(kube.resource<World>(WORLDS)), store: worlds, ...shared }),
    new Reflector({ source: listWatchOf(kube.resource<Sandbox>(SANDBOXES)), store: sandboxes, ...shared }),
    new Reflector({ source: listWatchOf(kube.resource<Runtime>(RUNTIMES)), store: runtimes, ...shared }),
  ] as const;
  const names = ["worlds", "sandboxes", "runtimes"];
  return {
    worlds,
    sandboxes,
    runtimes,
    async run(signal) {
      await Promise.all(reflectors.map((reflector) => reflector.run(signal)));
    },
    async synced(signal) {
      await Promise.all(reflectors.map((reflector) => reflector.whenSynced(signal)));
    },
    problems: () =>
      reflectors.flatMap((reflector, index) =>
        reflector.hasSynced() ? [] : [`the cache of ${names[index]} is not complete yet`],
      ),
  };
}

const worldKeyOf = (sandbox: Sandbox): string => `${sandbox.metadata.namespace}/${sandbox.spec.world?.name}`;

export interface Queues {
  readonly worlds: WorkQueue;
  readonly sandboxes: WorkQueue;
  readonly runtimes: WorkQueue;
}

/** Fills the queues from the mirrors' changes. Returns the way out. */
export function feedQueues(mirrors: Mirrors, queues: Queues): () => void {
  const ways = [
    mirrors.worlds.subscribe((change) => {
      const key = keyOf(change.object);
      queues.worlds.add(key);
      for (const sandbox of mirrors.sandboxes.byIndex(BY_WORLD, key)) queues.sandboxes.add(keyOf(sandbox));
    }),
    mirrors.sandboxes.subscribe((change) => {
      queues.sandboxes.add(keyOf(change.object));
      if (droppedReserved(mirrors, change)) queues.worlds.add(worldKeyOf(change.object));
      if (!movedCompute(change)) return;
      if (change.object.spec.world) queues.worlds.add(worldKeyOf(change.object));
      for (const runtime of runtimesOf(change)) queues.runtimes.add(runtime);
      if (change.object.status?.compute === undefined) wakeWaiting(mirrors, queues);
    }),
    mirrors.runtimes.subscribe((change) => {
      queues.runtimes.add(keyOf(change.object));
      if (movedDrain(change)) lookAtSessionsOf(mirrors, queues, change.object);
      if (!movedOffer(change)) return;
      for (const world of mirrors.worlds.list()) if (!world.status?.head) queues.worlds.add(keyOf(world));
      wakeWaiting(mirrors, queues);
    }),
  ];
  return () => {
    for (const leave of ways) leave();
  };
}

/** A cordon, its end, or a deletion. */
const movedDrain = (change: StoreChange<Runtime>): boolean =>
  change.kind !== "updated" ||
  JSON.stringify(drainOf(change.previous) ?? null) !== JSON.stringify(drainOf(change.object) ?? null);

function lookAtSessionsOf(mirrors: Mirrors, queues: Queues, runtime: Runtime): void {
  for (const sandbox of mirrors.sandboxes.list()) {
    if (sandbox.status?.compute?.runtime === runtime.metadata.name) queues.sandboxes.add(keyOf(sandbox));
  }
}

/** Sessions without compute may be waiting for a slot, a World or a Runtime. */
function wakeWaiting(mirrors: Mirrors, queues: Queues): void {
  for (const sandbox of mirrors.sandboxes.list()) {
    if (!sandbox.status?.compute && !sandbox.status?.closed) queues.sandboxes.add(keyOf(sandbox));
  }
}

/** A Sandbox came, went, or took or gave back compute. */
function movedCompute(change: StoreChange<Sandbox>): boolean {
  if (change.kind !== "updated") return true;
  return change.previous.status?.compute?.id !== change.object.status?.compute?.id;
}

/** It works no more on the operation that its World has a reservation of, which may be left over. */
function droppedReserved({ worlds }: Mirrors, change: StoreChange<Sandbox>): boolean {
  if (change.kind !== "updated") return false;
  const dropped = change.previous.status?.operation?.id;
  if (dropped === undefined || dropped === change.object.status?.operation?.id) return false;
  return worlds.get(worldKeyOf(change.object))?.status?.pending?.operation === dropped;
}

const runtimesOf = (change: StoreChange<Sandbox>): string[] => {
  const named = [change.object, ...(change.kind === "updated" ? [change.previous] : [])];
  return [...new Set(named.flatMap((sandbox) => sandbox.status?.compute?.runtime ?? []))];
};

/** What a Runtime offers changed, not only how much of it is used. */
function movedOffer(change: StoreChange<Runtime>): boolean {
  if (change.kind !== "updated") return true;
  return offerOf(change.previous) !== offerOf(change.object);
}

const offerOf = ({ metadata, status }: Runtime): string =>
  JSON.stringify([
    metadata.generation,
    status?.platform,
    status?.capabilities,
    status?.ociRuntimes,
    status?.hosts?.map((host) => [host.name, host.state]),
  ]);

/** What is asked of a World now: its spec, and what a person says by annotation. */
export function worldIntent(world: World | undefined): string | undefined {
  if (!world) return undefined;
  const { uid, generation, annotations = {} } = world.metadata;
  const said = Object.entries(annotations).filter(([key]) => key.startsWith("agentworlds.dev/"));
  return JSON.stringify([uid, generation, said.sort()]);
}

/**
 * What is asked of a Sandbox now (a stalled one is looked at again when it changes): its spec, its requests, and what the
 * World and the Runtimes offer it.
 */
export function sandboxIntent(mirrors: Mirrors, key: string): string | undefined {
  const sandbox = mirrors.sandboxes.get(key);
  if (!sandbox) return undefined;
  const { metadata, spec, status } = sandbox;
  const world = spec.world && mirrors.worlds.get(worldKeyOf(sandbox));
  return JSON.stringify([
    metadata.uid,
    metadata.generation,
    metadata.deletionTimestamp,
    metadata.annotations?.[SNAPSHOT_REQUESTED],
    status?.requests?.map((request) => [request.id, request.result === undefined]),
    world && [world.metadata.uid, world.metadata.generation, world.status?.head?.digest],
    mirrors.runtimes.list().map(offerOf),
  ]);
}
