/** Everything one process runs, from settings to an orderly end. */
import { hostname } from "node:os";
import type { Logger } from "pino";
import type { Config } from "../config.ts";
import { installationId } from "../installation.ts";
import { createKubeClient } from "../kube/client.ts";
import { type ConnectionSource, expectConfigured } from "../kube/connection.ts";
import { LEASES } from "../kube/resource-types.ts";
import { systemClock } from "../reconciler/clock.ts";
import type { Lease } from "../reconciler/lease.ts";
import { serveHealth, serveMetrics } from "../telemetry/endpoints.ts";
import { createMetrics } from "../telemetry/metrics.ts";
import { CONTROLLERS, createControllerRole } from "./controllers.ts";
import { openDrivers } from "./drivers.ts";
import { createGatewayRole } from "./gateway.ts";
import { createMirrors, type Mirrors } from "./mirror.ts";
import { patiently } from "./patience.ts";
import { openRegistries } from "./registries.ts";
import { onPort } from "./taken-port.ts";

export interface RunOptions {
  readonly config: Config;
  readonly connection: ConnectionSource;
  readonly log: Logger;
  /** Aborts to ask for an orderly end. */
  readonly stop: AbortSignal;
}

interface Role {
  run(stop: AbortSignal): Promise<void>;
  problems(): readonly string[];
}

/** Runs until `stop` aborts. Rejects when a part cannot be started, or ends although nobody asked it to. */
export async function runOperator({ config, connection, log, stop }: RunOptions): Promise<void> {
  // An API server that does not answer heals; a file that is not there is a wrong setting, and nothing to wait for.
  await expectConfigured(connection);
  const identity = dnsLabel(`${hostname()}-${process.pid}`);
  const {
    registry: series,
    reconciler: metrics,
    verification,
    rescues: rescueMetrics,
  } = createMetrics({
    controllers: CONTROLLERS,
    resources: ["worlds", "sandboxes", "runtimes"],
  });
  await using parts = new AsyncDisposableStack();
  const kube = parts.adopt(createKubeClient({ source: connection }), (client) => client.close());
  const elections = parts.adopt(createKubeClient({ source: connection, poolSize: 2 }), (client) => client.close());
  const mirrors = createMirrors({ kube, log, metrics });
  // Both roles act on containers, and on this installation's only.
  const installation = await patiently(
    () => installationId(kube, { namespace: config.namespace, wanted: config.installation }, stop),
    { log, stop },
  );
  const drivers = parts.adopt(openDrivers(config, { installation, kube, mirrors, log }), (pool) => pool.close());
  const shared = { config, installation, kube, mirrors, drivers, log, identity };
  const roles: Role[] = [];
  if (config.role !== "gateway") {
    const { registry, sources } = parts.adopt(
      await patiently(() => openRegistries(config, { installation, kube }, stop), { log, stop }),
      (opened) => opened.close(),
    );
    roles.push(
      createControllerRole({
        ...shared,
        leases: elections.resource<Lease>(LEASES),
        registry,
        sources,
        metrics,
        verification,
        rescueMetrics,
        clock: systemClock,
      }),
    );
  }
  // A gateway asks no registry: what is wrong with one keeps no gateway from serving.
  if (config.role !== "controller") roles.push(createGatewayRole(shared));
  const metricsEndpoint = () => serveMetrics({ port: config.metrics.port, registry: series });
  parts.adopt(await onPort("metrics", metricsEndpoint), (endpoint) => endpoint.close());
  const problems = () => [...mirrors.problems(), ...roles.flatMap((role) => role.problems())];
  const healthEndpoint = () => serveHealth({ port: config.health.port, problems });
  parts.adopt(await onPort("health", healthEndpoint), (endpoint) => endpoint.close());
  await runRoles(roles, { mirrors, stop });
  log.info({}, "stopped in order");
}

/** The caches outlive the roles: a role that drains still reads them. */
async function runRoles(
  roles: readonly Role[],
  { mirrors, stop }: { mirrors: Mirrors; stop: AbortSignal },
): Promise<void> {
  const cachesEnd = new AbortController();
  const caches = mirrors.run(cachesEnd.signal);
  const failed = new AbortController();
  const end = AbortSignal.any([stop, failed.signal]);
  try {
    await Promise.all(
      roles.map(async (role) => {
        try {
          await role.run(end);
        } catch (error) {
          if (stop.aborted && error === stop.reason) return;
          failed.abort(error);
          throw error;
        }
      }),
    );
  } finally {
    cachesEnd.abort();
    await caches;
  }
}

/** A name as Kubernetes takes it: lower case letters, digits and `-`, at most 63. */
const dnsLabel = (name: string): string =>
  name
    .toLowerCase()
    .replace(/[^a-z0-9-]/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(-63)
    .replace(/^-+/, "");
