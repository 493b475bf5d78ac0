import type { Runtime, Sandbox, World } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import type { Log } from "../reconciler/log.ts";
import type { RuntimeDriver } from "./contract.ts";
import type { RuntimeRescues } from "./rescues.ts";

/** What a sweep of one host works with. Every object is read afresh: a cache makes orphans of what is younger. */
export interface SweepContext {
  readonly runtime: Runtime;
  readonly host: string;
  readonly driver: RuntimeDriver;
  readonly installation: string;
  readonly sandboxes: ResourceClient<Sandbox>;
  readonly worlds: ResourceClient<World>;
  readonly runtimes: ResourceClient<Runtime>;
  readonly rescues: RuntimeRescues;
  /** Epoch milliseconds. */
  readonly now: number;
  readonly log: Log;
  readonly signal: AbortSignal;
}
