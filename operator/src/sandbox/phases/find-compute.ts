/**
 * The end of not knowing: status names no container, and there may be one (`status` was removed by hand, or etcd was restored
 * to a time before the boot). The hosts say what is left. Without their word nothing is booted, ended or let go, because a
 * second container would begin in an older state than the first one stands in.
 */
import { clip, LIMITS, type SandboxOperation, type WorldRescue } from "@agentworlds/crds";
import { CONTINUE, type PhaseResult, STOP } from "../../reconciler/reconcile.ts";
import { computeName } from "../../runtime/contract.ts";
import { RuntimeError } from "../../runtime/errors.ts";
import { isBootUnaccounted, mayHaveUnnamedCompute } from "../../runtime/open-boot.ts";
import { holdsWork } from "../../runtime/rescues.ts";
import { rescuesOf } from "../../world/lost-hold.ts";
import type { PublishedVersion } from "../../world/publication.ts";
import { expiryOf } from "../../world/rescue/judge.ts";
import { WorldGone } from "../../world/status-writer.ts";
import { isFull } from "../boot-source.ts";
import { holdIfFree, letGoOfWorld } from "../hold.ts";
import { committedBy, publishedFields } from "../publish-operation.ts";
import { isoNow, readSame, recordFinalizer, recordIntent, recordProgress } from "../record.ts";
import { recordEnding } from "../record-ending.ts";
import { isDeletionOverdue } from "../rescue.ts";
import { isEndedBy } from "../rescued-operation.ts";
import type { SandboxScope } from "../scope.ts";
import {
  ComputeUnknown,
  type Discovery,
  judgeFindings,
  type Origin,
  originOf,
  type Remnant,
  unproven,
} from "../unnamed-compute.ts";
import { refOf } from "../world-of.ts";
import { startedClock } from "./provision.ts";
import { answerSnapshot, recordEnd, recordLoss } from "./release.ts";

export async function findCompute(scope: SandboxScope): Promise<PhaseResult> {
  if (!mayHaveUnnamedCompute(scope.sandbox)) return CONTINUE;
  // The cache may not show a boot, or the end of one.
  scope.sandbox = await readSame(scope);
  if (!mayHaveUnnamedCompute(scope.sandbox)) return CONTINUE;
  try {
    const discovery = await askHosts(scope);
    if (discovery.kind === "unproven") throw discovery.problem;
    if (discovery.kind === "remnant") await adopt(scope, discovery.remnant, "status named no container");
    else await settle(scope);
    return CONTINUE;
  } catch (error) {
    if (!(error instanceof ComputeUnknown) || !isDeletionOverdue(scope)) throw error;
    return giveUp(scope, error);
  }
}

/** What is left of the session, whatever status says of a container. */
export async function askHosts(scope: SandboxScope): Promise<Discovery> {
  const { sandbox, dependencies, context, world } = scope;
  const runtime = sandbox.spec.runtime?.name;
  const wanted = { sandboxUid: sandbox.metadata.uid, ...(runtime === undefined ? {} : { runtime }) };
  const [containers, captures] = await Promise.all([
    dependencies.search.containers(wanted, context.signal),
    dependencies.search.captures(wanted, context.signal),
  ]);
  const kept = [
    ...rescuesOf(dependencies.runtimes, sandbox.metadata),
    ...(world?.status?.rescues ?? []).filter((rescue) => rescue.sandbox.uid === sandbox.metadata.uid),
  ];
  const keptOperations = kept.flatMap(({ operation, snapshot }) => [
    operation,
    ...(snapshot ? [snapshot.operation] : []),
  ]);
  const { compute: _, ...status } = sandbox.status;
  return judgeFindings(
    { ...sandbox, status },
    {
      containers,
      captures,
      rescued: new Set([...kept.map(({ computeId }) => computeId), ...keptOperations]),
      published: new Set(world?.status?.versions?.map(({ operation }) => operation)),
    },
  );
}

