import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { LEASES } from "../../../operator/src/kube/resource-types.ts";
import type { Lease } from "../../../operator/src/reconciler/lease.ts";
import { eventually, type ReachableCluster, startFaultProxy, useCluster } from "../../kit/index.ts";
import { credential, type Rig, rig, setCredential, signal } from "./rig.ts";

let cluster: ReachableCluster;
before(async () => {
  cluster = await useCluster();
});
after(() => cluster[Symbol.asyncDispose]());

const LEASE_MS = 2_000;
/** The leader ceases when it could not renew for two thirds of it: so much earlier than its lease ends it may have been last seen. */
const RENEW_DEADLINE_MS = (LEASE_MS * 2) / 3;
/** Nobody who waits for this to run out leads within a test. */
const LONG_LEASE_MS = 60_000;

interface Replica extends AsyncDisposable {
  readonly name: string;
  /** Moments at which it believed to lead, in nanoseconds of the machine's monotonic clock. */
  readonly led: bigint[];
  readonly process: ChildProcess;
  end(how: "SIGTERM" | "SIGKILL" | "SIGSTOP" | "SIGCONT"): void;
  ended(): Promise<void>;
}

function replica(
  it: Rig,
  name: string,
  { server = it.proxy.url, leaseMs = LEASE_MS }: { server?: string; leaseMs?: number } = {},
): Replica {
  const script = fileURLToPath(new URL("./replica.ts", import.meta.url));
  const child = spawn(process.execPath, [script, it.credentials, server, it.namespace, name, `${leaseMs}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const led: bigint[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => led.push(BigInt(line)));
  const exit = once(child, "close");
  return {
    name,
    led,
    process: child,
    end: (how) => void child.kill(how),
    async ended() {
      await exit;
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
      await exit;
    },
  };
}

/** Waits until one of the two leads; first the leader, then the other. */
async function whoLeads(replicas: readonly [Replica, Replica]): Promise<[leader: Replica, other: Replica]> {
  const [a, b] = replicas;
  const leader = await eventually(() => (a.led.length > 0 ? a : b.led.length > 0 ? b : undefined), {
    what: "somebody leads",
  });
  return leader === a ? [a, b] : [b, a];
}

/** Fails when any moment of one lies within the span of the other: the record of two leaders. */
function assertDisjoint(earlier: Replica, later: Replica): void {
  const end = earlier.led.at(-1);
  const begin = later.led[0];
  assert.ok(end !== undefined && begin !== undefined, "both have led");
  assert.ok(end < begin, `${earlier.name} led until ${end}, ${later.name} from ${begin}`);
}

const milliseconds = (from: bigint | undefined, to: bigint | undefined): number =>
  Number(((to ?? 0n) - (from ?? 0n)) / 1_000_000n);

test("killing the leader hands over when its lease is over, and never are there two", async (t) => {
  await using it = await rig(cluster);
  await using a = replica(it, "a");
  await using b = replica(it, "b");
  const [leader, other] = await whoLeads([a, b]);
  // Longer than a lease: the leader has renewed, and the other has seen it.
  await eventually(() => milliseconds(leader.led[0], leader.led.at(-1)) > 2_500);
  assert.deepEqual(other.led, []);
  leader.end("SIGKILL");
  await leader.ended();
  await eventually(() => other.led.length > 0, { what: "the other leads" });
  assertDisjoint(leader, other);
  const handover = milliseconds(leader.led.at(-1), other.led[0]);
  t.diagnostic(`handover after SIGKILL with a lease of ${LEASE_MS} ms: ${handover} ms`);
  assert.ok(
    handover > LEASE_MS - RENEW_DEADLINE_MS,
    `the lease was taken over after ${handover} ms, before it was over`,
  );
  assert.ok(handover < 3 * LEASE_MS, `nobody led for ${handover} ms`);
  const lease = await it.direct.resource<Lease>(LEASES).get({ namespace: it.namespace, name: "leader" }, { signal });
  assert.match(lease.spec?.holderIdentity ?? "", new RegExp(`^${other.name}_`));
  assert.match(lease.spec?.renewTime ?? "", /\.\d{6}Z$/);
});

test("an orderly stop hands over without waiting for the lease", async (t) => {
  await using it = await rig(cluster);
  await using a = replica(it, "a", { leaseMs: LONG_LEASE_MS });
  await using b = replica(it, "b", { leaseMs: LONG_LEASE_MS });
  const [leader, other] = await whoLeads([a, b]);
  leader.end("SIGTERM");
  await leader.ended();
  assert.equal(leader.process.exitCode, 0, "it ends by itself");
  await eventually(() => other.led.length > 0, { what: "the other leads" });
  assertDisjoint(leader, other);
  const handover = milliseconds(leader.led.at(-1), other.led[0]);
  t.diagnostic(`handover after SIGTERM with a lease of ${LONG_LEASE_MS} ms: ${handover} ms`);
  assert.ok(handover < LONG_LEASE_MS / 6, `nobody led for ${handover} ms`);
});

test("a leader cut off from the API server ceases before the other begins", async () => {
  await using it = await rig(cluster);
  const { hostname, port } = new URL(cluster.url);
  const identity = it.newServerIdentity();
  await using line = await startFaultProxy({
    targetHost: hostname,
    targetPort: Number(port || 443),
    serverTls: identity.tls,
    clientTls: { ca: cluster.caPem },
  });
  // Both proxies are trusted: a CA file may hold several.
  await setCredential(it, "ca.crt", `${await credential(it, "ca.crt")}${identity.caPem}`);
  await using cut = replica(it, "cut", { server: line.url });
  await eventually(() => cut.led.length > 0, { what: "the first leads" });
  await using other = replica(it, "other");
  // The connection stays open, and nothing comes: only its own clock can tell the leader.
  line.partition();
  await eventually(() => other.led.length > 0, { what: "the other leads" });
  const ceased = cut.led.length;
  await eventually(() => other.led.length > 100);
  assert.equal(cut.led.length, ceased);
  assertDisjoint(cut, other);
  line.heal();
  await eventually(() => other.led.length > 200);
  assert.equal(cut.led.length, ceased, "back in contact it competes, and does not take back");
});

test("a leader that was frozen and thawed does not believe to lead still", async () => {
  await using it = await rig(cluster);
  await using a = replica(it, "a");
  await using b = replica(it, "b");
  const [leader, other] = await whoLeads([a, b]);
  leader.end("SIGSTOP");
  await eventually(() => other.led.length > 0, { what: "the other leads" });
  leader.end("SIGCONT");
  const begun = other.led[0];
  await eventually(() => other.led.length > 200);
  assert.deepEqual(
    leader.led.filter((moment) => begun !== undefined && moment >= begun),
    [],
  );
});
