/** The controller role: one leader among the replicas runs the three controllers; the others wait with warm caches. */
import type { Runtime, Sandbox, World } from "@agentworlds/crds";
import type { Logger } from "pino";
import type { Config } from "../config.ts";
import { GatewayLeases } from "../gateway/gateway-lease.ts";
import { GatewayWatch } from "../gateway/gateway-watch.ts";
import { withdrawIfNoGateway } from "../gateway/registration.ts";
import type { KubeClient, ResourceClient } from "../kube/contract.ts";
import { EventRecorder } from "../kube/events.ts";
import { NAMESPACES, RUNTIMES, SANDBOXES, SECRETS, type Secret, WORLDS } from "../kube/resource-types.ts";
import type { Clock } from "../reconciler/clock.ts";
import { type Controller, createController } from "../reconciler/controller.ts";
import { LeaderElector, type Lease } from "../reconciler/lease.ts";
import type { ReconcilerMetrics } from "../reconciler/metrics.ts";
import { WorkQueue } from "../reconciler/workqueue.ts";
import { type InstallationRegistry, withClient } from "../registry/installation.ts";
import type { ImageSources } from "../registry/sources.ts";
import { reconcileRuntimes } from "../runtime/controller.ts";
import { COMMIT_MS } from "../runtime/docker/images.ts";
import type { DriverPool } from "../runtime/driver-pool.ts";
import { createRuntimeRescues } from "../runtime/rescues.ts";
import { createComputeSearch } from "../runtime/search.ts";
import { sessionEnvironment } from "../runtime/session-environment.ts";
import { AdmissionDesk } from "../sandbox/admission.ts";
import { reconcileSandboxes } from "../sandbox/controller.ts";
import { createDockerCommit } from "../snapshot/docker-commit.ts";
import type { OperatorMetrics } from "../telemetry/metrics.ts";
import { reconcileWorlds } from "../world/controller.ts";
import type { DriverFor, NamespaceObject } from "../world/scope.ts";
import { createWorldStatusWriter } from "../world/status-writer.ts";
import { LineageVerifier, type VerificationMetrics } from "../world/verifier.ts";
import { announcer } from "./announcer.ts";
import { createComputeOf } from "./compute-of.ts";
import { guardedDriver, guardedRegistry, type IsLeading } from "./leader-guard.ts";
import { feedQueues, type Mirrors, type Queues, sandboxIntent, worldIntent } from "./mirror.ts";

export interface ControllerParts {
  readonly config: Config;
  /** Id of this installation. */
  readonly installation: string;
  readonly kube: KubeClient;
  /** Over connections of its own: renewing the lease must not wait behind the calls of all the work. */
  readonly leases: ResourceClient<Lease>;
  readonly mirrors: Mirrors;
  readonly drivers: DriverPool;
  readonly registry: InstallationRegistry;
  readonly sources: ImageSources;
  readonly metrics: ReconcilerMetrics;
  readonly verification: VerificationMetrics;
  readonly rescueMetrics: OperatorMetrics["rescues"];
  readonly log: Logger;
  /** Name of this process, for the lease and for Events. */
  readonly identity: string;
  /** What deadlines are judged by. */
  readonly clock: Clock;
}

export interface ControllerRole {
  /** Runs until `stop` aborts; a lost lease is no end, the process queues up again. */
  run(stop: AbortSignal): Promise<void>;
  /** What keeps this process from leading or following, one sentence each. */
  problems(): readonly string[];
}

export const CONTROLLERS = ["world", "sandbox", "runtime"] as const;
const LEASE_NAME = "agent-worlds-controller";
/** How often the leader looks whether a gateway still serves what is registered. */
const GATEWAY_CHECK_MS = 10_000;

/** Longer than the longest call that has a bound of its own, a commit, and what surrounds it: such a call fails by itself. */
const PASS_DEADLINE_MS = COMMIT_MS + 10 * 60_000;

