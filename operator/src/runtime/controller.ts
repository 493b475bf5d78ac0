/** The Runtime controller: probes hosts, publishes what they can do, sweeps what nobody accounts for. */
import {
  clip,
  LIMITS,
  type Runtime,
  type RuntimeRescue,
  type Sandbox,
  skipsFinalizer,
  type World,
} from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isConflict, isNotFound } from "../kube/errors.ts";
import type { Log } from "../reconciler/log.ts";
import { mergePatchBetween } from "../reconciler/patch.ts";
import { type PassOutcome, type Phase, runPhases } from "../reconciler/phases.ts";
import { Overtaken } from "../reconciler/policy.ts";
import {
  CONTINUE,
  type PhaseResult,
  type Reconcile,
  type ReconcileContext,
  type ReconcileResult,
  STOP,
} from "../reconciler/reconcile.ts";
import { wordsOf } from "../reconciler/words-of.ts";
import { type AnnounceRuntime, announceChanges, announceOrphan } from "./announcements.ts";
import type { DriverPool } from "./driver-pool.ts";
import { RuntimeError } from "./errors.ts";
import { mayHaveUnnamedCompute } from "./open-boot.ts";
import { DEFAULT_RESCUE_SECONDS } from "./rescue-time.ts";
import type { RuntimeRescues } from "./rescues.ts";
import { deriveRuntimeStatus, type HostProbe } from "./status.ts";
import { sweepHost } from "./sweep.ts";

export interface RuntimeDependencies {
  readonly installation: string;
  readonly runtimes: { get(key: string): Runtime | undefined };
  readonly sandboxes: { list(): readonly Sandbox[] };
  readonly worldClient: ResourceClient<World>;
  readonly runtimeClient: ResourceClient<Runtime>;
  readonly sandboxClient: ResourceClient<Sandbox>;
  readonly drivers: DriverPool;
  readonly rescues: RuntimeRescues;
  /** Measures how many rescues a Runtime keeps; undefined: it is gone. Does not throw. */
  readonly rescuesKept: (runtime: string, count: number | undefined) => void;
  /** `host/prefix/installation` of version images, as the hosts name it. */
  readonly imagePrefix: string;
  readonly announce: AnnounceRuntime;
  readonly log: Log;
}

interface RuntimeScope {
  readonly dependencies: RuntimeDependencies;
  readonly context: ReconcileContext;
  /** The object as last read or written in this pass. */
  runtime: Runtime;
  /** Set by `probe`; absent: nobody was asked in this pass, so nothing is known anew. */
  probes?: readonly HostProbe[];
  /** Set by `sweep`: rescues whose container was removed. */
  over: readonly RuntimeRescue[];
}

/** How the last sweep of a host ended. */
type HostSweep = { readonly sweptAt: number } | "failed";

/** Always present: it must be there before the first session is, and a Runtime cannot know of that moment. */
export const RUNTIME_FINALIZER = "agentworlds.dev/runtime";

/** Hosts are asked this often. */
const PROBE_EVERY_MS = 30_000;
const PROBE_DEADLINE_MS = 10_000;
/** Containers and images are looked through this often, and when the leader starts. */
const SWEEP_EVERY_MS = 600_000;

export function reconcileRuntimes(dependencies: RuntimeDependencies): Reconcile {
  /** By Runtime, then by host. */
  const sweeps = new Map<string, Map<string, HostSweep>>();

  async function sweep(scope: RuntimeScope): Promise<PhaseResult> {
    const { name } = scope.runtime.metadata;
    if (isAnyHostBack(scope)) {
      // Its rescues get their time first: this pass writes that down, and the next one sweeps.
      sweeps.delete(name);
      return CONTINUE;
    }
    const known = sweeps.get(name) ?? new Map<string, HostSweep>();
    sweeps.set(name, known);
    await sweepAll(scope, known);
    return CONTINUE;
  }

  /** The life of a Runtime, in order. */
  const phases: readonly Phase<RuntimeScope>[] = [
    keepFinalizer, // holds a deleted Runtime while compute exists there, bounded
    probe, // what each host says
    sweep, // orphans quarantined, rescues that are over removed, images beyond the cache removed
  ];

  return async (key, context) => {
    const runtime = dependencies.runtimes.get(key);
    if (!runtime) {
      sweeps.delete(key);
      dependencies.rescuesKept(key, undefined);
      return {};
    }
    const scope: RuntimeScope = { dependencies, context, runtime, over: [] };
    return runPhases({ phases, scope, context, finish: summarise });
  };
}

