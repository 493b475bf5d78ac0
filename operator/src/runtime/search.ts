/** What is left of a Sandbox on the hosts: each host is asked, and one that does not answer is named. */
import type { Runtime } from "@agentworlds/crds";
import type { ListedCapture, ListedCompute, RuntimeDriver } from "./contract.ts";
import type { DriverPool } from "./driver-pool.ts";
import { RuntimeError } from "./errors.ts";

/** Whose, and where. */
export interface Wanted {
  readonly sandboxUid: string;
  /** Its Runtime, when that is known for certain; absent: every Runtime is asked. */
  readonly runtime?: string;
}

export interface Found<T> {
  readonly runtime: string;
  readonly host: string;
  /** Id of the engine: two hosts can be addresses of one. */
  readonly engine: string;
  readonly what: T;
}

export interface SearchResult<T> {
  /** Each once, however many addresses its engine has. */
  readonly found: readonly Found<T>[];
  /** Who could not be asked and why, one clause each. Empty: what is not found is not there. */
  readonly silent: readonly string[];
}

export interface ComputeSearch {
  containers(wanted: Wanted, signal: AbortSignal): Promise<SearchResult<ListedCompute>>;
  captures(wanted: Wanted, signal: AbortSignal): Promise<SearchResult<ListedCapture>>;
}

/** A host that is silent for longer counts as not asked. */
const ANSWER_DEADLINE_MS = 10_000;

type Answer<T> = { readonly found: readonly Found<T>[] } | { readonly silent: string };

export function createComputeSearch(options: {
  readonly installation: string;
  readonly runtimes: { list(): readonly Runtime[] };
  readonly drivers: Pick<DriverPool, "driverFor">;
}): ComputeSearch {
  async function ask<T>(
    where: { runtime: string; host: string },
    list: (driver: RuntimeDriver, signal: AbortSignal) => Promise<readonly T[]>,
    signal: AbortSignal,
  ): Promise<Answer<T>> {
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_DEADLINE_MS)]);
    try {
      const driver = await options.drivers.driverFor(where.runtime, where.host, bounded);
      const listed = await list(driver, bounded);
      if (listed.length === 0) return { found: [] };
      const engine = await driver.identity(bounded);
      return { found: listed.map((what) => ({ ...where, engine, what })) };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof RuntimeError) return { silent: `${where.runtime}/${where.host}: ${error.message}` };
      if (bounded.aborted) {
        return { silent: `${where.runtime}/${where.host}: no answer within ${ANSWER_DEADLINE_MS / 1000} s` };
      }
      throw error;
    }
  }

  async function search<T extends { readonly owner: { readonly sandboxUid: string } }>(
    { sandboxUid, runtime }: Wanted,
    { list, keyOf }: { list: (driver: RuntimeDriver, signal: AbortSignal) => Promise<T[]>; keyOf: (one: T) => string },
    signal: AbortSignal,
  ): Promise<SearchResult<T>> {
    const hosts = hostsOf(options.runtimes.list(), runtime);
    // Where no host is known, none has said that it holds nothing.
    if (hosts.length === 0) {
      return { found: [], silent: [runtime === undefined ? "no Runtime exists" : `Runtime ${runtime} does not exist`] };
    }
    const own = async (driver: RuntimeDriver, bounded: AbortSignal) =>
      (await list(driver, bounded)).filter(({ owner }) => owner.sandboxUid === sandboxUid);
    const answers = await Promise.all(hosts.map((where) => ask(where, own, signal)));
    const found = answers.flatMap((answer) => ("found" in answer ? answer.found : []));
    const idOf = ({ engine, what }: Found<T>) => `${engine} ${keyOf(what)}`;
    return {
      found: found.filter((one, index) => found.findIndex((other) => idOf(other) === idOf(one)) === index),
      silent: answers.flatMap((answer) => ("silent" in answer ? [answer.silent] : [])),
    };
  }

  const { installation } = options;
  return {
    containers: (wanted, signal) =>
      search(wanted, { list: (driver, one) => driver.list(installation, one), keyOf: ({ id }) => id }, signal),
    captures: (wanted, signal) =>
      search(
        wanted,
        { list: (driver, one) => driver.listCaptures(installation, one), keyOf: ({ localName }) => localName },
        signal,
      ),
  };
}

const hostsOf = (runtimes: readonly Runtime[], named: string | undefined): { runtime: string; host: string }[] =>
  runtimes
    .filter(({ metadata }) => named === undefined || metadata.name === named)
    .flatMap(({ metadata, spec }) =>
      (spec.docker?.hosts ?? []).map((host) => ({ runtime: metadata.name, host: host.name })),
    );
