import type { Sandbox, World } from "@agentworlds/crds";
import type { Objects } from "./objects.ts";
import type { Transport } from "./transport.ts";

/** A client whose configuration was read. */
export interface Connected {
  /** Of calls that name none. */
  readonly namespace: string;
  readonly sandboxes: Objects<Sandbox>;
  readonly worlds: Objects<World>;
  /** To the sessions API, through kube-apiserver or directly. */
  readonly sessions: Transport;
}
