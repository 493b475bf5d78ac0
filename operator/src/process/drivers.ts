/** The drivers of every Runtime's hosts, with the helper that they put into containers. */
import { SANDBOXES, type Sandbox } from "@agentworlds/crds";
import type { Config } from "../config.ts";
import type { KubeClient } from "../kube/contract.ts";
import { SECRETS, type Secret } from "../kube/resource-types.ts";
import { systemClock } from "../reconciler/clock.ts";
import type { Log } from "../reconciler/log.ts";
import { createDockerDriver } from "../runtime/docker/driver.ts";
import { createDriverPool, type DriverPool } from "../runtime/driver-pool.ts";
import { loadHelper } from "../runtime/helper.ts";
import type { Mirrors } from "./mirror.ts";
import { startPermit } from "./start-permit.ts";

export function openDrivers(
  config: Config,
  parts: { installation: string; kube: KubeClient; mirrors: Mirrors; log: Log },
): DriverPool {
  const { path } = config.helper;
  return createDriverPool({
    runtimes: parts.mirrors.runtimes,
    secrets: parts.kube.resource<Secret>(SECRETS),
    namespace: config.namespace,
    makeDriver: ({ endpoint, tls }) =>
      createDockerDriver({
        installation: parts.installation,
        endpoint,
        helper: (platform, signal) =>
          loadHelper({ platform, ...(path === undefined ? {} : { helperPath: path }) }, signal),
        ...(tls === undefined ? {} : { tls }),
        // The roles of one process know of each other.
        ...(config.role === "gateway" ? { mayStart: startPermit(parts.kube.resource<Sandbox>(SANDBOXES)) } : {}),
      }),
    clock: systemClock,
    log: parts.log,
  });
}