export function createControllerRole(parts: ControllerParts): ControllerRole {
  const { config, leases, metrics, log } = parts;
  const { leaseDurationSeconds, renewDeadlineSeconds, retryPeriodSeconds } = config.leader;
  const elector = new LeaderElector({
    client: leases,
    lease: { namespace: config.namespace, name: LEASE_NAME },
    identity: parts.identity,
    leaseDurationMs: leaseDurationSeconds * 1000,
    clock: parts.clock,
    renewDeadlineMs: renewDeadlineSeconds * 1000,
    retryMs: retryPeriodSeconds * 1000,
    log,
    metrics,
  });
  return {
    run: (stop) =>
      elector.run({
        stop,
        lead: (lost) =>
          lead(
            guarded(parts, () => elector.isLeading()),
            { stop, lost },
          ),
      }),
    problems: () => (elector.holder() === undefined ? ["it is not known who leads"] : []),
  };
}

/** The parts of a leader: each effect that cannot be taken back asks first whether this process still leads. */
function guarded(parts: ControllerParts, isLeading: IsLeading): ControllerParts {
  const { registry, drivers } = parts;
  return {
    ...parts,
    registry: withClient(registry, guardedRegistry(registry.client, isLeading)),
    drivers: {
      driverFor: async (...call) => guardedDriver(await drivers.driverFor(...call), isLeading),
      close: () => drivers.close(),
    },
  };
}

/** Leads until the lease is lost (everything in flight is aborted) or until an orderly stop has drained. */
async function lead(parts: ControllerParts, signals: { stop: AbortSignal; lost: AbortSignal }): Promise<void> {
  const { config, kube, log } = parts;
  const recorder = new EventRecorder({
    client: kube,
    controller: "agentworlds.dev/operator",
    instance: parts.identity,
    log,
  });
  try {
    const starting = AbortSignal.any([signals.lost, signals.stop]);
    await parts.mirrors.synced(starting);
    const queues = makeQueues(parts);
    const verifier = makeVerifier(parts, queues);
    const controllers = makeControllers(parts, { queues, recorder, verifier });
    const leave = feedQueues(parts.mirrors, queues);
    log.info({ installation: parts.installation }, "this process leads");
    const drain = () => {
      for (const controller of controllers) void controller.drain(config.limits.drainSeconds * 1000);
    };
    signals.stop.addEventListener("abort", drain, { once: true });
    if (signals.stop.aborted) drain();
    const until = AbortSignal.any([signals.lost, signals.stop]);
    const watching = watchGateways(parts, until);
    const verifying = verifier.run(until);
    try {
      await Promise.all(controllers.map((controller) => controller.run(signals.lost)));
    } finally {
      signals.stop.removeEventListener("abort", drain);
      leave();
      await Promise.all([watching, verifying]);
    }
    await recorder.flush(AbortSignal.timeout(2_000));
  } finally {
    await recorder.close();
  }
}

function makeQueues({ metrics, clock }: ControllerParts): Queues {
  return {
    worlds: new WorkQueue({ name: "world", metrics, clock }),
    sandboxes: new WorkQueue({ name: "sandbox", metrics, clock }),
    runtimes: new WorkQueue({ name: "runtime", metrics, clock }),
  };
}

function makeVerifier(parts: ControllerParts, queues: Queues): LineageVerifier {
  const { kube, mirrors, registry, clock, log, verification, config } = parts;
  return new LineageVerifier({
    worlds: mirrors.worlds,
    writer: createWorldStatusWriter(kube.resource<World>(WORLDS)),
    registry,
    clock,
    log,
    metrics: verification,
    intervalMs: config.verification.intervalSeconds * 1000,
    callsPerSecond: config.verification.callsPerSecond,
    onChange: (key) => queues.worlds.add(key),
  });
}

