/** The drivers of every host of every Runtime: made when first asked for, kept while nothing about the host changes. */
import { createHash } from "node:crypto";
import type { Runtime, RuntimeHost } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import type { RuntimeDriver } from "./contract.ts";
import { RuntimeError } from "./errors.ts";

export interface SecretObject extends KubeObject {
  /** Values in base64. */
  readonly data?: Readonly<Record<string, string>>;
}

/** Client certificate of a `tcp://` endpoint, PEM. */
export interface HostTls {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

export interface DriverPoolOptions {
  readonly runtimes: { get(key: string): Runtime | undefined };
  readonly secrets: ResourceClient<SecretObject>;
  /** Namespace of the TLS Secrets: the operator's own. */
  readonly namespace: string;
  readonly makeDriver: (host: { endpoint: string; tls: HostTls | undefined }) => RuntimeDriver;
  readonly clock: Clock;
}

export interface DriverPool {
  /** Throws `HostUnreachable` when the Runtime, the host or its Secret is not there. */
  driverFor(runtime: string, host: string, signal: AbortSignal): Promise<RuntimeDriver>;
  close(): Promise<void>;
}

/** A rotated certificate is picked up after at most this long. */
const TLS_FRESH_MS = 60_000;

interface PooledDriver {
  readonly fingerprint: string;
  readonly driver: RuntimeDriver;
}

export function createDriverPool(options: DriverPoolOptions): DriverPool {
  const drivers = new Map<string, PooledDriver>();
  const tlsByName = new Map<string, { readonly readAt: number; readonly tls: HostTls }>();

  async function tlsOf(host: RuntimeHost, signal: AbortSignal): Promise<HostTls | undefined> {
    const name = host.tlsSecretRef?.name;
    if (name === undefined) return undefined;
    const known = tlsByName.get(name);
    if (known && options.clock.now() - known.readAt < TLS_FRESH_MS) return known.tls;
    const tls = await readTls(options, name, signal);
    tlsByName.set(name, { readAt: options.clock.now(), tls });
    return tls;
  }

  return {
    async driverFor(runtimeName, hostName, signal) {
      const host = options.runtimes.get(runtimeName)?.spec.docker?.hosts.find((one) => one.name === hostName);
      if (!host) throw new RuntimeError("HostUnreachable", `Runtime ${runtimeName} has no host ${hostName}`);
      const tls = await tlsOf(host, signal);
      const fingerprint = createHash("sha256")
        .update(JSON.stringify([host.endpoint, tls]))
        .digest("hex");
      const key = `${runtimeName}/${hostName}`;
      const pooled = drivers.get(key);
      if (pooled?.fingerprint === fingerprint) return pooled.driver;
      const driver = options.makeDriver({ endpoint: host.endpoint, tls });
      drivers.set(key, { fingerprint, driver });
      // Calls in flight on the old connection may still end; they hold their own reference.
      await pooled?.driver.close();
      return driver;
    },

    async close() {
      await Promise.all([...drivers.values()].map(({ driver }) => driver.close()));
      drivers.clear();
    },
  };
}

async function readTls({ secrets, namespace }: DriverPoolOptions, name: string, signal: AbortSignal): Promise<HostTls> {
  let secret: SecretObject;
  try {
    secret = await secrets.get({ namespace, name }, { signal });
  } catch (error) {
    if (!isNotFound(error)) throw error;
    throw new RuntimeError("HostUnreachable", `Secret ${namespace}/${name} does not exist`, { cause: error });
  }
  const pem = (key: string): string => {
    const value = secret.data?.[key];
    if (value === undefined) throw new RuntimeError("HostUnreachable", `Secret ${namespace}/${name} has no ${key}`);
    return Buffer.from(value, "base64").toString("utf8");
  };
  return { cert: pem("tls.crt"), key: pem("tls.key"), ca: pem("ca.crt") };
}
