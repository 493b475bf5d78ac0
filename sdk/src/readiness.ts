import type { Condition, Sandbox, World } from "@agentworlds/crds";

/** What an object's status says to somebody who waits for it to be Ready. */
export type Readiness =
  | { readonly kind: "Ready" }
  /** `heals`: by itself, or only by what somebody does elsewhere. */
  | {
      readonly kind: "Waiting";
      readonly reason: string;
      readonly message: string;
      readonly heals: "ByItself" | "BySomebody";
    }
  /** Asleep: a touch would wake it. */
  | { readonly kind: "Hibernated"; readonly message: string }
  /** It will not become Ready by waiting. */
  | { readonly kind: "Failed"; readonly reason: string; readonly message: string; readonly remediation: string };

/** Judges a Sandbox. `wake`: id of the touch that is to wake it. Gives no time, reads no clock. */
export function judgeSandbox(sandbox: Sandbox, wake?: string): Readiness {
  const { status } = sandbox;
  const find = (type: string) => conditionOf(sandbox, type);
  if (status.closed !== undefined) {
    const { version, digest } = status.closed;
    const left = digest === undefined ? "nothing was saved" : `it ended in version ${version} (${digest})`;
    return failed("Closed", `it is closed: ${left}`, "create another Sandbox, with another key");
  }
  if (sandbox.metadata.deletionTimestamp !== undefined) {
    return failed("Deleting", "it is being deleted", "create another Sandbox");
  }
  const ready = find("Ready");
  const isOpen = status.compute !== undefined && status.expiresAt !== undefined && !isEnding(sandbox);
  if (ready?.status === "True" && isOpen) return { kind: "Ready" };

  const stalled = find("Stalled");
  if (stalled?.status === "True") return failed(stalled.reason, stalled.message, CHANGE_THE_SPEC);
  const request = wake === undefined ? undefined : status.requests?.find((each) => each.id === wake);
  if (request !== undefined) {
    const { result } = request;
    if (result === undefined) return waits("Waking", "the touch is being worked on");
    if (result.outcome !== "Succeeded") {
      return failed(result.code ?? "WakeRefused", result.message ?? "it could not be woken", LOOK_AT_CONDITIONS);
    }
  }
  return asleep(sandbox) ?? waiting([find("Admitted"), ready], status.phase);
}

const CHANGE_THE_SPEC = "change what the message names: nothing is tried again before";
const LOOK_AT_CONDITIONS = "look at the Sandbox's conditions: kubectl describe sandboxes.agentworlds.dev";

const isEnding = ({ status }: Sandbox): boolean =>
  status.operation !== undefined && status.operation.verb !== "Snapshot";

/** No compute and none on its way. */
function asleep(sandbox: Sandbox): Readiness | undefined {
  if (sandbox.status.compute !== undefined) return undefined;
  for (const type of ["ComputeLost", "SnapshotFailed"] as const) {
    const lost = conditionOf(sandbox, type);
    if (lost?.status === "True") return failed(lost.reason, lost.message, LOOK_AT_CONDITIONS);
  }
  const hibernated = conditionOf(sandbox, "Hibernated");
  return hibernated?.status === "True" ? { kind: "Hibernated", message: hibernated.message } : undefined;
}

/** Judges a World, which never sleeps. */
export function judgeWorld(world: World): Exclude<Readiness, { kind: "Hibernated" }> {
  const find = (type: string) => conditionOf(world, type);
  if (world.metadata.deletionTimestamp !== undefined) {
    return failed("Deleting", "it is being deleted", "create another World");
  }
  const ready = find("Ready");
  if (ready?.status === "True") return { kind: "Ready" };
  const stalled = find("Stalled");
  if (stalled?.status === "True") return failed(stalled.reason, stalled.message, CHANGE_THE_SPEC);
  return waiting([ready], undefined);
}

function waiting(
  conditions: readonly (Condition | undefined)[],
  phase: string | undefined,
): Extract<Readiness, { kind: "Waiting" }> {
  const telling = conditions.find((condition) => condition !== undefined && condition.status !== "True");
  if (telling !== undefined) return waits(telling.reason, telling.message);
  return waits(phase ?? "Pending", "no controller has said anything yet");
}

/** Reasons that stay until a person or another program acts; a held World, a full Runtime or a silent host are not among them. */
export const HEALED_BY_SOMEBODY: ReadonlySet<string> = new Set([
  "WorldNotFound",
  "WorldDeleting",
  "RuntimeNotFound",
  "RuntimeDeleting",
  "RuntimeNotAllowed",
  "RuntimeCordoned",
  "NoDefaultRuntime",
  "SeveralDefaultRuntimes",
  "HostRefused",
  "RegistryRefused",
  "RegistryMoved",
]);

const waits = (reason: string, message: string) =>
  ({ kind: "Waiting", reason, message, heals: HEALED_BY_SOMEBODY.has(reason) ? "BySomebody" : "ByItself" }) as const;

/** The condition, unless it speaks of an older spec. */
function conditionOf(object: World | Sandbox, type: string): Condition | undefined {
  const found = object.status.conditions?.find((condition) => condition.type === type);
  const isOld = (found?.observedGeneration ?? Number.POSITIVE_INFINITY) < (object.metadata.generation ?? 0);
  return isOld ? undefined : found;
}

const failed = (reason: string, message: string, remediation: string) =>
  ({ kind: "Failed", reason, message, remediation }) as const;
