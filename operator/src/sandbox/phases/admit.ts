/** From "wanted" to "has a World, a host and a boot": hold and slot are taken in one pass or neither (DESIGN §4.2). */
import {
  clip,
  type Runtime,
  type Sandbox,
  type SandboxRequest,
  type VersionPointer,
  type World,
} from "@agentworlds/crds";
import { ConnectionError } from "../../kube/errors.ts";
import { findCondition, isTrue } from "../../reconciler/conditions.ts";
import { Terminal, Waiting } from "../../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import type { Digest } from "../../registry/contract.ts";
import { bootNamed, computeName } from "../../runtime/contract.ts";
import { isFirstBoot, ownCompute, SANDBOX_FINALIZER } from "../../runtime/open-boot.ts";
import { selectHost } from "../../runtime/selection.ts";
import { versionTag } from "../../snapshot/publish.ts";
import { askedBy } from "../../world/creator.ts";
import {
  explainRegistryHead,
  type HoldVerdict,
  judgeHold,
  unpublishedRescues,
  versionToBoot,
} from "../../world/lineage.ts";
import { rescuesOf } from "../../world/lost-hold.ts";
import { writingSessions } from "../../world/sessions.ts";
import { explainSourceErrors } from "../../world/source-errors.ts";
import { statusOf } from "../../world/status-writer.ts";
import { BOOT_TIMED_OUT, bootLimit } from "../boot-limit.ts";
import { chooseRuntime } from "../boot-runtime.ts";
import { headBehind, isFull, layersOf, requireAvailableHead, requireNewestHead, requireRoom } from "../boot-source.ts";
import { holdClaim, letGoOfWorld } from "../hold.ts";
import { isoNow, readSame, recordFinalizer, recordIntent } from "../record.ts";
import { answer } from "../requests.ts";
import type { SandboxScope } from "../scope.ts";
import { refOf } from "../world-of.ts";

/** What the session will boot. */
interface BootPlan {
  readonly runtime: Runtime;
  /** Version and digest in the World's repository; only a digest for a throwaway image. */
  readonly from: VersionPointer;
  /** Touches that asked for the boot. */
  readonly wakes: readonly SandboxRequest[];
}

export async function admit(scope: SandboxScope): Promise<PhaseResult> {
  if (scope.goal.kind !== "boot") return CONTINUE;
  const { wakes, notBefore } = scope.goal;
  try {
    if (notBefore !== undefined) pauseUntil(scope, notBefore);
    return await admitOrThrow(scope, wakes);
  } catch (error) {
    await letGoUnlessBooted(scope, error);
    throw error;
  }
}

/** After a boot that was given up. A touch does not wait for the pause to be over. */
function pauseUntil({ sandbox, context }: SandboxScope, notBefore: string): void {
  const afterMs = Date.parse(notBefore) - context.clock.now();
  if (afterMs <= 0) return;
  throw new Waiting(BOOT_TIMED_OUT, {
    message: sandbox.status?.lastEnding?.message ?? "the boot before was given up",
    remediation: `it is tried again at ${notBefore}; touch the Sandbox to try at once`,
    afterMs,
  });
}

const withoutRescues = ({ sandbox }: SandboxScope): string => {
  const ignored = sandbox.status?.ignoredRescues ?? [];
  return ignored.length === 0 ? "" : `; without the work of rescues ${ignored.join(", ")}, as spec.rescuePolicy says`;
};

/**
 * Whatever stands in the way of the boot: a hold without a slot would keep others waiting for nothing, and a finalizer says
 * that there may be a container, which every host is asked for. But the boot may be recorded, by a write whose answer was lost
 * or by one that the cache does not show, and then both are its own.
 */
async function letGoUnlessBooted(scope: SandboxScope, failure: unknown): Promise<void> {
  const { world, sandbox, tookHold, addedFinalizer } = scope;
  const isHolder = tookHold === true || (world && statusOf(world).holder?.uid === sandbox.metadata.uid);
  if ((!isHolder && !addedFinalizer) || isOutcomeUnknown(failure)) return;
  scope.sandbox = await readSame(scope);
  if (scope.sandbox.status?.compute) return;
  if (isHolder) await letGoOfWorld(scope);
  if (addedFinalizer) await recordFinalizer(scope, false);
}

const isOutcomeUnknown = (error: unknown): boolean => error instanceof ConnectionError && error.outcomeUnknown;

