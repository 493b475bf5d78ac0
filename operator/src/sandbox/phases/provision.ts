/** Compute exists, exactly once, and answers; then the clock starts. */
import {
  quantityToBytes,
  quantityToCpus,
  type Runtime,
  type SandboxCompute,
  type SandboxStatus,
} from "@agentworlds/crds";
import { startDeadline as startTimer } from "../../reconciler/deadline.ts";
import { Waiting } from "../../reconciler/policy.ts";
import { CONTINUE, type PhaseResult } from "../../reconciler/reconcile.ts";
import type { Digest } from "../../registry/contract.ts";
import type { ComputeSpec, ObservedCompute, RuntimeDriver } from "../../runtime/contract.ts";
import { RuntimeError } from "../../runtime/errors.ts";
import { explainSourceErrors } from "../../world/source-errors.ts";
import { bootLimit, bootMsLeft, withinLimit } from "../boot-limit.ts";
import { refuseBoot, requireRecordedRuntime } from "../boot-runtime.ts";
import { mendDeadline, sessionDurations, startDeadline } from "../deadline.ts";
import { epoch } from "../judge.ts";
import { tellMissingEnvironment } from "../missing-environment.ts";
import { BootOvertaken, demandSameBoot, recordProgress } from "../record.ts";
import type { SandboxScope } from "../scope.ts";
import { repositoryName } from "../world-of.ts";

/** Pulls, makes and starts the container of this boot, or adopts what an earlier try made. */
export async function provision(scope: SandboxScope): Promise<PhaseResult> {
  const compute = scope.sandbox.status?.compute;
  if (scope.goal.kind !== "run" || !compute) return CONTINUE;
  if (compute.provisionedAt !== undefined) {
    await mendClock(scope);
    await mendPid(scope);
    return thawLeftover(scope);
  }
  await mendBootLimit(scope);
  try {
    const engine = await explainRuntimeErrors(() => makeCompute(scope, compute));
    await startClock(scope, { boot: compute.boot, engine });
  } catch (error) {
    throw withinLimit(error, msLeft(scope));
  }
  await tellMissingEnvironment(scope);
  return CONTINUE;
}

const msLeft = ({ sandbox, context, dependencies }: SandboxScope): number =>
  Math.max(0, bootMsLeft(sandbox.status, context.clock.now()) ?? dependencies.limits.bootDeadlineMs);

/** Returns the id of the engine that has it. */
async function makeCompute(scope: SandboxScope, compute: SandboxCompute): Promise<string> {
  const { signal } = scope.context;
  const runtime = await requireRecordedRuntime(scope, compute);
  scope.driver = await scope.dependencies.driverFor(compute.runtime, compute.host, signal);
  const image = imageToBoot(scope, await requireOrigin(scope, compute));
  const spec = { ...computeSpec(scope, { compute, runtime, image }), ...(await pullCredentials(scope)) };
  await pullInTime(scope, { driver: scope.driver, spec });
  await bringUp(scope, { driver: scope.driver, spec });
  return scope.driver.identity(signal);
}

/** The one step that may take as long as it likes: a pull that hangs would outlive the boot's limit. */
async function pullInTime(scope: SandboxScope, { driver, spec }: { driver: RuntimeDriver; spec: ComputeSpec }) {
  const { clock, signal } = scope.context;
  using limit = startTimer({ clock, milliseconds: msLeft(scope), parent: signal });
  try {
    await driver.pull(spec.image, spec.pullCredentials, limit.signal);
  } catch (error) {
    if (!limit.expired) throw error;
    throw new RuntimeError("ImageUnavailable", `the pull of ${spec.image} did not end in time`, { cause: error });
  }
}

/** One that is found again, or that an older operator began, has as long as a new one. */
async function mendBootLimit(scope: SandboxScope): Promise<void> {
  const { context, dependencies } = scope;
  await recordProgress(scope, ({ status }) => {
    if (!status.compute || status.compute.bootDeadlineAt !== undefined) return undefined;
    const limit = bootLimit(context.clock.now(), dependencies.limits.bootDeadlineMs);
    return { compute: { ...status.compute, ...limit } };
  });
}

/**
 * A boot's clock starts when it is Ready, in the same write: with one that runs, somebody has removed `provisionedAt`, and
 * without it the work would count as none.
 */
