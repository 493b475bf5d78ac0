/** The host that keeps a rescue: reached by the record alone, believed only if it is the engine that made the container. */
import type { WorldRescue } from "@agentworlds/crds";
import { Terminal } from "../../reconciler/policy.ts";
import { RegistryError } from "../../registry/errors.ts";
import type { RuntimeDriver } from "../../runtime/contract.ts";
import { RuntimeError } from "../../runtime/errors.ts";
import { isOfItsSession } from "../../runtime/rescues.ts";
import type { CaptureOwner } from "../../snapshot/contract.ts";
import { repositoryInRegistry } from "../own-repository.ts";
import { dropPushedCapture, isVersionOf } from "../pushed-capture.ts";
import type { WorldScope } from "../scope.ts";

/** Neither the container nor a capture of it is on its host any more. */
export class WorkGone extends Error {
  override readonly name = "WorkGone";
}

/** The record names what is not of a session of this World: somebody wrote it by hand. Nothing on the host is touched for it. */
export class ForeignRescue extends Error {
  override readonly name = "ForeignRescue";
}

/** Throws `ForeignRescue`; and `HostUnreachable`, also for another engine at the host's address: what that one does not have is not lost. */
export async function hostOf(scope: WorldScope, rescue: WorldRescue): Promise<RuntimeDriver> {
  const { dependencies, context } = scope;
  const { runtime, host, engine } = rescue;
  const driver = await dependencies.driverFor(runtime, host, context.signal);
  const found = engine === undefined ? undefined : await driver.identity(context.signal);
  if (found !== engine) {
    throw new RuntimeError("HostUnreachable", `${runtime}/${host} is another engine now (${found}, not ${engine})`);
  }
  const owner = await driver.ownerOf(rescue.computeId, context.signal);
  if (isOfItsSession(rescue, { namespace: scope.ref.namespace, owner }) && !isOfAnotherWorld(scope, rescue)) {
    return driver;
  }
  throw new ForeignRescue(
    `ForeignCompute: ${rescue.computeId} on ${runtime}/${host} is not what a session ${rescue.sandbox.name} (${rescue.sandbox.uid}) of this World left behind; it is not touched`,
  );
}

/** Its Sandbox is there, and `spec.world` never changes. */
const isOfAnotherWorld = ({ dependencies, ref }: WorldScope, { sandbox }: WorldRescue): boolean =>
  dependencies.sandboxes
    .list()
    .some(
      ({ metadata, spec }) =>
        metadata.uid === sandbox.uid && (metadata.namespace !== ref.namespace || spec.world?.name !== ref.name),
    );

/** Whose the capture of a rescue has to be. */
export const captureOwner = ({ dependencies, ref }: WorldScope, { sandbox }: WorldRescue): CaptureOwner => ({
  installation: dependencies.installation,
  namespace: ref.namespace,
  sandboxUid: sandbox.uid,
});

/**
 * The work stands still and is captured. Repeatable. Throws `WorkGone` only on proof: a container that its own engine does not
 * have, or that no host of any Runtime has, and no capture.
 */
export async function secureWork(scope: WorldScope, rescue: WorldRescue, driver: RuntimeDriver): Promise<void> {
  const { snapshots, writer } = scope.dependencies;
  const { signal } = scope.context;
  const { operation, computeId } = rescue;
  const owner = captureOwner(scope, rescue);
  const { state } = await driver.inspect(computeId, signal);
  if (state === "Running") {
    // Its host did not answer when the session ended, and it ran on: what was captured before is not the last of it.
    await writer.changeRescue(scope.ref, { operation, fields: { consistency: "Crash" } }, signal);
    await snapshots.forgetCapture({ operation, driver, owner }, signal);
    // Nor is what was pushed before: a host that falls silent now must not make a version of that.
    await dropPushedCapture(scope, operation);
  }
  if (state === "Running" || state === "Frozen") await driver.stop(computeId, signal);
  if (await snapshots.isCaptured({ operation, driver, owner }, signal)) return;
  if (state === "Absent") return demandElsewhere(scope, rescue);
  await snapshots.capture({ operation, driver, computeId, owner, repository: repositoryInRegistry(scope) }, signal);
}

async function demandElsewhere(scope: WorldScope, rescue: WorldRescue): Promise<never> {
  const { dependencies, context } = scope;
  const { runtime, host, computeId, engine, sandbox } = rescue;
  const isProven =
    engine !== undefined || (await dependencies.computeOf({ sandboxUid: sandbox.uid }, context.signal)) === "none";
  const message = `neither container ${computeId} nor a capture of it is on ${runtime}/${host}`;
  // The connection may have led to another engine since it was asked who it is.
  if (engine !== undefined) await hostOf(scope, rescue);
  if (isProven) throw new WorkGone(message);
  throw new RuntimeError("HostUnreachable", `${message}, and it is not proven that no other host has one`);
}

/**
 * Container, capture and the Runtime's record go; the World's record stays for the caller to end. Repeatable. A capture's tag
 * that the registry does not give up holds nobody up: it goes with the repository.
 */
export async function removeWork(scope: WorldScope, rescue: WorldRescue, driver: RuntimeDriver): Promise<void> {
  const { runtimeRescues } = scope.dependencies;
  const { signal } = scope.context;
  const { computeId, runtime, snapshot } = rescue;
  const owner = captureOwner(scope, rescue);
  await driver.remove(computeId, signal);
  for (const operation of [rescue.operation, ...(snapshot ? [snapshot.operation] : [])]) {
    await forgetCaptureOf(scope, { operation, driver, owner });
  }
  await runtimeRescues.forget(runtime, rescue, signal);
}

async function forgetCaptureOf(
  scope: WorldScope,
  capture: { readonly operation: string; readonly driver: RuntimeDriver; readonly owner: CaptureOwner },
): Promise<void> {
  const { snapshots, writer, log } = scope.dependencies;
  const { signal } = scope.context;
  try {
    const repository = repositoryInRegistry(scope);
    await snapshots.forget({ ...capture, repository, isVersion: isVersionOf(writer, scope.ref, signal) }, signal);
  } catch (error) {
    const isMoved = error instanceof Terminal && error.reason === "RegistryMoved";
    if (!(error instanceof RegistryError) && !isMoved) throw error;
    log.warn(
      { err: error, operation: capture.operation },
      "the tag of a capture that nobody needs could not be removed",
    );
  }
}