async function admitOrThrow(scope: SandboxScope, wakes: readonly SandboxRequest[]): Promise<PhaseResult> {
  const world = scope.sandbox.spec.world ? requireWorld(scope) : undefined;
  const runtime = await chooseRuntime(scope);
  const from: VersionPointer = world ? versionOf(scope, world) : { digest: await resolveImage(scope, runtime) };
  await bootInTurn(scope, { runtime, from, wakes });
  const { bootedFrom = from, compute } = scope.sandbox.status ?? {};
  const origin = bootedFrom.version === undefined ? bootedFrom.digest : versionTag(bootedFrom.version);
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Normal",
      reason: "Admitted",
      action: "Admit",
      message: `boots from ${origin} on ${compute?.runtime}/${compute?.host}${withoutRescues(scope)}`,
      ...(wakes[0] ? { causedBy: askedBy(wakes[0].user, scope.sandbox) } : {}),
    },
  );
  scope.goal = { kind: "run" };
  return CONTINUE;
}

function requireWorld(scope: SandboxScope): World {
  const name = scope.sandbox.spec.world?.name ?? "";
  if (scope.worldEnding) {
    throw new Terminal("WorldReplaced", {
      message: `World ${name} is not the one this Sandbox booted from`,
      remediation: "create a new Sandbox for the new World",
    });
  }
  const { world } = scope;
  if (!world) {
    throw new Waiting("WorldNotFound", {
      message: `World ${name} does not exist`,
      remediation: "create it, or delete this Sandbox",
      afterMs: 60_000,
    });
  }
  if (world.metadata.deletionTimestamp) {
    throw new Waiting("WorldDeleting", {
      message: `World ${name} is being deleted`,
      remediation: "create it anew, or delete this Sandbox",
      afterMs: 60_000,
    });
  }
  if (!world.status?.head) {
    throw new Waiting("WorldNotReady", {
      message: `World ${name} has no version yet${whyNotReady(world) ?? "; see the World's conditions"}`,
      afterMs: 60_000,
      tells: isTrue(world.status?.conditions, "Stalled") ? "Warning" : "Normal",
    });
  }
  return world;
}

/** What the World's own conditions say, so that who waits need not look there. */
function whyNotReady({ status }: World): string | undefined {
  const conditions = status?.conditions;
  const why = findCondition(conditions, isTrue(conditions, "Stalled") ? "Stalled" : "Ready");
  return why && clip(`: ${why.reason}: ${why.message}`, LONGEST_WHY);
}

/** The message goes into an Event too, which holds less than a condition. */
const LONGEST_WHY = 900;

function versionOf(scope: SandboxScope, world: World): VersionPointer {
  const status = statusOf(world);
  const wanted = isFirstBoot(scope.sandbox.status ?? {}) ? scope.sandbox.spec.world?.version : undefined;
  const found = versionToBoot(status, wanted);
  if (!found) {
    throw new Terminal("VersionNotFound", {
      message: `World ${world.metadata.name} has no version ${wanted}`,
      remediation: `create a Sandbox that names one of ${status.versions?.map((version) => version.version).join(", ")}, or none`,
    });
  }
  if (found.version !== status.head?.version && scope.sandbox.spec.closePolicy !== "Discard") {
    throw new Terminal("NotAtHead", {
      message: `version ${found.version} is not head (${status.head?.version}): a session on it may not publish`,
      remediation: "set spec.closePolicy: Discard, or leave spec.world.version out",
    });
  }
  if (found.version === status.head?.version) {
    requireAvailableHead(world);
    requireRoom(world);
  }
  if (isFull(world, found) && scope.sandbox.spec.closePolicy !== "Discard") {
    throw new Terminal("TooManyLayers", {
      message: `version ${found.version} has ${layersOf(world, found)} layers: work on it could not be saved`,
      remediation: "set spec.closePolicy: Discard to look at it",
    });
  }
  return found;
}

/** A throwaway image is pinned to a digest before it boots; the source rules apply. */
async function resolveImage(scope: SandboxScope, runtime: Runtime): Promise<Digest> {
  const { image } = scope.sandbox.spec;
  const platform = runtime.status?.platform;
  if (image === undefined || platform === undefined) {
    throw new Waiting("RuntimeNotReady", { message: "the Runtime has no platform yet", afterMs: 15_000 });
  }
  return explainSourceErrors(image, () => scope.dependencies.sources.resolve(image, platform, scope.context.signal));
}