/**
 * A deletion is never held up for ever. The hold on the World stays: it ends by the proof of the World's own controller, and
 * a container that is left becomes a rescue of its Runtime.
 */
async function giveUp(scope: SandboxScope, problem: ComputeUnknown): Promise<PhaseResult> {
  await recordFinalizer(scope, false);
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Warning",
      reason: problem.reason,
      action: "Delete",
      message: `the Sandbox goes without its end being known: ${problem.message}; a container that is left becomes a rescue of its Runtime`,
    },
  );
  return STOP;
}

/** The session goes on, or ends, as if its container had never been forgotten. `because` is what status said instead. */
export async function adopt(scope: SandboxScope, remnant: Remnant, because: string): Promise<void> {
  const origin = originOf(scope.sandbox, remnant, { world: await freshWorld(scope), repository: repository(scope) });
  if (!origin) {
    throw unproven(
      "ContainerNotAdopted",
      `${because}, and what is left on ${remnant.runtime}/${remnant.host} of boot ${remnant.boot} does not say which version of the World it began with; nothing is touched`,
      "put the Sandbox's status back from a backup, or remove the container by hand",
    );
  }
  const id = computeName({ sandboxUid: scope.sandbox.metadata.uid, boot: remnant.boot });
  const hasRun = await askWhetherItRan(scope, { remnant, id });
  await holdIfFree(scope);
  const { status, metadata } = scope.sandbox;
  await recordIntent(scope, {
    boot: remnant.boot,
    compute: {
      runtime: remnant.runtime,
      host: remnant.host,
      id,
      boot: remnant.boot,
      engine: remnant.engine,
      saves: savesVersions(scope, origin) ? "Versions" : "Nothing",
      ...(hasRun ? { provisionedAt: status.lastActivityAt ?? isoNow(scope) } : {}),
      ...(status.compute?.ttlSeconds === undefined ? {} : { ttlSeconds: status.compute.ttlSeconds }),
    },
    ...origin,
    lastEnding: null,
    ...(hasRun && status.expiresAt === undefined ? startedClock(scope) : {}),
    ...(scope.world && status.world === undefined ? { world: { uid: scope.world.metadata.uid } } : {}),
  });
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Warning",
      reason: "ComputeFound",
      action: "Adopt",
      message: `${because}; ${id} of ${metadata.namespace}/${metadata.name} was found on ${remnant.runtime}/${remnant.host}, and the session goes on with it`,
    },
  );
}

async function freshWorld({ world, dependencies, context }: SandboxScope) {
  if (!world) return undefined;
  try {
    return await dependencies.worldWriter.read(refOf(world), context.signal);
  } catch (error) {
    if (error instanceof WorldGone) return undefined;
    throw error;
  }
}

/** As the hosts name it; undefined for a throwaway image, and when the World does not say. */
function repository({ world, dependencies: { registry } }: SandboxScope): string | undefined {
  const name = world?.status?.repository;
  return name?.startsWith(`${registry.host}/`)
    ? registry.asHostsNameIt(name.slice(registry.host.length + 1))
    : undefined;
}

/** Nothing is ever done in a container that has not been Ready; whatever else may have been worked in is saved. */
async function askWhetherItRan(
  scope: SandboxScope,
  { remnant, id }: { remnant: Remnant; id: string },
): Promise<boolean> {
  const { status } = scope.sandbox;
  const isSameBoot = status.boot === remnant.boot;
  if (remnant.state === "Created") return false;
  if (remnant.state !== "Running" || (isSameBoot && status.expiresAt !== undefined)) return true;
  if (await helperAnswers(scope, { remnant, id })) return true;
  // Status is of this boot and says that it was on its way: it goes on from there.
  if (isSameBoot) return false;
  throw unproven(
    "ContainerNotAdopted",
    `status names no container; ${id} runs on ${remnant.runtime}/${remnant.host} and does not answer`,
    "it goes on when the container answers or has ended",
  );
}

