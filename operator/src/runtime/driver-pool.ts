/** The drivers of every host of every Runtime: made when first asked for, kept while nothing about the host changes. */
import { createHash } from "node:crypto";
import type { Runtime, RuntimeHost } from "@agentworlds/crds";
import type { ResourceClient } from "../kube/contract.ts";
import { isNotFound } from "../kube/errors.ts";
import type { Clock } from "../reconciler/clock.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import type { Log } from "../reconciler/log.ts";
import { wordsOf } from "../reconciler/words-of.ts";
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
  readonly log: Log;
}

export interface DriverPool {
  /** Throws `HostUnreachable` when the Runtime, the host or its Secret is not there, or the Secret cannot be read. */
  driverFor(runtime: string, host: string, signal: AbortSignal): Promise<RuntimeDriver>;
  close(): Promise<void>;
}

/** A rotated certificate is picked up after at most this long. */
const TLS_FRESH_MS = 60_000;
/** Whoever got a driver may go on using it for as long as a pass takes at most; an unused one holds no connection. */
const RETIRED_MS = 10 * 60_000;
/** Calls in flight after that are let end within the longest deadline a call has: a commit's. */
const PATIENCE_MS = 20 * 60_000;

interface PooledDriver {
  readonly fingerprint: string;
  readonly driver: RuntimeDriver;
}

interface KnownTls {
  readonly secret: string;
  readonly readAt: number;
  readonly tls: HostTls;
}

export function createDriverPool(options: DriverPoolOptions): DriverPool {
  return new HostDrivers(options);
}

class HostDrivers implements DriverPool {
  readonly #options: DriverPoolOptions;
  /** By `runtime/host`, as are the certificates. */
  readonly #drivers = new Map<string, PooledDriver>();
  readonly #tls = new Map<string, KnownTls>();
  readonly #retiring = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  constructor(options: DriverPoolOptions) {
    this.#options = options;
  }

  async driverFor(runtimeName: string, hostName: string, signal: AbortSignal): Promise<RuntimeDriver> {
    this.#retireAbsent();
    const host = this.#hostOf(runtimeName, hostName);
    if (!host) throw new RuntimeError("HostUnreachable", `Runtime ${runtimeName} has no host ${hostName}`);
    const key = `${runtimeName}/${hostName}`;
    const tls = await this.#tlsOf(key, host, signal);
    if (this.#closing.signal.aborted) throw new RuntimeError("HostUnreachable", "this process is stopping");
    const fingerprint = createHash("sha256")
      .update(JSON.stringify([host.endpoint, tls]))
      .digest("hex");
    const pooled = this.#drivers.get(key);
    if (pooled?.fingerprint === fingerprint) return pooled.driver;
    const driver = this.#options.makeDriver({ endpoint: host.endpoint, tls });
    this.#drivers.set(key, { fingerprint, driver });
    if (pooled) this.#retire(pooled.driver);
    return driver;
  }

  async close(): Promise<void> {
    this.#closing.abort();
    const drivers = [...this.#drivers.values()].map(({ driver }) => driver.close());
    this.#drivers.clear();
    this.#tls.clear();
    await Promise.all([...drivers, ...this.#retiring]);
  }

  #hostOf(runtimeName: string, hostName: string): RuntimeHost | undefined {
    return this.#options.runtimes.get(runtimeName)?.spec.docker?.hosts.find((one) => one.name === hostName);
  }

  /** Runtimes and hosts that are gone leave neither connections nor keys behind. */
  #retireAbsent(): void {
    for (const [key, { driver }] of this.#drivers) {
      const [runtimeName = "", hostName = ""] = key.split("/");
      if (this.#hostOf(runtimeName, hostName)) continue;
      this.#drivers.delete(key);
      this.#tls.delete(key);
      this.#retire(driver);
    }
  }

  #retire(driver: RuntimeDriver): void {
    const retiring = this.#closeLater(driver).finally(() => this.#retiring.delete(retiring));
    this.#retiring.add(retiring);
  }

  async #closeLater(driver: RuntimeDriver): Promise<void> {
    const { signal } = this.#closing;
    try {
      await this.#options.clock.sleep(RETIRED_MS, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    try {
      await driver.close(AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]));
    } catch (error) {
      // Nobody waits for it, and its successor serves the host.
      this.#options.log.warn({ err: error }, "a driver that is not used any more was not closed");
    }
  }

  async #tlsOf(key: string, host: RuntimeHost, signal: AbortSignal): Promise<HostTls | undefined> {
    const secret = host.tlsSecretRef?.name;
    if (secret === undefined) {
      this.#tls.delete(key);
      return undefined;
    }
    const known = this.#tls.get(key);
    const { clock } = this.#options;
    if (known?.secret === secret && clock.now() - known.readAt < TLS_FRESH_MS) return known.tls;
    const tls = await this.#readAnew({ secret, known: known?.secret === secret ? known.tls : undefined }, signal);
    this.#tls.set(key, { secret, readAt: clock.now(), tls });
    return tls;
  }

  /** Where the Secret cannot be read just now, a host that was reached with what it said last is not given up for that. */
  async #readAnew(wanted: { secret: string; known: HostTls | undefined }, signal: AbortSignal): Promise<HostTls> {
    try {
      return await readTls(this.#options, wanted.secret, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof SecretUnreadable)) throw error;
      if (wanted.known === undefined) throw new RuntimeError("HostUnreachable", error.message, { cause: error.cause });
      this.#options.log.warn({ err: error }, "a host's certificate cannot be read anew; the one read last is used");
      return wanted.known;
    }
  }
}

/** The API server did not give the Secret: refused, overloaded, or not reached. Nothing is known of what it holds. */
class SecretUnreadable extends Error {
  override readonly name = "SecretUnreadable";
}

async function readTls({ secrets, namespace }: DriverPoolOptions, name: string, signal: AbortSignal): Promise<HostTls> {
  let secret: SecretObject;
  try {
    secret = await secrets.get({ namespace, name }, { signal });
  } catch (error) {
    if (isNotFound(error))
      throw new RuntimeError("HostUnreachable", `Secret ${namespace}/${name} does not exist`, { cause: error });
    const why = wordsOf(error);
    throw new SecretUnreadable(`Secret ${namespace}/${name} cannot be read: ${why}`, { cause: error });
  }
  const pem = (key: string): string => {
    const value = secret.data?.[key];
    if (value === undefined) throw new RuntimeError("HostUnreachable", `Secret ${namespace}/${name} has no ${key}`);
    return Buffer.from(value, "base64").toString("utf8");
  };
  return { cert: pem("tls.crt"), key: pem("tls.key"), ca: pem("ca.crt") };
}
