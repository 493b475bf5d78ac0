/** The gateway role: the sessions API, in every replica; needs no leader. */
import { readFile } from "node:fs/promises";
import type { Logger } from "pino";
import { type Config, ConfigError, settingName } from "../config.ts";
import { sandboxReader } from "../gateway/sandbox-store.ts";
import { createGateway } from "../gateway/server.ts";
import type { KubeClient } from "../kube/contract.ts";
import { systemClock } from "../reconciler/clock.ts";
import { whenAborted } from "../reconciler/deadline.ts";
import { wordsOf } from "../reconciler/words-of.ts";
import type { DriverPool } from "../runtime/driver-pool.ts";
import type { Mirrors } from "./mirror.ts";
import { onPort } from "./taken-port.ts";

export interface GatewayParts {
  readonly config: Config;
  readonly kube: KubeClient;
  readonly mirrors: Mirrors;
  readonly drivers: DriverPool;
  readonly log: Logger;
  /** Name of this process; a DNS label. */
  readonly identity: string;
}

export interface GatewayRole {
  /** Serves until `stop` aborts, then withdraws the API if this was the last gateway, and drains. */
  run(stop: AbortSignal): Promise<void>;
  problems(): readonly string[];
}

export function createGatewayRole(parts: GatewayParts): GatewayRole {
  let serving = false;
  return {
    async run(stop) {
      const admissionClientCa = await admissionClientCaOf(parts.config);
      await parts.mirrors.synced(stop);
      const create = () =>
        createGateway({
          kube: parts.kube,
          sandboxes: sandboxReader(parts.kube, systemClock),
          drivers: (runtime, host, signal) => parts.drivers.driverFor(runtime, host, signal),
          clock: systemClock,
          logger: parts.log,
          config: {
            namespace: parts.config.namespace,
            name: parts.identity,
            host: parts.config.gateway.address,
            port: parts.config.gateway.port,
            ...wayOf(parts.config),
            ...(admissionClientCa === undefined ? {} : { admissionClientCa }),
          },
          signal: stop,
        });
      const gateway = await onPort("gateway", create);
      serving = true;
      parts.log.info({ port: gateway.port }, "the sessions API is served");
      await whenAborted(stop);
      serving = false;
      await gateway.stop();
    },
    problems: () => (serving ? [] : ["the sessions API is not served yet"]),
  };
}

function wayOf({ gateway }: Config) {
  const { service, aggregation, creatorStamp } = gateway;
  const backend =
    service === "ExternalName"
      ? ({ kind: "External", host: "localhost" } as const)
      : ({ kind: "InCluster", port: 443 } as const);
  return { backend, aggregation, creatorStamp };
}

async function admissionClientCaOf({ gateway }: Config): Promise<string | undefined> {
  const file = gateway.admissionClientCaFile;
  if (file === undefined) return undefined;
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    const why = wordsOf(error);
    throw new ConfigError(`${settingName(["gateway", "admissionClientCaFile"])} cannot be read: ${why}`);
  }
}