function makeControllers(
  parts: ControllerParts,
  leading: { queues: Queues; recorder: EventRecorder; verifier: LineageVerifier },
): Controller[] {
  const { installation, kube, mirrors, registry, sources, drivers, log, metrics, config, clock } = parts;
  const { queues } = leading;
  const writer = createWorldStatusWriter(kube.resource<World>(WORLDS));
  const sandboxClient = kube.resource<Sandbox>(SANDBOXES);
  const runtimeClient = kube.resource<Runtime>(RUNTIMES);
  const runtimeRescues = createRuntimeRescues(runtimeClient, log);
  const announce = announcer(leading.recorder);
  const { worlds, sandboxes, runtimes } = mirrors;
  const namespaces = kube.resource<NamespaceObject>(NAMESPACES);
  const search = createComputeSearch({ installation, runtimes, drivers });
  const snapshots = createDockerCommit(registry);
  const driverFor: DriverFor = (runtime, host, signal) => drivers.driverFor(runtime, host, signal);
  const shared = { log, metrics, clock };
  return [
    createController({
      name: "world",
      queue: queues.worlds,
      // A new leader looks at every World again; a new World must not wait behind all of them.
      workers: config.limits.workers,
      passDeadlineMs: PASS_DEADLINE_MS,
      reconcile: reconcileWorlds({
        installation,
        writer,
        worlds,
        sandboxes,
        sandboxClient,
        runtimes,
        namespaces,
        registry,
        sources,
        findingsOf: (uid) => leading.verifier.findingsOf(uid),
        computeOf: createComputeOf(search),
        driverFor,
        snapshots,
        runtimeRescues,
        metrics: parts.rescueMetrics,
        announce,
        log,
        limits: { deletionDeadlineMs: config.limits.deletionDeadlineSeconds * 1000 },
      }),
      intent: (key) => worldIntent(worlds.get(key)),
      ...shared,
    }),
    createController({
      name: "sandbox",
      queue: queues.sandboxes,
      workers: config.limits.workers,
      passDeadlineMs: PASS_DEADLINE_MS,
      reconcile: reconcileSandboxes({
        installation,
        sandboxes,
        sandboxClient,
        worlds,
        worldWriter: writer,
        runtimes,
        runtimeRescues,
        namespaces,
        driverFor,
        environmentOf: (sandbox, signal) => sessionEnvironment(sandbox, kube.resource<Secret>(SECRETS), signal),
        search,
        registry,
        sources,
        snapshots,
        admission: new AdmissionDesk(),
        announce,
        log,
        limits: {
          deletionDeadlineMs: config.limits.deletionDeadlineSeconds * 1000,
          bootDeadlineMs: config.limits.bootDeadlineSeconds * 1000,
          rescueAfterMs: config.limits.rescueAfterSeconds * 1000,
        },
      }),
      intent: (key) => sandboxIntent(mirrors, key),
      ...shared,
    }),
    createController({
      name: "runtime",
      queue: queues.runtimes,
      reconcile: reconcileRuntimes({
        installation,
        runtimes,
        sandboxes,
        worldClient: kube.resource<World>(WORLDS),
        runtimeClient,
        sandboxClient,
        drivers,
        rescues: runtimeRescues,
        rescuesKept: parts.rescueMetrics.rescuesKept,
        imagePrefix: registry.asHostsNameIt(`${registry.prefix}/${installation}`),
        announce,
        log,
      }),
      ...shared,
    }),
  ];
}

/**
 * Gateways that were killed leave an APIService without a backend, and every namespace deletion hangs on it (DESIGN §6), or
 * a webhook without one, and every creation fails on it.
 */
async function watchGateways({ kube, config, log, clock }: ControllerParts, signal: AbortSignal): Promise<void> {
  const { namespace } = config;
  const gateways = new GatewayWatch({ leases: new GatewayLeases(kube, namespace), clock });
  while (!signal.aborted) {
    try {
      const result = await withdrawIfNoGateway(kube, { gateways, namespace, signal });
      if (result === "Withdrawn") log.warn({}, "no gateway is alive: what led kube-apiserver to one was withdrawn");
      await clock.sleep(GATEWAY_CHECK_MS, signal);
    } catch (error) {
      if (signal.aborted) return;
      log.warn({ err: error }, "could not look after the gateways; it is tried again");
      await clock.sleep(GATEWAY_CHECK_MS, signal).catch((reason: unknown) => {
        if (!signal.aborted) throw reason;
      });
    }
  }
}
