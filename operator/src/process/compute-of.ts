/** Proof that nothing is left of a Sandbox: every host of every Runtime is asked which containers it has. */
import type { Runtime } from "@agentworlds/crds";
import type { DriverPool } from "../runtime/driver-pool.ts";
import { RuntimeError } from "../runtime/errors.ts";
import type { ComputeOf } from "../world/scope.ts";

/** A host that is silent for longer counts as not asked. */
const ANSWER_DEADLINE_MS = 10_000;

export function createComputeOf(options: {
  readonly installation: string;
  readonly runtimes: { list(): readonly Runtime[] };
  readonly drivers: Pick<DriverPool, "driverFor">;
}): ComputeOf {
  async function ask(
    where: { runtime: string; host: string; uid: string },
    signal: AbortSignal,
  ): Promise<"none" | "some" | "unknown"> {
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_DEADLINE_MS)]);
    try {
      const driver = await options.drivers.driverFor(where.runtime, where.host, bounded);
      const listed = await driver.list(options.installation, bounded);
      return listed.some((compute) => compute.owner.sandboxUid === where.uid) ? "some" : "none";
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof RuntimeError || bounded.aborted) return "unknown";
      throw error;
    }
  }

  return async (uid, signal) => {
    const hosts = options.runtimes
      .list()
      .flatMap(({ metadata, spec }) =>
        (spec.docker?.hosts ?? []).map((host) => ({ runtime: metadata.name, host: host.name, uid })),
      );
    const answers = await Promise.all(hosts.map((where) => ask(where, signal)));
    if (answers.includes("some")) return "some";
    // Where no host is known, none has said that it holds nothing.
    return answers.includes("unknown") || answers.length === 0 ? "unknown" : "none";
  };
}
