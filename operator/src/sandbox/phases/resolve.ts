/** Facts before decisions: which World, which host, what is true of the container now, and so what the session wants. */
import type { VersionPointer, World } from "@agentworlds/crds";
import { Waiting } from "../../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import { RuntimeError } from "../../runtime/errors.ts";
import { hostLostAt } from "../../runtime/host-loss.ts";
import { WorldGone, type WorldRef } from "../../world/status-writer.ts";
import { wasFirstBoot } from "../boot-limit.ts";
import { isFull, layersOf } from "../boot-source.ts";
import { drainOf } from "../drain.ts";
import { judgeSession } from "../judge.ts";
import type { SandboxScope } from "../scope.ts";

/** The World by name; by UID once the session has booted from it. */
export async function resolveWorld(scope: SandboxScope): Promise<PhaseResult> {
  const { spec, status, metadata } = scope.sandbox;
  scope.savesNothing = spec.world === undefined;
  if (!spec.world) return CONTINUE;
  const cached = scope.dependencies.worlds.get(`${metadata.namespace}/${spec.world.name}`);
  const known = status?.world?.uid;
  const isSame = cached !== undefined && (known === undefined || known === cached.metadata.uid);
  const ref = { namespace: metadata.namespace ?? "", name: spec.world.name };
  const world = isSame || known === undefined ? cached : await readKnown(scope, { ...ref, uid: known });
  if (world) scope.world = world;
  scope.savesNothing = await mayNotPublish(scope, ref);
  scope.worldEnding = known !== undefined && (!world || world.metadata.deletionTimestamp !== undefined);
  return CONTINUE;
}

/**
 * Decided at the boot and written down: the cache may lag behind a version that this very session has published. What is written
 * is believed only of a session on a full version, and of one that can be below head: the first boot of one that names its
 * version. When in doubt it publishes, and the World refuses what is not based on head.
 */
async function mayNotPublish(scope: SandboxScope, ref: Omit<WorldRef, "uid">): Promise<boolean> {
  const { spec, status } = scope.sandbox;
  const { compute, bootedFrom, base } = status ?? {};
  if (compute?.saves !== "Nothing") return false;
  if (!bootedFrom || (base && base.digest !== bootedFrom.digest)) return false;
  if (await isOnFull(scope, ref, bootedFrom)) return true;
  const isPinned =
    wasFirstBoot(status) && spec.world?.version !== undefined && spec.world.version === bootedFrom.version;
  if (!isPinned) return false;
  const { world } = scope;
  if (!world || world.status?.head?.digest !== bootedFrom.digest) return true;
  // Only itself can have moved head since, if it was there.
  const fresh = await readKnown(scope, { ...ref, uid: world.metadata.uid });
  return fresh?.status?.head?.digest !== bootedFrom.digest;
}

/** Head was read afresh at the boot: the cache may not list it yet. */
async function isOnFull(scope: SandboxScope, ref: Omit<WorldRef, "uid">, from: VersionPointer): Promise<boolean> {
  const { world } = scope;
  if (!world) return false;
  const isListed = layersOf(world, from) !== undefined;
  return isFull(isListed ? world : await readKnown(scope, { ...ref, uid: world.metadata.uid }), from);
}

/** A World that the cache does not show ends its session only when the API server says that it is gone. */
async function readKnown(scope: SandboxScope, ref: WorldRef): Promise<World | undefined> {
  try {
    return await scope.dependencies.worldWriter.read(ref, scope.context.signal);
  } catch (error) {
    if (error instanceof WorldGone) return undefined;
    throw error;
  }
}

/** Asks the host about the recorded compute. A host that does not answer leaves everything as it is. */
export async function observe(scope: SandboxScope): Promise<PhaseResult> {
  const compute = scope.sandbox.status?.compute;
  if (!compute) return CONTINUE;
  try {
    scope.driver = await scope.dependencies.driverFor(compute.runtime, compute.host, scope.context.signal);
    const observed = await scope.driver.inspect(compute.id, scope.context.signal);
    // After the observation: a connection that was lost in between may lead to another engine.
    const engine = compute.engine === undefined ? undefined : await scope.driver.identity(scope.context.signal);
    if (engine !== compute.engine) {
      // Somebody pointed the host's address to another engine. What that one does not have is not lost.
      scope.isOtherEngine = true;
      scope.hostProblem = `${compute.runtime}/${compute.host} is another engine now (${engine}, not ${compute.engine})`;
      return CONTINUE;
    }
    scope.observed = observed;
  } catch (error) {
    if (!(error instanceof RuntimeError) && !(error instanceof Waiting)) throw error;
    scope.hostProblem = `${compute.runtime}/${compute.host}: ${error.message}`;
  }
  return CONTINUE;
}

/** The one decision of the pass. */
export async function judge(scope: SandboxScope): Promise<PhaseResult> {
  scope.goal = judgeSession({
    sandbox: scope.sandbox,
    observed: scope.observed,
    worldEnding: scope.worldEnding,
    drain: drainOf(scope),
    savesNothing: scope.savesNothing,
    now: scope.context.clock.now(),
  });
  const needsHost = scope.goal.kind === "run" || scope.goal.kind === "end" || scope.goal.kind === "snapshot";
  if (needsHost && scope.hostProblem !== undefined) {
    throw new Waiting("HostUnreachable", {
      message: scope.hostProblem,
      remediation: `nothing is lost; the session goes on when the host answers${untilLoss(scope)}`,
      afterMs: 10_000,
    });
  }
  return CONTINUE;
}

function untilLoss({ sandbox, dependencies }: SandboxScope): string {
  const { unreachableAt, runtime = "" } = sandbox.status?.compute ?? {};
  const lostAt = hostLostAt(unreachableAt, dependencies.runtimes.get(runtime));
  return lostAt === undefined ? "" : `; from ${new Date(lostAt).toISOString()} on it counts as gone for good`;
}