export async function mendReady(scope: SandboxScope): Promise<PhaseResult> {
  const isToMend = ({ compute, expiresAt, lifetimeEndsAt }: SandboxStatus) =>
    compute !== undefined &&
    compute.provisionedAt === undefined &&
    (expiresAt !== undefined || lifetimeEndsAt !== undefined);
  const { status } = scope.sandbox;
  if (!status || !isToMend(status)) return CONTINUE;
  await recordProgress(scope, ({ status }) =>
    status.compute && isToMend(status)
      ? { compute: { ...status.compute, provisionedAt: status.lastActivityAt ?? iso(scope.context.clock.now()) } }
      : undefined,
  );
  return CONTINUE;
}

/**
 * Ready is what the host says after the create, not the create's return: the container of an earlier try may have ended or been
 * frozen by hand. Once per pass, such a one is thawed, or made anew; a container that does not stay up is told by name.
 */
async function bringUp(scope: SandboxScope, { driver, spec }: { driver: RuntimeDriver; spec: ComputeSpec }) {
  const { signal } = scope.context;
  const id = await driver.create(spec, signal);
  scope.observed = await driver.inspect(id, signal);
  if (scope.observed.state === "Running") return;
  if (scope.observed.state === "Frozen") await driver.thaw(id, signal);
  if (scope.observed.state === "Exited") {
    await demandNeverReady(scope);
    await driver.remove(id, signal);
  }
  await driver.create(spec, signal);
  scope.observed = await driver.inspect(id, signal);
  if (scope.observed.state === "Running") return;
  throw new RuntimeError("HostRefused", `container ${id} does not stay up: it is ${describe(scope.observed)}`);
}

/** Nothing ran in a container that was never Ready. The cache may not show yet that this one was. */
async function demandNeverReady(scope: SandboxScope): Promise<void> {
  await demandSameBoot(scope);
  const { compute, expiresAt } = scope.sandbox.status;
  if (compute?.provisionedAt === undefined && expiresAt === undefined) return;
  throw new BootOvertaken(`boot ${compute?.boot} has been Ready: its container is not made anew`);
}

function describe(observed: ObservedCompute): string {
  if (observed.state !== "Exited") return observed.state;
  return `Exited with code ${observed.exitCode}${observed.outOfMemory ? ", out of memory" : ""}`;
}

/** The clock of a boot that is Ready now. */
export function startedClock(scope: SandboxScope) {
  const now = scope.context.clock.now();
  return { ...isoTimes(startDeadline(durationsOf(scope), now)), lastActivityAt: iso(now) };
}

/** Without its times a session would never end. */
async function mendClock(scope: SandboxScope): Promise<void> {
  const boot = scope.sandbox.status?.compute?.boot;
  await recordProgress(scope, ({ status }) => {
    if (status?.compute?.boot !== boot) return undefined;
    const known = { expiresAt: epoch(status?.expiresAt), lifetimeEndsAt: epoch(status?.lifetimeEndsAt) };
    const mended = mendDeadline(known, durationsOf(scope), scope.context.clock.now());
    return mended && isoTimes(mended);
  });
}

/** A container that was found again, or that an older operator made, is known by its first process from now on. */
async function mendPid(scope: SandboxScope): Promise<void> {
  const pid = firstProcess(scope);
  const boot = scope.sandbox.status?.compute?.boot;
  await recordProgress(scope, ({ status: { compute } }) =>
    pid === undefined || !compute || compute.boot !== boot || compute.pid !== undefined
      ? undefined
      : { compute: { ...compute, pid } },
  );
}

const firstProcess = ({ observed }: SandboxScope): number | undefined =>
  observed?.state === "Running" ? observed.pid : undefined;

function durationsOf({ sandbox, world }: SandboxScope) {
  const wished = sandbox.status?.compute?.ttlSeconds;
  return sessionDurations(
    { ...sandbox.spec, ...(wished === undefined ? {} : { ttlSeconds: wished }) },
    world?.spec.session,
  );
}

/** The clock of this boot starts when it becomes Ready; queue and boot have limits of their own (DESIGN §3). */
async function startClock(scope: SandboxScope, { boot, engine }: { boot: number; engine: string }): Promise<void> {
  const clock = startedClock(scope);
  const pid = firstProcess(scope);
  await recordProgress(scope, ({ status }) =>
    status?.compute?.boot === boot
      ? {
          compute: {
            ...status.compute,
            provisionedAt: clock.lastActivityAt,
            engine,
            ...(pid === undefined ? {} : { pid }),
          },
          ...clock,
        }
      : undefined,
  );
  const { compute, bootedFrom } = scope.sandbox.status ?? {};
  scope.dependencies.announce(
    { kind: "Sandbox", object: scope.sandbox },
    {
      type: "Normal",
      reason: "Running",
      action: "Boot",
      message: `boot ${boot} from ${bootedFrom?.version === undefined ? bootedFrom?.digest : `v${bootedFrom.version}`} on ${compute?.runtime}/${compute?.host} until ${clock.expiresAt}`,
    },
  );
}