const ANSWER_MS = 5_000;

async function helperAnswers(
  { dependencies, context }: SandboxScope,
  { remnant, id }: { remnant: Remnant; id: string },
): Promise<boolean> {
  try {
    const driver = await dependencies.driverFor(remnant.runtime, remnant.host, context.signal);
    await driver.exec(id, { command: ["true"], timeoutMs: ANSWER_MS }, context.signal);
    return true;
  } catch (error) {
    if (!(error instanceof RuntimeError)) throw error;
    if (error.code === "HostUnreachable") {
      throw unproven("HostsNotAsked", error.message, "it goes on when the host answers");
    }
    // An image without that command has a helper all the same, and it is the helper who says so.
    return error.code === "CommandNotStarted";
  }
}

/** As at the boot: a throwaway image saves nothing, nor does a session on a full version or one that was pinned below head. */
function savesVersions({ sandbox, world }: SandboxScope, { bootedFrom, base }: Origin): boolean {
  const { spec } = sandbox;
  if (!spec.world || isFull(world, bootedFrom)) return false;
  const isPinned = spec.world.version !== undefined && spec.world.version === bootedFrom.version;
  return !isPinned || spec.closePolicy !== "Discard" || base.digest === world?.status?.head?.digest;
}

/** Every host was asked: no container is left, and no capture that is not in a version or in a rescue. */
async function settle(scope: SandboxScope): Promise<void> {
  if (isBootUnaccounted(scope.sandbox)) await recordHowItEnded(scope);
  // As long as the finalizer is there, the next pass asks again.
  await letGoOfWorld(scope);
  await recordFinalizer(scope, false);
}

async function recordHowItEnded(scope: SandboxScope): Promise<void> {
  const { boot = 0, operation } = scope.sandbox.status;
  const committed = operation && (await committedBy(scope, operation.id));
  if (operation && operation.verb !== "Snapshot") {
    if (committed && isEndedBy(operation, committed)) return recordEnd(scope, asCommitted(operation, committed));
    if (operation.outcome === "Discard") return recordEnd(scope, { ...operation, stage: "Discarded" });
  }
  const [rescue] = rescuesOf(scope.dependencies.runtimes, scope.sandbox.metadata).filter(holdsWork);
  if (rescue) return recordRescued(scope, rescue);
  if (committed && operation) {
    await recordProgress(scope, () => publishedFields(scope, committed));
    await answerSnapshot(scope, asCommitted(operation, committed));
  }
  await recordLoss(scope, { boot, what: `no host has a container of boot ${boot}` });
}

const asCommitted = (operation: SandboxOperation, { version, digest }: PublishedVersion): SandboxOperation => ({
  ...operation,
  stage: "Committed",
  version,
  digest,
});

/** Its Runtime has put the container aside: the World hears of it, so that nobody boots an older state beside it. */
async function recordRescued(scope: SandboxScope, rescue: WorldRescue): Promise<void> {
  const { boot = 0, base } = scope.sandbox.status;
  if (scope.world) {
    const known = { ...(base ? { base: base.digest } : {}), ...rescue };
    await scope.dependencies.worldWriter.recordRescue(refOf(scope.world), known, scope.context.signal);
  }
  const { runtime, host, computeId, reason, operation } = rescue;
  const expiresAt = new Date(expiryOf(rescue)).toISOString();
  const message = clip(`the work is kept on ${runtime}/${host} as ${computeId}: ${rescue.message}`, LIMITS.message);
  await recordEnding(scope, () => ({
    operation: null,
    expiresAt: null,
    lifetimeEndsAt: null,
    // It had been Ready: there was work.
    failedBoots: null,
    lastEnding: { boot, reason, outcome: "Rescued", message, at: isoNow(scope), rescue: { operation, expiresAt } },
  }));
}
