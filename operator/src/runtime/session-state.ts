/** In what state a session is, by what is written alone: for gateways, which ask no container host, and for what is put to the controller. */
import type { Sandbox, SandboxCompute } from "@agentworlds/crds";
import { namesForeignCompute } from "./open-boot.ts";

/** What a Sandbox is to somebody who wants to work in it now. Times are epoch milliseconds. */
export type SessionState =
  | {
      readonly kind: "Running";
      readonly compute: SandboxCompute;
      readonly expiresAt: number;
      readonly lifetimeEndsAt: number;
    }
  /** Wanted, but not Ready yet: queueing, or booting. Its clock has not started. */
  | { readonly kind: "Starting" }
  /** Status names a container that is not this Sandbox's: nobody is let into it. */
  | { readonly kind: "ForeignCompute" }
  | { readonly kind: "Hibernating" }
  | { readonly kind: "Hibernated" }
  /** Being closed or deleted: there is no way back. */
  | { readonly kind: "Closing" }
  | { readonly kind: "Closed" };

export function sessionState(sandbox: Sandbox): SessionState {
  const { status } = sandbox;
  if (status.closed !== undefined) return { kind: "Closed" };
  if (sandbox.metadata.deletionTimestamp !== undefined || status.operation?.verb === "Close")
    return { kind: "Closing" };
  if (namesForeignCompute(sandbox)) return { kind: "ForeignCompute" };
  if (status.operation?.verb === "Hibernate") return { kind: "Hibernating" };
  if (status.compute === undefined) {
    const everBooted = (status.boot ?? 0) > 0;
    return everBooted || sandbox.spec.mode === "Hibernated" ? { kind: "Hibernated" } : { kind: "Starting" };
  }
  if (status.expiresAt === undefined) return { kind: "Starting" };
  const expiresAt = Date.parse(status.expiresAt);
  return {
    kind: "Running",
    compute: status.compute,
    expiresAt,
    // The controller sets both at Ready. Without a lifetime the deadline is the one end that is known.
    lifetimeEndsAt: status.lifetimeEndsAt === undefined ? expiresAt : Date.parse(status.lifetimeEndsAt),
  };
}