/** Once the World is held its head stands still: the second look finds it where the first turn left it. */
const MOST_LOOKS = 3;

/**
 * The registry is asked between turns, never in one: one that is silent would keep every session of the installation from
 * booting. What cannot boot anyway is told before it is asked.
 */
async function bootInTurn(scope: SandboxScope, plan: BootPlan): Promise<void> {
  const { admission, worldWriter } = scope.dependencies;
  const { signal } = scope.context;
  for (let look = 1; look <= MOST_LOOKS; look++) {
    requireSlot(scope, plan.runtime);
    if (scope.world) {
      requireFree(scope, scope.world);
      scope.world = await worldWriter.read(refOf(scope.world), signal);
      await requireNewestHead(scope, scope.world);
    }
    const proven = scope.world && statusOf(scope.world).head?.digest;
    const outcome = await admission.inTurn(() => takeHoldAndSlot(scope, { ...plan, proven }), signal);
    if (outcome === "booted") return;
  }
  throw new Waiting("WorldHeld", {
    message: `head of World ${scope.world?.metadata.name} moves faster than it can be compared with the registry`,
    remediation: "it is tried again",
    afterMs: 15_000,
  });
}

/** A host with room, as far as the cache and the desk know. */
function requireSlot(scope: SandboxScope, plan: Runtime): string {
  const { admission, sandboxes } = scope.dependencies;
  const { name: runtime } = plan.metadata;
  const occupied = admission.occupancy(sandboxes.list(), runtime);
  const used = [...occupied.values()].reduce((sum, count) => sum + count, 0);
  const total = plan.spec.capacity?.maxSandboxes ?? 20;
  const host = selectHost(plan, occupied);
  if (used >= total || host === undefined) {
    throw used >= total
      ? new Waiting("RuntimeFull", {
          message: `Runtime ${runtime} runs ${used} of ${total} sessions`,
          remediation: "it boots when one of them ends",
          afterMs: 15_000,
        })
      : new Waiting("RuntimeUnreachable", {
          message: `no host of Runtime ${runtime} answers`,
          remediation: "see the Runtime's conditions",
          afterMs: 15_000,
        });
  }
  return host;
}

async function takeHoldAndSlot(
  scope: SandboxScope,
  plan: BootPlan & { readonly proven: Digest | undefined },
): Promise<"booted" | "headMoved"> {
  const { admission, worldWriter } = scope.dependencies;
  const { name: runtime } = plan.runtime.metadata;
  const { name, uid } = scope.sandbox.metadata;
  const host = requireSlot(scope, plan.runtime);
  await holdWorld(scope, worldWriter);
  const from = await versionHeld(scope, plan);
  if (!from) return "headMoved";
  const boot = nextBoot(scope);
  admission.give(uid, { runtime, host, boot });
  try {
    await addFinalizer(scope);
    const { wakes } = plan;
    await recordIntent(scope, {
      boot,
      observedMode: "Running",
      compute: {
        runtime,
        host,
        id: computeName({ sandboxUid: uid, boot }),
        boot,
        ...bootLimit(scope.context.clock.now(), scope.dependencies.limits.bootDeadlineMs),
        saves: savesVersions(scope, from) ? "Versions" : "Nothing",
        ...longestTtl(wakes),
      },
      bootedFrom: from,
      base: from,
      requests: answer(scope.sandbox, wakes, {
        outcome: "Succeeded",
        at: isoNow(scope),
        message: `boot ${boot} of ${name}`,
      }),
      ...(scope.world ? { world: { uid: scope.world.metadata.uid } } : {}),
      ignoredRescues: ignoredRescues(scope) ?? null,
      lastEnding: null,
      // Of a boot that is over: it would end this one.
      operation: null,
    });
  } catch (error) {
    // Where the answer was lost the boot may be recorded all the same: the next pass looks, see settle-slot.ts.
    if (!isOutcomeUnknown(error)) admission.takeBack(uid);
    throw error;
  }
  return "booted";
}

/** A status that was lost begins to count anew; the name of a container that a rescue keeps belongs to that one. */
function nextBoot({ sandbox, dependencies }: SandboxScope): number {
  const kept = rescuesOf(dependencies.runtimes, sandbox.metadata).map(({ computeId }) => bootNamed(computeId));
  return Math.max(sandbox.status?.boot ?? 0, ...kept) + 1;
}

