import type { CausedBy, LostWork, Runtime, Sandbox, World } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import type { Log } from "../reconciler/log.ts";
import type { ReconcileContext } from "../reconciler/reconcile.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import type { ImageSources } from "../registry/sources.ts";
import type { RuntimeDriver } from "../runtime/contract.ts";
import type { RuntimeRescues } from "../runtime/rescues.ts";
import type { SnapshotMechanism } from "../snapshot/contract.ts";
import type { SeenInIndex } from "./lineage-index.ts";
import type { WorldRef, WorldStatusWriter } from "./status-writer.ts";
import type { LineageFindings } from "./verification.ts";

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
  /** For reads that must be fresh: before a hold is ended, before a manifest is deleted. */
  readonly sandboxClient: ResourceClient<Sandbox>;
  readonly runtimes: ObjectReader<Runtime>;
  readonly namespaces: ResourceClient<NamespaceObject>;
  readonly registry: InstallationRegistry;
  readonly sources: ImageSources;
  readonly computeOf: ComputeOf;
  /** What the periodic verification found of the World with this UID; undefined before its first turn. */
  readonly findingsOf: (worldUid: string) => LineageFindings | undefined;
  readonly driverFor: DriverFor;
  readonly snapshots: SnapshotMechanism;
  readonly runtimeRescues: RuntimeRescues;
  readonly metrics: RescueMetrics;
  readonly announce: Announce;
  readonly log: Log;
  readonly limits: WorldLimits;
}

/**
 * Whether any host has a container of a Sandbox, or a capture of one by an operation that is not settled. `none` only when every
 * host of every Runtime was asked and has none; `unknown` when one could not be asked and none of the others has any.
 */
export type ComputeOf = (
  wanted: { readonly sandboxUid: string; readonly settled?: ReadonlySet<string> },
  signal: AbortSignal,
) => Promise<"none" | "some" | "unknown">;

/** The driver of one host of one Runtime. Throws `HostUnreachable`. */
export type DriverFor = (runtime: string, host: string, signal: AbortSignal) => Promise<RuntimeDriver>;

/** What is measured of rescues. Implementations do not throw. */
export interface RescueMetrics {
  /** One attempt to publish a rescue ended. */
  rescueRetried(outcome: "published" | "failed"): void;
  /** A rescue ended in no version. */
  workLost(cause: LostWork["cause"]): void;
}

/** Bounds of the installation, in milliseconds. */
export interface WorldLimits {
  /** A deletion goes on after this although the registry does not delete the versions. Default 10 min. */
  readonly deletionDeadlineMs: number;
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
  /** Replaced once: by what is left of a pass that was cut off. */
  context: ReconcileContext;
  readonly ref: WorldRef;
  readonly seenInIndex: SeenInIndex;
  /** The object as last read or written in this pass. Replaced, never mutated. */
  world: World;
  /** Set by `endLostHold`: the holder's Sandbox is gone, and why the hold stands all the same. */
  lostHold?: Finding;
  /** Set by `lookBeyondHead`: the repository's tags as just listed; absent when they could not be. */
  tags?: readonly string[];
  /** Set by `tendRescues`: milliseconds until a rescue takes its next step. */
  rescueDueMs?: number;
  /** Set by `repairTags`: what was found of head's manifest. */
  head?: HeadFinding;
  /** Set by `repairTags`, `keepEntered` and `retain`: what a person should know and the next pass looks at again. */
  problems: readonly WorldProblem[];
  /** Set by `keepFinalizer`: this controller has nothing more to do with the World that is being deleted. */
  ended?: true;
}

/** Reason and message as a condition shows them. */
export interface Finding {
  /** PascalCase constant. */
  readonly reason: string;
  readonly message: string;
}

/** `False`: the registry says that head cannot be booted. `Unknown`: the registry cannot be asked. */
export interface HeadFinding extends Finding {
  readonly status: "True" | "False" | "Unknown";
}

/** A condition that is present only while it is true. */
export interface WorldProblem extends Finding {
  readonly type:
    | "TagTaken"
    | "VersionsMissing"
    | "VersionsDamaged"
    | "TagsNotRepaired"
    | "PrunedNotDeleted"
    | "LineageNotIndexed";
}
