/**
 * How a session stands while it is captured. A running one runs the World's hook, has its files brought to the disk and is
 * frozen, in this order. Where the host cannot freeze, a session that ends is stopped instead: nothing may be worked in it
 * after the capture, because its container goes with the version. Of one that goes on the version says `Fuzzy` instead of
 * pretending. One that has ended by itself stands still: what its processes had not written is lost, and the version says how
 * it ended.
 */
import { CONSISTENCIES, type Consistency, type Recovery } from "@agentworlds/crds";
import type { ObservedCompute, RuntimeDriver } from "../runtime/contract.ts";
import { isRuntimeError } from "../runtime/errors.ts";
import { type HookResult, runHook } from "./hook.ts";
import { currentOperation, OperationLost, recordStage } from "./operation.ts";
import type { SandboxScope } from "./scope.ts";

/** A host that can freeze may refuse once; after this many attempts the work is saved as it stands. */
const MOST_FREEZE_ATTEMPTS = 3;

/** Brings the session to a stand and writes down how it stands: the operation is `Frozen`. Repeatable. */
export async function quiesce(scope: SandboxScope, driver: RuntimeDriver): Promise<void> {
  // An earlier attempt did all of it, and nothing has moved since.
  if (currentOperation(scope).stage === "Frozen" && scope.observed?.state === "Frozen") return;
  await recordStage(scope, { stage: "Frozen", ...(await standStill(scope, driver)) });
}

interface Stand {
  readonly consistency: Consistency;
  readonly recovered?: Recovery;
  readonly hook?: HookResult;
}

async function standStill(scope: SandboxScope, driver: RuntimeDriver): Promise<Stand> {
  const id = scope.sandbox.status?.compute?.id;
  if (id === undefined) throw new OperationLost("nothing to capture from");
  if (!isAlive(scope.observed)) return standOfDead(scope);
  try {
    return await standOfLive(scope, { driver, id });
  } catch (error) {
    if (!isRuntimeError(error, "ComputeNotRunning")) throw error;
    // It ended between the look and the freeze.
    scope.observed = await driver.inspect(id, scope.context.signal);
    if (scope.observed.state !== "Exited") throw error;
    return standOfDead(scope);
  }
}

async function standOfLive(scope: SandboxScope, container: Container): Promise<Stand> {
  const { driver, id } = container;
  // Frozen by an operator that ended before it could say so: nothing can be run in it as it is.
  if (scope.observed?.state === "Frozen") await driver.thaw(id, scope.context.signal);
  const hook = await runHook(scope, container);
  // Not a warning: what a host did not bring to its disk may not be what a capture reads.
  await driver.sync(id, scope.context.signal);
  return { consistency: await freeze(scope, container), ...(hook === undefined ? {} : { hook }) };
}

interface Container {
  readonly driver: RuntimeDriver;
  readonly id: string;
}

export const isAlive = (observed: ObservedCompute | undefined): boolean =>
  observed?.state === "Running" || observed?.state === "Frozen";

async function freeze(scope: SandboxScope, { driver, id }: Container): Promise<Consistency> {
  if (!canFreeze(scope)) return standUnfrozen(scope, { driver, id });
  try {
    await driver.freeze(id, scope.context.signal);
    return CONSISTENCIES.Frozen;
  } catch (error) {
    const attempt = currentOperation(scope).attempts + 1;
    if (!isRuntimeError(error, "HostRefused") || attempt < MOST_FREEZE_ATTEMPTS) throw error;
    scope.dependencies.log.warn({ id, err: error }, "the host does not freeze this container");
    return standUnfrozen(scope, { driver, id });
  }
}

/** That it is stopped by us is written down first: a retry must not take it for a container that ended by itself. */
async function standUnfrozen(scope: SandboxScope, { driver, id }: Container): Promise<Consistency> {
  if (currentOperation(scope).verb === "Snapshot") return CONSISTENCIES.Fuzzy;
  await recordStage(scope, { consistency: CONSISTENCIES.Crash });
  await driver.stop(id, scope.context.signal);
  scope.observed = await driver.inspect(id, scope.context.signal);
  return CONSISTENCIES.Crash;
}

/** What is not known of a host is tried. */
function canFreeze({ sandbox, dependencies }: SandboxScope): boolean {
  const { runtime = "", host } = sandbox.status?.compute ?? {};
  const known = dependencies.runtimes.get(runtime)?.status?.hosts?.find(({ name }) => name === host);
  return known?.capabilities === undefined || known.capabilities.includes("freeze");
}

function standOfDead(scope: SandboxScope): Stand {
  const { observed } = scope;
  const consistency = CONSISTENCIES.Crash;
  const { consistency: before, recovered } = currentOperation(scope);
  const wasStopped = before === consistency && recovered === undefined;
  return observed?.state === "Exited" && !wasStopped
    ? { consistency, recovered: recoveryOf(observed) }
    : { consistency };
}

/**
 * The exit code is told and decides nothing: a container's PID 1 never ends by itself, and after a crash of the host an engine
 * may say 0.
 */
const recoveryOf = (observed: Extract<ObservedCompute, { state: "Exited" }>): Recovery => ({
  reason: observed.outOfMemory ? "OutOfMemory" : "ContainerExited",
  exitCode: observed.exitCode,
});
