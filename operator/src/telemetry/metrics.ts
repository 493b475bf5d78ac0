/** What the reconciler measures, as Prometheus series. Label sets start at zero, so that rates exist before the first error. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import { PASS_ENDS, type ReconcilerMetrics, WATCH_ENDS } from "../reconciler/metrics.ts";

const SECONDS = [0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300];

export interface OperatorMetrics {
  /** What the endpoint serves: the operator's own metrics and those of its process. */
  readonly registry: Registry;
  /** Names of the operator's own metrics. */
  readonly ownNames: readonly string[];
  readonly reconciler: ReconcilerMetrics;
  /** What the periodic verification of versions reports. */
  readonly verification: {
    verified(sample: { versions: number; at: number }): void;
    failed(): void;
    damaged(versions: number): void;
  };
  readonly rescues: RescueSeries;
}

/** What is measured of work that could not be published. */
export interface RescueSeries {
  /** How many rescues a Runtime keeps; undefined: the Runtime is gone. */
  rescuesKept(runtime: string, count: number | undefined): void;
  rescueRetried(outcome: (typeof RETRIES)[number]): void;
  workLost(cause: (typeof LOSSES)[number]): void;
}

const RETRIES = ["published", "failed"] as const;
const LOSSES = ["Expired", "Discarded", "ContainerGone"] as const;

export function createMetrics(known: {
  controllers: readonly string[];
  resources: readonly string[];
}): OperatorMetrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, prefix: "agentworlds_" });
  const ofTheProcess = new Set(registry.getMetricsAsArray().map(({ name }) => name));
  const registers = [registry];
  const reconciles = new Counter({
    name: "agentworlds_reconcile_total",
    help: "Passes of a controller by how they ended.",
    labelNames: ["controller", "outcome"],
    registers,
  });
  const reconcileSeconds = new Histogram({
    name: "agentworlds_reconcile_seconds",
    help: "Duration of a pass, in seconds.",
    labelNames: ["controller"],
    buckets: SECONDS,
    registers,
  });
  const busy = new Gauge({
    name: "agentworlds_workers_busy",
    help: "Workers of a controller that are in a pass now.",
    labelNames: ["controller"],
    registers,
  });
  const depth = new Gauge({
    name: "agentworlds_queue_depth",
    help: "Keys that wait for a worker.",
    labelNames: ["queue"],
    registers,
  });
  const waited = new Histogram({
    name: "agentworlds_queue_wait_seconds",
    help: "Time a key waited between becoming due and being taken, in seconds.",
    labelNames: ["queue"],
    buckets: SECONDS,
    registers,
  });
  const objects = new Gauge({
    name: "agentworlds_cache_objects",
    help: "Objects of the last complete list of a resource.",
    labelNames: ["resource"],
    registers,
  });
  const heard = new Gauge({
    name: "agentworlds_watch_last_event_timestamp_seconds",
    help: "When a watch last heard anything, in seconds since 1970.",
    labelNames: ["resource"],
    registers,
  });
  const watches = new Counter({
    name: "agentworlds_watch_closed_total",
    help: "Watches that ended, by cause.",
    labelNames: ["resource", "cause"],
    registers,
  });
  const reflectorFailures = new Counter({
    name: "agentworlds_reflector_failures_total",
    help: "Lists and watches that failed and are tried again.",
    labelNames: ["resource", "during"],
    registers,
  });
  const listenerFailures = new Counter({
    name: "agentworlds_listener_failures_total",
    help: "Listeners of a cache that threw.",
    labelNames: ["resource"],
    registers,
  });
  const leads = new Gauge({
    name: "agentworlds_leader",
    help: "1 while this process leads, 0 while it could and does not.",
    labelNames: ["lease"],
    registers,
  });

  const verified = new Counter({
    name: "agentworlds_versions_verified_total",
    help: "Versions that the periodic verification has looked at in the registry.",
    registers,
  });
  const unverified = new Counter({
    name: "agentworlds_verification_failures_total",
    help: "Worlds whose versions could not be looked at because the registry did not answer.",
    registers,
  });
  const verifiedAt = new Gauge({
    name: "agentworlds_verification_last_timestamp_seconds",
    help: "When the versions of a World were last looked at, in seconds since 1970; 0 before the first.",
    registers,
  });
  const damaged = new Gauge({
    name: "agentworlds_versions_damaged",
    help: "Listed versions that are known to be missing or damaged in the registry; the leader knows.",
    registers,
  });

  const kept = new Gauge({
    name: "agentworlds_rescues",
    help: "Stopped containers that a Runtime keeps because their work could not be published; the leader knows.",
    labelNames: ["runtime"],
    registers,
  });
  const retries = new Counter({
    name: "agentworlds_rescue_retries_total",
    help: "Attempts to publish rescued work, by how they ended.",
    labelNames: ["outcome"],
    registers,
  });
  const losses = new Counter({
    name: "agentworlds_work_lost_total",
    help: "Rescues that ended in no version, by cause.",
    labelNames: ["cause"],
    registers,
  });

  for (const outcome of RETRIES) retries.inc({ outcome }, 0);
  for (const cause of LOSSES) losses.inc({ cause }, 0);
  for (const controller of known.controllers) {
    for (const outcome of PASS_ENDS) reconciles.inc({ controller, outcome }, 0);
    depth.set({ queue: controller }, 0);
    busy.set({ controller }, 0);
  }
  for (const resource of known.resources) {
    for (const cause of WATCH_ENDS) watches.inc({ resource, cause }, 0);
    for (const during of ["list", "watch"]) reflectorFailures.inc({ resource, during }, 0);
    listenerFailures.inc({ resource }, 0);
  }

  return {
    registry,
    ownNames: registry
      .getMetricsAsArray()
      .map(({ name }) => name)
      .filter((name) => !ofTheProcess.has(name)),
    verification: {
      verified({ versions, at }) {
        verified.inc(versions);
        verifiedAt.set(at / 1000);
      },
      failed: () => unverified.inc(),
      damaged: (versions) => damaged.set(versions),
    },
    rescues: {
      rescuesKept: (runtime, count) => (count === undefined ? kept.remove({ runtime }) : kept.set({ runtime }, count)),
      rescueRetried: (outcome) => retries.inc({ outcome }),
      workLost: (cause) => losses.inc({ cause }),
    },
    reconciler: {
      listed: (resource, { items }) => objects.set({ resource }, items),
      watchHeard: (resource, { at }) => heard.set({ resource }, at / 1000),
      watchClosed: (resource, cause) => watches.inc({ resource, cause }),
      reflectorFailed: (resource, during) => reflectorFailures.inc({ resource, during }),
      listenerFailed: (resource) => listenerFailures.inc({ resource }),
      queueDepth: (queue, value) => depth.set({ queue }, value),
      queueWaited: (queue, milliseconds) => waited.observe({ queue }, milliseconds / 1000),
      reconciled(controller, { outcome, milliseconds }) {
        reconciles.inc({ controller, outcome });
        reconcileSeconds.observe({ controller }, milliseconds / 1000);
      },
      workersBusy: (controller, value) => busy.set({ controller }, value),
      leading(lease, value) {
        leads.set({ lease }, value ? 1 : 0);
        if (value) return;
        // What another process knows now would stay here as it was, and be counted twice or never heal.
        kept.reset();
        damaged.set(0);
      },
    },
  };
}