/**
 * A session on an older version than head may not publish over it (DESIGN §3), and one on a full version cannot. Head cannot
 * move while it holds the World.
 */
const savesVersions = ({ world }: SandboxScope, from: VersionPointer): boolean =>
  world !== undefined && from.digest === statusOf(world).head?.digest && !isFull(world, from);

/** As the hold has it, which was read after it was taken: every version of this boot says so. */
const ignoredRescues = ({ world, sandbox }: SandboxScope): string[] | undefined => {
  const holder = world && statusOf(world).holder;
  return holder?.uid === sandbox.metadata.uid ? holder.ignoredRescues : undefined;
};

/** What the touches that wake the session asked for; the longest wish stands. */
function longestTtl(wakes: readonly SandboxRequest[]): { ttlSeconds?: number } {
  const wishes = wakes.flatMap(({ parameters }) => parameters?.ttlSeconds ?? []);
  return wishes.length === 0 ? {} : { ttlSeconds: Math.max(...wishes) };
}

/**
 * The version to boot, read after the hold: before it another session may have published one that the cache does not show
 * yet, and booting the older state would be silent. From here on head is ours alone to move. Undefined: it is not the head that
 * was compared with the registry.
 */
async function versionHeld(
  scope: SandboxScope,
  plan: BootPlan & { readonly proven: Digest | undefined },
): Promise<VersionPointer | undefined> {
  const { world } = scope;
  if (!world) return plan.from;
  const fresh = await scope.dependencies.worldWriter.read(refOf(world), scope.context.signal);
  scope.world = fresh;
  const { head, registryHead } = statusOf(fresh);
  if (registryHead) throw headBehind(explainRegistryHead(statusOf(fresh), registryHead));
  return head?.digest === plan.proven ? versionOf(scope, fresh) : undefined;
}

/** Asking the cache first keeps a queue of waiting Sandboxes from asking the API server and the registry again and again. */
function requireFree(scope: SandboxScope, world: World): void {
  refuseHeld(world, judgeHold(statusOf(world), holdClaim(scope, scope.sandbox.spec.rescuePolicy)));
  const other = writerBeside(scope, world);
  if (!other || statusOf(world).holder?.uid === scope.sandbox.metadata.uid) return;
  throw new Waiting("WorldHeld", {
    message: `Sandbox ${other.metadata.name} works in World ${world.metadata.name}, whose status names no holder`,
    remediation: "it boots when that one ends",
    afterMs: 15_000,
  });
}

/** Somebody may have removed the holder by hand: a session that has compute writes into the World all the same. */
const writerBeside = ({ dependencies, sandbox }: SandboxScope, world: World): Sandbox | undefined =>
  writingSessions(dependencies.sandboxes.list(), world.metadata.uid).find(
    (other) => other.metadata.uid !== sandbox.metadata.uid && ownCompute(other) !== undefined,
  );

function refuseHeld(world: World, verdict: HoldVerdict): void {
  if (verdict.kind !== "refused") return;
  if (verdict.reason === "HeadBehindRegistry") throw headBehind(verdict.message);
  throw new Waiting("WorldHeld", {
    message: `World ${world.metadata.name} ${verdict.message}`,
    remediation:
      unpublishedRescues(statusOf(world)).length > 0
        ? `it boots when that work is a version, see kubectl world rescue list ${world.metadata.name}; spec.rescuePolicy: Ignore boots from head without it`
        : "it boots when the holder ends",
    afterMs: 15_000,
  });
}

async function holdWorld(scope: SandboxScope, writer: SandboxScope["dependencies"]["worldWriter"]): Promise<void> {
  const { world } = scope;
  if (!world) return;
  requireFree(scope, world);
  // The finalizer before the hold: a Sandbox that vanishes while it holds could never let go.
  await addFinalizer(scope);
  scope.tookHold = true;
  refuseHeld(
    world,
    await writer.hold(refOf(world), holdClaim(scope, scope.sandbox.spec.rescuePolicy), scope.context.signal),
  );
}

async function addFinalizer(scope: SandboxScope): Promise<void> {
  if (scope.sandbox.metadata.finalizers?.includes(SANDBOX_FINALIZER)) return;
  await recordFinalizer(scope, true);
  scope.addedFinalizer = true;
}
