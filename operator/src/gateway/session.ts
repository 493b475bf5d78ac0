import type { Sandbox, SandboxCompute } from "@agentworlds/crds";
import { namesForeignCompute } from "../runtime/open-boot.ts";
import { GROUP_VERSION } from "./discovery.ts";
import { Failure } from "./failure.ts";

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

/** From what is written alone; the gateway asks no container host what state a session is in. */
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

/** Why a session that is not Running cannot be worked in, and what to do. */
export function notRunning(sandbox: Sandbox, state: Exclude<SessionState, { kind: "Running" }>): Failure {
  const name = sandbox.metadata.name;
  switch (state.kind) {
    case "Closed":
      return closed(sandbox);
    case "Closing":
      return new Failure({
        status: 409,
        code: "Closing",
        message: `Sandbox ${name} is being closed`,
        remediation: "create another Sandbox of the same World; it continues from the version this one ends in",
      });
    case "Hibernating":
    case "Hibernated":
      return sandbox.spec.mode === "Hibernated"
        ? modeHibernated(sandbox)
        : new Failure({
            status: 409,
            code: state.kind,
            message: `Sandbox ${name} is ${state.kind === "Hibernated" ? "hibernated" : "hibernating"}`,
            remediation: "touch it to wake it, wait for Ready and try again",
          });
    case "ForeignCompute":
      return new Failure({
        status: 409,
        code: "ForeignCompute",
        message: `status of Sandbox ${name} names a container that is not its own (${sandbox.status.compute?.id})`,
        remediation:
          "the controller looks for the right one: wait for Ready and try again; find out who writes sandboxes/status",
        retryAfterSeconds: 2,
      });
    case "Starting":
      return new Failure({
        status: 409,
        code: "NotReady",
        message: `Sandbox ${name} is not Ready yet`,
        remediation: `wait: kubectl wait --for=condition=Ready sandboxes.agentworlds.dev/${name}`,
        retryAfterSeconds: 1,
      });
  }
}

/** A touch, or work, under `spec.mode: Hibernated`: the owner's word outranks activity. */
export const modeHibernated = (sandbox: Sandbox): Failure =>
  new Failure({
    status: 409,
    code: "Hibernated",
    message: `spec.mode of Sandbox ${sandbox.metadata.name} is Hibernated, which no touch overrides`,
    remediation: "set spec.mode to Running, wait for Ready and try again",
  });

/** The end is told with the version it left, so that a lost answer can be read again. */
export function closed(sandbox: Sandbox): Failure {
  const { version, digest } = sandbox.status.closed ?? {};
  const left =
    version === undefined ? "nothing was saved" : `it ended in version ${version}${digest ? ` (${digest})` : ""}`;
  return new Failure({
    status: 410,
    code: "Closed",
    message: `Sandbox ${sandbox.metadata.name} is closed: ${left}`,
    remediation: "create another Sandbox of the same World",
  });
}

/** The answer to GET on the Sandbox itself: what a client that holds only session rights needs to know. */
export function sessionView(sandbox: Sandbox): Record<string, unknown> {
  const { status, metadata } = sandbox;
  return {
    kind: "SandboxSession",
    apiVersion: GROUP_VERSION,
    metadata: {
      name: metadata.name,
      namespace: metadata.namespace,
      uid: metadata.uid,
      resourceVersion: metadata.resourceVersion,
      creationTimestamp: metadata.creationTimestamp,
    },
    phase: status.phase,
    state: sessionState(sandbox).kind,
    expiresAt: status.expiresAt,
    lifetimeEndsAt: status.lifetimeEndsAt,
    ...(status.operation === undefined
      ? {}
      : { operation: { id: status.operation.id, verb: status.operation.verb, stage: status.operation.stage } }),
    ...(status.compute === undefined
      ? {}
      : { compute: { runtime: status.compute.runtime, host: status.compute.host, boot: status.compute.boot } }),
    ...(status.closed === undefined ? {} : { closed: status.closed }),
  };
}
