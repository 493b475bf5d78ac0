import type { CausedBy, Runtime, Sandbox, World } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import type { Log } from "../reconciler/log.ts";
import type { ReconcileContext } from "../reconciler/reconcile.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import type { ImageSources } from "../registry/sources.ts";
import type { WorldRef, WorldStatusWriter } from "./status-writer.ts";

/** What a controller reads from its caches. */
export interface ObjectReader<T> {
  get(key: string): T | undefined;
  list(): readonly T[];
}

/** Emits a Kubernetes Event whose reason equals a condition's reason. Never fails the pass. */
export type Announce = (about: { kind: string; object: World | Sandbox | Runtime }, event: AnnouncedEvent) => void;

export interface AnnouncedEvent {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  /** What the operator did or tried, PascalCase. */
  readonly action: string;
  readonly message: string;
  /** Who caused what is told (DESIGN §4.10). Absent: the object's creator. */
  readonly causedBy?: CausedBy;
}

/** What the World controller works with. */
export interface WorldDependencies {
  readonly installation: string;
  readonly writer: WorldStatusWriter;
  readonly worlds: ObjectReader<World>;
  readonly sandboxes: ObjectReader<Sandbox>;
  readonly runtimes: ObjectReader<Runtime>;
  readonly namespaces: ResourceClient<NamespaceObject>;
  readonly registry: InstallationRegistry;
  readonly sources: ImageSources;
  readonly announce: Announce;
  readonly log: Log;
}

export interface NamespaceObject {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
}

/** Everything one pass over a World knows. Filled front to back; a phase relies only on what earlier phases set. */
export interface WorldScope {
  readonly dependencies: WorldDependencies;
  readonly context: ReconcileContext;
  readonly ref: WorldRef;
  /** The object as last read or written in this pass. Replaced, never mutated. */
  world: World;
  /** Set by `retain`: what stays beyond the limit, for the log. */
  retained?: readonly { readonly version: number; readonly reason: string }[];
  /** Set by `repair`: why the head could not be proven to be in the registry. */
  headProblem?: string;
}
