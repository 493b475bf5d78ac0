// One replica for election.test.ts, as a process of its own so that it can be killed: competes for a lease and writes one line
// per moment in which it believes to lead. Arguments: credentials folder, server, namespace, name, duration of the lease in
// milliseconds.
import { createKubeClient } from "../../../operator/src/kube/client.ts";
import { LEASES } from "../../../operator/src/kube/resource-types.ts";
import { systemClock } from "../../../operator/src/reconciler/clock.ts";
import { LeaderElector, type Lease } from "../../../operator/src/reconciler/lease.ts";

const [directory = "", server = "", namespace = "", name = "", leaseMs = ""] = process.argv.slice(2);
const client = createKubeClient({ source: { kind: "serviceAccount", server, directory } });
const elector = new LeaderElector({
  client: client.resource<Lease>(LEASES),
  lease: { namespace, name: "leader" },
  identity: name,
  leaseDurationMs: Number(leaseMs),
  retryMs: 200,
});
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort(new Error("SIGTERM")));

await elector.run({
  stop: stop.signal,
  async lead(lost) {
    while (!lost.aborted && !stop.signal.aborted) {
      // The monotonic clock is one for all processes of a machine.
      if (elector.isLeading()) process.stdout.write(`${process.hrtime.bigint()}\n`);
      // The sleep rejects only when leadership is lost, which ends the loop.
      await systemClock.sleep(10, lost).catch(() => undefined);
    }
  },
});
await client.close();
