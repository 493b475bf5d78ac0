import type { FaultKind } from "../draw/faults.ts";
import type { FaultAct } from "../faults.ts";
import { holdRules, lengthOf, pause } from "./hold.ts";

const status = (code: number, reason: string): string =>
  JSON.stringify({ kind: "Status", apiVersion: "v1", status: "Failure", reason, message: "chaos", code });

/** Leases are left alone by what is to hit the work: a lost lease ends the work before the fault does. */
const WORK = /^(?!.*\/leases\/)/;
const WRITES = ["POST", "PATCH", "PUT", "DELETE"] as const;
const WATCH = /[?&]watch=1/;

export const API_FAULTS = {
  async apiThrottles({ ground }, fault) {
    const throttled = {
      kind: "respond",
      status: 429,
      headers: { "retry-after": "1" },
      body: status(429, "TooManyRequests"),
    } as const;
    return holdRules(ground.apiProxy, [{ path: WORK, fault: throttled }], lengthOf(fault, 1_000, 3_000));
  },

  async apiFails({ ground }, fault) {
    const code = fault.choice < 0.5 ? 500 : 503;
    const failing = { kind: "respond", status: code, body: status(code, "InternalError") } as const;
    return holdRules(ground.apiProxy, [{ path: WORK, fault: failing }], lengthOf(fault, 1_000, 4_000));
  },

  async apiResets({ ground }, fault) {
    const rule = { path: WORK, fault: { kind: "reset", at: "request" } } as const;
    return holdRules(ground.apiProxy, [rule], lengthOf(fault, 1_000, 3_000));
  },

  /** The write was carried out, and nobody hears of it. */
  async apiAnswersLost({ ground }, fault) {
    const rules = WRITES.map((method) => ({ method, path: WORK, fault: { kind: "reset", at: "answer" } }) as const);
    return holdRules(ground.apiProxy, rules, lengthOf(fault, 1_000, 3_000));
  },

  /** Watches fall silent with their sockets open. */
  async apiHalfOpen({ ground }, fault) {
    // A watch that is open already is not met by a rule: it must be opened anew.
    const rule = { path: WATCH, fault: { kind: "half-open", afterBytes: 0 } } as const;
    const active = ground.apiProxy.add(rule);
    ground.apiProxy.cut();
    await pause(lengthOf(fault, 2_000, 6_000));
    active.remove();
    ground.apiProxy.cut();
    return { cameTrue: active.hits > 0, detail: `${active.hits} watches` };
  },

  async apiPartition({ ground }, fault) {
    ground.apiProxy.partition();
    await pause(lengthOf(fault, 1_000, 4_000));
    ground.apiProxy.heal();
    return { cameTrue: true, detail: "nothing passes in either direction" };
  },

  async apiServerRestart({ ground }) {
    await ground.cluster.killApiServer();
    await ground.cluster.startApiServer();
    return { cameTrue: true, detail: "SIGKILL" };
  },

  async etcdRestart({ ground }) {
    await ground.cluster.killEtcd();
    await ground.cluster.startEtcd();
    return { cameTrue: true, detail: "SIGKILL" };
  },

  async watchDuplicates({ ground }, fault) {
    return twistWatches("duplicate-lines", ground.apiProxy, lengthOf(fault, 2_000, 5_000));
  },

  async watchStale({ ground }, fault) {
    return twistWatches("stale-lines", ground.apiProxy, lengthOf(fault, 2_000, 5_000));
  },
} satisfies Partial<Record<FaultKind, FaultAct>>;

async function twistWatches(
  kind: "duplicate-lines" | "stale-lines",
  proxy: Parameters<FaultAct>[0]["ground"]["apiProxy"],
  milliseconds: number,
) {
  const active = proxy.add({ path: WATCH, fault: { kind } });
  proxy.cut();
  await pause(milliseconds);
  active.remove();
  proxy.cut();
  return { cameTrue: active.applied > 0, detail: `${active.applied} events` };
}
