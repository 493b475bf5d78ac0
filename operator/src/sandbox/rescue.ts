/**
 * When a snapshot cannot be published any more (World gone, deletion overdue), the stopped container is kept and written down
 * where it survives the Sandbox and its namespace: on the World and on the Runtime (DESIGN §4.3).
 */
import { clip, LIMITS, type RuntimeRescue } from "@agentworlds/crds";
import { isNotFound } from "../kube/errors.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { WorldGone } from "../world/status-writer.ts";
import { isoNow, recordProgress } from "./record.ts";
import type { SandboxScope } from "./scope.ts";

/** A deletion is never blocked for ever by a snapshot that cannot be published. */
export function isDeletionOverdue(scope: SandboxScope): boolean {
  const since = scope.sandbox.metadata.deletionTimestamp;
  if (since === undefined) return false;
  return scope.context.clock.now() - Date.parse(since) >= scope.dependencies.limits.deletionDeadlineMs;
}

export async function rescue(scope: SandboxScope, cause: string): Promise<void> {
  const { metadata, spec, status } = scope.sandbox;
  const { compute } = status ?? {};
  if (!compute) return;
  await stopIfReachable(scope, compute.id);
  const facts = {
    operation: status?.operation?.id ?? `lost-${metadata.uid}-${compute.boot}`,
    sandbox: { name: metadata.name, uid: metadata.uid },
    host: compute.host,
    computeId: compute.id,
    ...(status?.base ? { base: status.base.digest } : {}),
    reason: scope.world ? "SnapshotFailed" : "WorldGone",
    message: clip(cause, LIMITS.message),
    since: isoNow(scope),
  };
  await recordOnRuntime(scope, compute.runtime, {
    ...facts,
    namespace: metadata.namespace ?? "",
    ...(spec.world ? { world: spec.world.name } : {}),
  });
  await recordOnWorld(scope, { ...facts, runtime: compute.runtime });
  await recordProgress(scope, () => ({
    compute: null,
    operation: null,
    expiresAt: null,
    lifetimeEndsAt: null,
    lastEnding: {
      boot: compute.boot,
      reason: facts.reason,
      outcome: "Rescued",
      message: clip(
        `the stopped container is kept on ${compute.runtime}/${compute.host} as ${compute.id}: ${cause}`,
        LIMITS.message,
      ),
      at: isoNow(scope),
    },
  }));
  scope.goal = { kind: "asleep" };
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Warning",
      reason: "Rescued",
      action: "Rescue",
      message: `unpublished work is kept on ${compute.runtime}/${compute.host} as ${compute.id}: ${cause}`,
    },
  );
}

/** A host that does not answer keeps the container anyway. */
async function stopIfReachable(scope: SandboxScope, computeId: string): Promise<void> {
  try {
    await scope.driver?.stop(computeId, scope.context.signal);
  } catch (error) {
    if (!(error instanceof RuntimeError)) throw error;
    scope.dependencies.log.warn({ computeId, error: error.message }, "the container to rescue could not be stopped");
  }
}

async function recordOnRuntime(scope: SandboxScope, runtime: string, rescued: RuntimeRescue): Promise<void> {
  try {
    await scope.dependencies.runtimeRescues.record(runtime, rescued, scope.context.signal);
  } catch (error) {
    // A Runtime that is gone can keep no record; the World's stays, and the Event.
    if (!isNotFound(error)) throw error;
    scope.dependencies.log.warn({ ...rescued }, "the Runtime of a rescue does not exist any more");
  }
}

async function recordOnWorld(
  scope: SandboxScope,
  rescued: Parameters<SandboxScope["dependencies"]["worldWriter"]["recordRescue"]>[1],
): Promise<void> {
  const { world } = scope;
  if (!world) return;
  const ref = { namespace: world.metadata.namespace ?? "", name: world.metadata.name, uid: world.metadata.uid };
  try {
    await scope.dependencies.worldWriter.recordRescue(ref, rescued, scope.context.signal);
  } catch (error) {
    // The Runtime's record is what outlives a World that is gone.
    if (!(error instanceof WorldGone)) throw error;
  }
}
