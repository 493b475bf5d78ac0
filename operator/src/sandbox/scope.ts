import type { CausedBy, Runtime, Sandbox, World } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import type { Log } from "../reconciler/log.ts";
import type { ReconcileContext } from "../reconciler/reconcile.ts";
import type { InstallationRegistry } from "../registry/installation.ts";
import type { ImageSources } from "../registry/sources.ts";
import type { ObservedCompute, RuntimeDriver } from "../runtime/contract.ts";
import type { RuntimeRescues } from "../runtime/rescues.ts";
import type { ComputeSearch } from "../runtime/search.ts";
import type { SnapshotMechanism } from "../snapshot/contract.ts";
import type { Announce, NamespaceObject, ObjectReader } from "../world/scope.ts";
import type { WorldStatusWriter } from "../world/status-writer.ts";
import type { AdmissionDesk } from "./admission.ts";
import type { SessionGoal } from "./judge.ts";

/** What the Sandbox controller works with. */
export interface SandboxDependencies {
  readonly installation: string;
  readonly sandboxes: ObjectReader<Sandbox>;
  readonly sandboxClient: ResourceClient<Sandbox>;
  readonly worlds: ObjectReader<World>;
  readonly worldWriter: WorldStatusWriter;
  readonly runtimes: ObjectReader<Runtime>;
  readonly runtimeRescues: RuntimeRescues;
  readonly namespaces: ResourceClient<NamespaceObject>;
  /** The driver of one host of one Runtime. Throws `HostUnreachable`, or `Waiting` when the Runtime is gone. */
  readonly driverFor: (runtime: string, host: string, signal: AbortSignal) => Promise<RuntimeDriver>;
  /** Asks the hosts what is left of a Sandbox, for when its status does not say. */
  readonly search: ComputeSearch;
  /** The environment of the session's commands. Throws `EnvironmentIncomplete`. */
  readonly environmentOf: (sandbox: Sandbox, signal: AbortSignal) => Promise<Readonly<Record<string, string>>>;
  readonly registry: InstallationRegistry;
  readonly sources: ImageSources;
  readonly snapshots: SnapshotMechanism;
  readonly admission: AdmissionDesk;
  readonly announce: Announce;
  readonly log: Log;
  readonly limits: SandboxLimits;
}

/** Bounds of the installation, in milliseconds. */
export interface SandboxLimits {
  /** A snapshot that keeps failing lets a deletion go on after this, with the work kept on its host. Default 10 min. */
  readonly deletionDeadlineMs: number;
  /** An ending that keeps failing becomes a rescue after this. Default 10 min. */
  readonly rescueAfterMs: number;
  /** A boot that is not Ready after this is given up, and tried again after a pause. Default 15 min. */
  readonly bootDeadlineMs: number;
}

/** Everything one pass over a Sandbox knows. Filled front to back; a phase relies only on what earlier phases set. */
export interface SandboxScope {
  readonly dependencies: SandboxDependencies;
  /** Replaced once: by what is left of a pass that was cut off. */
  context: ReconcileContext;
  /** The object as last read or written in this pass. Replaced by every write, never mutated. */
  sandbox: Sandbox;
  /** Who made the Sandbox, from the stamp of admission. */
  readonly createdBy: CausedBy;
  /** Set by `resolveWorld`: the World as cached; absent for a throwaway image, or when it is gone or replaced. */
  world?: World;
  /** Set by `resolveWorld`: the World is being deleted, is gone, or was replaced by another of its name. */
  worldEnding: boolean;
  /** Set by `resolveWorld`: no version may come of this session (throwaway image, or pinned below head). */
  savesNothing: boolean;
  /** Set by `observe`: the driver of the host the session runs on. */
  driver?: RuntimeDriver;
  /** Set by `observe`, from inspection, never from memory. */
  observed?: ObservedCompute;
  /** Set by `observe`: the host could not be asked. */
  hostProblem?: string;
  /** Set by `observe`, beside `hostProblem`: another engine answers at the host's address. */
  isOtherEngine?: true;
  /** Set by `judge`. */
  goal: SessionGoal;
  /** Set by `admit` before it asks for the World: from then on this Sandbox may be its holder. */
  tookHold?: boolean;
  /** Set by `admit` when it has added the finalizer: there was no container, named or not, when it did. */
  addedFinalizer?: boolean;
}