async function keepFinalizer(scope: RuntimeScope): Promise<PhaseResult> {
  const { metadata, spec, status } = scope.runtime;
  if (!metadata.deletionTimestamp) {
    await setFinalizer(scope, true);
    return CONTINUE;
  }
  const inUse =
    (status?.rescues ?? []).length > 0 ||
    scope.dependencies.sandboxes.list().some((sandbox) => mayRunOn(sandbox, metadata.name));
  const boundAt = Date.parse(metadata.deletionTimestamp) + (spec.rescueSeconds ?? DEFAULT_RESCUE_SECONDS) * 1000;
  const isSkipped = skipsFinalizer(metadata);
  if (inUse && !isSkipped && scope.context.clock.now() < boundAt) return CONTINUE;
  if (inUse) tellWhatIsLeft(scope, isSkipped ? "an annotation skips the finalizer" : "its rescueSeconds are over");
  await setFinalizer(scope, false);
  return STOP;
}

/** With the Runtime goes the record of what its hosts keep: the log and the Event are what is left of it. */
function tellWhatIsLeft({ dependencies, runtime }: RuntimeScope, why: string): void {
  const { rescues = [] } = runtime.status ?? {};
  const places = rescues.map(
    ({ host, computeId, namespace, sandbox }) => `${host} as ${computeId} (${namespace}/${sandbox.name})`,
  );
  const kept = places.length === 0 ? "sessions still have containers there" : `containers stay on ${places.join(", ")}`;
  const message = clip(`the Runtime is gone: ${why}; ${kept}`, LIMITS.message);
  dependencies.log.error({ runtime: runtime.metadata.name, rescues }, message);
  dependencies.announce(
    { kind: "Runtime", object: runtime },
    { type: "Warning", reason: "FinalizerSkipped", action: "Delete", message },
  );
}

/** A session whose status has lost its container may have it on any Runtime that it could have been admitted to. */
function mayRunOn(sandbox: Sandbox, runtime: string): boolean {
  const { compute } = sandbox.status ?? {};
  if (compute) return compute.runtime === runtime;
  return mayHaveUnnamedCompute(sandbox) && (sandbox.spec.runtime?.name ?? runtime) === runtime;
}

async function setFinalizer(scope: RuntimeScope, present: boolean): Promise<void> {
  const { name, resourceVersion, finalizers = [] } = scope.runtime.metadata;
  if (finalizers.includes(RUNTIME_FINALIZER) === present) return;
  try {
    scope.runtime = await scope.dependencies.runtimeClient.patch(
      { name },
      {
        metadata: {
          resourceVersion,
          finalizers: present
            ? [...finalizers, RUNTIME_FINALIZER]
            : finalizers.filter((finalizer) => finalizer !== RUNTIME_FINALIZER),
        },
      },
      { signal: scope.context.signal },
    );
  } catch (error) {
    if (!isNotFound(error)) throw error;
    if (present) throw gone(scope.runtime, error);
  }
}

const gone = ({ metadata: { name } }: Runtime, cause: unknown): Overtaken =>
  new Overtaken(`Runtime ${name} was deleted`, { cause });

async function probe(scope: RuntimeScope): Promise<PhaseResult> {
  const { name } = scope.runtime.metadata;
  const hosts = scope.runtime.spec.docker?.hosts ?? [];
  const signal = AbortSignal.any([scope.context.signal, AbortSignal.timeout(PROBE_DEADLINE_MS)]);
  scope.probes = await Promise.all(
    hosts.map(async (host): Promise<HostProbe> => {
      try {
        const driver = await scope.dependencies.drivers.driverFor(name, host.name, signal);
        return { name: host.name, facts: await driver.probe(signal) };
      } catch (error) {
        scope.context.signal.throwIfAborted();
        if (error instanceof RuntimeError) return { name: host.name, problem: error.message };
        if (signal.aborted) return { name: host.name, problem: `no answer within ${PROBE_DEADLINE_MS / 1000} s` };
        // Nobody foresaw it, and the other hosts have their turn all the same.
        scope.dependencies.log.error({ runtime: name, host: host.name, err: error }, "a host could not be asked");
        return { name: host.name, problem: wordsOf(error) };
      }
    }),
  );
  return CONTINUE;
}

