import type { Sandbox } from "@agentworlds/crds";
import { type SessionState, sessionState } from "../runtime/session-state.ts";
import { GROUP_VERSION } from "./discovery.ts";
import { Failure } from "./failure.ts";

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
      if (sandbox.spec.mode === "Hibernated") return modeHibernated(sandbox);
      return (
        computeLost(sandbox) ??
        new Failure({
          status: 409,
          code: state.kind,
          message: `Sandbox ${name} is ${state.kind === "Hibernated" ? "hibernated" : "hibernating"}`,
          remediation: "touch it to wake it, wait for Ready and try again",
        })
      );
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

/** What it had done since its last version is gone, or on a host that is: a touch begins without it, which nobody may find out later. */
function computeLost(sandbox: Sandbox): Failure | undefined {
  const lost = sandbox.status.conditions?.find(({ type, status }) => type === "ComputeLost" && status === "True");
  if (lost === undefined) return undefined;
  return new Failure({
    status: 409,
    code: "ComputeLost",
    message: `Sandbox ${sandbox.metadata.name} does not run: ${lost.message}`,
    remediation: "touch it to begin anew from the World's newest version, wait for Ready and do the lost work again",
  });
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
    remediation: `create another Sandbox${sandbox.spec.world === undefined ? "" : " of the same World"}`,
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