/** An operator that died inside a freeze leaves the session frozen; so does somebody who freezes it by hand. */
export async function thawLeftover(scope: SandboxScope): Promise<PhaseResult> {
  const compute = scope.sandbox.status?.compute;
  const { driver } = scope;
  if (scope.observed?.state !== "Frozen" || !compute || !driver) return CONTINUE;
  const { signal } = scope.context;
  try {
    await driver.thaw(compute.id, signal);
  } catch (error) {
    if (!(error instanceof RuntimeError) || error.code !== "HostRefused") throw error;
    throw new Waiting("HostRefused", {
      message: `the session's container is frozen, and its host does not thaw it: ${error.message}`,
      remediation: `thaw ${compute.id} on ${compute.runtime}/${compute.host} by hand; it is tried again`,
      afterMs: 10_000,
      cause: error,
    });
  }
  scope.observed = await driver.inspect(compute.id, signal);
  return CONTINUE;
}

/** What the operator could read the image with, the host can pull it with; for the pull alone. */
async function pullCredentials(scope: SandboxScope): Promise<Pick<ComputeSpec, "pullCredentials">> {
  const { registry, sources } = scope.dependencies;
  const { image } = scope.sandbox.spec;
  const login =
    image === undefined
      ? registry.login
      : await explainSourceErrors(image, () => sources.login(image, scope.context.signal));
  return login === undefined ? {} : { pullCredentials: login };
}

function computeSpec(
  scope: SandboxScope,
  { compute, runtime, image }: { compute: SandboxCompute; runtime: Runtime; image: string },
): ComputeSpec {
  const { metadata, spec } = scope.sandbox;
  const { installation } = scope.dependencies;
  const { isolation } = runtime.spec;
  const memory = spec.resources?.memory ?? isolation?.memory;
  const cpu = spec.resources?.cpu ?? isolation?.cpu;
  return {
    owner: {
      installation,
      namespace: metadata.namespace ?? "",
      sandbox: metadata.name,
      sandboxUid: metadata.uid,
      boot: compute.boot,
    },
    image,
    limits: {
      pids: isolation?.pidsLimit ?? 512,
      ...(memory === undefined ? {} : { memoryBytes: quantityToBytes(memory) }),
      ...(cpu === undefined ? {} : { cpus: quantityToCpus(cpu) }),
    },
    isolation: {
      network: isolation?.network ?? "Isolated",
      ...(isolation?.ociRuntime === undefined ? {} : { ociRuntime: isolation.ociRuntime }),
    },
  };
}

async function requireOrigin(scope: SandboxScope, compute: SandboxCompute): Promise<Digest> {
  const { bootedFrom } = scope.sandbox.status;
  if (bootedFrom) return bootedFrom.digest;
  const message = `status does not say what boot ${compute.boot} begins with`;
  return refuseBoot(scope, compute, { reason: "VersionNotFound", message });
}

/** `repository@digest` as the host names it. */
function imageToBoot(scope: SandboxScope, digest: Digest): string {
  const { registry, sources } = scope.dependencies;
  const { image } = scope.sandbox.spec;
  if (image !== undefined) return sources.pin(image, digest);
  return `${registry.asHostsNameIt(repositoryName(scope))}@${digest}`;
}

/** What a host refuses is told by name and tried again: it heals on the host, which no generation of this object shows. */
export async function explainRuntimeErrors<R>(call: () => Promise<R>): Promise<R> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof RuntimeError)) throw error;
    switch (error.code) {
      case "ComputeConflict":
        throw new Waiting("ComputeConflict", {
          message: error.message,
          remediation: "remove the foreign container from the host by hand; it is tried again",
          afterMs: 30_000,
          cause: error,
        });
      case "HostUnreachable":
      case "ImageUnavailable":
        throw new Waiting(error.code, {
          message: error.message,
          remediation: "nothing is lost; it is tried again",
          afterMs: 10_000,
          cause: error,
        });
      case "HostRefused":
        throw new Waiting("HostRefused", {
          message: error.message,
          remediation: "change spec.resources, or the Runtime's isolation; it is tried again",
          afterMs: 30_000,
          cause: error,
        });
      default:
        throw error;
    }
  }
}

const isoTimes = (times: { expiresAt: number; lifetimeEndsAt: number }) => ({
  expiresAt: iso(times.expiresAt),
  lifetimeEndsAt: iso(times.lifetimeEndsAt),
});

const iso = (epochMs: number): string => new Date(epochMs).toISOString();