const isAnyHostBack = ({ runtime, probes = [] }: RuntimeScope): boolean =>
  probes.some(
    (probed) =>
      "facts" in probed &&
      runtime.status?.hosts?.some(({ name, unreachableAt }) => name === probed.name && unreachableAt !== undefined),
  );

/** Every host has its turn, whatever becomes of another's; one that failed is due at once, after the others. */
async function sweepAll(scope: RuntimeScope, known: Map<string, HostSweep>): Promise<void> {
  const { clock, signal } = scope.context;
  const now = clock.now();
  const isDue = (host: string): boolean => {
    const last = known.get(host);
    return last === undefined || last === "failed" || now - last.sweptAt >= SWEEP_EVERY_MS;
  };
  const due = (scope.probes ?? []).flatMap((probed) => ("facts" in probed && isDue(probed.name) ? [probed.name] : []));
  const hasFailed = (host: string): number => (known.get(host) === "failed" ? 1 : 0);
  const failures: unknown[] = [];
  for (const host of due.sort((one, other) => hasFailed(one) - hasFailed(other))) {
    try {
      await sweepOne(scope, host);
      known.set(host, { sweptAt: now });
    } catch (error) {
      // Also where it took all of the pass: the next one begins with the others.
      known.set(host, "failed");
      signal.throwIfAborted();
      scope.dependencies.log.warn({ host, err: error }, "a host could not be looked through; it is tried again");
      failures.push(error);
    }
  }
  if (failures.length === 1) throw failures[0];
  if (failures.length > 1)
    throw new AggregateError(
      failures,
      `${failures.length} hosts could not be looked through: ${failures.map(wordsOf).join("; ")}`,
    );
}

async function sweepOne(scope: RuntimeScope, host: string): Promise<void> {
  const { dependencies, runtime, context } = scope;
  const driver = await dependencies.drivers.driverFor(runtime.metadata.name, host, context.signal);
  const { over, orphans } = await sweepHost({
    runtime,
    host,
    driver,
    installation: dependencies.installation,
    sandboxes: dependencies.sandboxClient,
    worlds: dependencies.worldClient,
    runtimes: dependencies.runtimeClient,
    rescues: dependencies.rescues,
    now: context.clock.now(),
    log: dependencies.log,
    signal: context.signal,
  });
  for (const orphan of orphans) announceOrphan(dependencies.announce, runtime, orphan);
  scope.over = [...scope.over, ...over];
  const removed = await driver.pruneImages(
    { repositoryPrefix: dependencies.imagePrefix, keep: runtime.spec.imageCache?.keepImages ?? 10 },
    context.signal,
  );
  if (removed.length > 0) dependencies.log.info({ host, removed }, "version images left the host's cache");
}

async function summarise(scope: RuntimeScope, outcome: PassOutcome): Promise<ReconcileResult> {
  const { dependencies, context } = scope;
  if (outcome.kind === "stopped" || context.signal.aborted) return {};
  const failure = outcome.kind === "failed" ? outcome.error : undefined;
  if (isConflict(failure) || failure instanceof Overtaken) return {};
  const { runtime, probes } = scope;
  if (!probes) return {};
  dependencies.rescuesKept(runtime.metadata.name, (runtime.status?.rescues ?? []).length);
  const derived = deriveRuntimeStatus(runtime, {
    probes,
    sandboxes: dependencies.sandboxes.list(),
    now: context.clock.now(),
  });
  const over = new Set(scope.over.map((rescue) => rescue.operation));
  const rescues = derived.rescues?.filter((rescue) => !over.has(rescue.operation));
  const patch = mergePatchBetween({ ...runtime.status }, { ...derived, ...(rescues === undefined ? {} : { rescues }) });
  if (patch) {
    scope.runtime = await writeStatus(scope, patch);
    announceChanges(dependencies.announce, { before: runtime, after: scope.runtime, over: scope.over });
  }
  return { requeueAfterMs: PROBE_EVERY_MS };
}

async function writeStatus({ dependencies, context, runtime }: RuntimeScope, status: object): Promise<Runtime> {
  const { name, resourceVersion } = runtime.metadata;
  try {
    return await dependencies.runtimeClient.patchStatus(
      { name },
      { metadata: { resourceVersion }, status },
      { signal: context.signal },
    );
  } catch (error) {
    throw isNotFound(error) ? gone(runtime, error) : error;
  }
}
