/** Two operator processes: one leads. Killing it in the middle of a hibernation loses nothing, and the other finishes it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type RunningOperator, startOperator } from "../../../hack/parts/operator.ts";
import { eventually } from "../../kit/index.ts";
import { Stage } from "../../kit/stage.ts";

const LEASE = { leaseDurationSeconds: 2, renewDeadlineSeconds: 1.5, retryPeriodSeconds: 0.2 };

test("the leader is killed while a session hibernates: the other replica publishes the same work, once", async () => {
  await using stage = await Stage.open();
  await using parts = new AsyncDisposableStack();
  const start = () =>
    startOperator({
      kubeconfigPath: stage.site.ground.kubeconfigPath,
      registryUrl: stage.site.ground.registryUrl,
      settings: { leader: LEASE },
      signal: stage.site.signal,
    });
  const replicas = [parts.use(await start()), parts.use(await start())];
  for (let round = 0; round < 2; round++) {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, `echo round-${round} > /tmp/work`);
    await stage.patchMode(sandbox, "Hibernated");
    await eventually(async () => (await stage.sandbox(sandbox)).status.operation !== undefined, { intervalMs: 10 });
    const leader = await leaderOf(stage, replicas);
    await leader.kill();
    await stage.hibernated(sandbox);
    const { status } = await stage.world(world);
    assert.deepEqual(
      status.versions?.map(({ version }) => version),
      [0, status.head?.version],
      "one new version",
    );
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/work"), `round-${round}\n`);
    assert.equal(await stage.containers(sandbox), 0);
    replicas.splice(replicas.indexOf(leader), 1, parts.use(await start()));
  }
});

/** Ways in which a hibernation stands while its leader is told to stop; each hook notes that it ran. */
const drains = {
  "what needs less than the grace is finished by the one that leaves": {
    drainSeconds: 20,
    script: "echo ran >> /tmp/hook; sleep 3",
    runs: "ran\n",
  },
  "what needs longer is handed over at once, and the next one goes on": {
    drainSeconds: 1,
    script: "echo ran >> /tmp/hook; test $(wc -l < /tmp/hook) -gt 1 || sleep 100",
    runs: "ran\nran\n",
  },
};

for (const [what, { drainSeconds, script, runs }] of Object.entries(drains)) {
  test(`the leader is stopped in order while a session hibernates: ${what}`, async (t) => {
    await using stage = await Stage.open();
    await using parts = new AsyncDisposableStack();
    const start = () =>
      startOperator({
        kubeconfigPath: stage.site.ground.kubeconfigPath,
        registryUrl: stage.site.ground.registryUrl,
        // A lease that would have to run out would be seen: it is longer than all of this may take.
        settings: {
          leader: { ...LEASE, leaseDurationSeconds: 60, renewDeadlineSeconds: 40 },
          limits: { drainSeconds },
        },
        signal: stage.site.signal,
      });
    const replicas = [parts.use(await start()), parts.use(await start())];
    const hook = { command: ["sh", "-c", script], timeoutSeconds: 120, onFailure: "Continue" as const };
    const world = await stage.readyWorld(undefined, { snapshot: { hook } });
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo precious > /tmp/work");
    await stage.patchMode(sandbox, "Hibernated");
    await eventually(async () => (await stage.shell(sandbox, "cat /tmp/hook 2>/dev/null; true")) === "ran\n", {
      what: "the hook to be under way",
    });
    const leader = await leaderOf(stage, replicas);
    const toldAt = performance.now();
    await leader.stop();
    const stoppedMs = Math.round(performance.now() - toldAt);
    await stage.hibernated(sandbox);
    const doneMs = Math.round(performance.now() - toldAt);
    t.diagnostic(`stopped after ${stoppedMs} ms, hibernated after ${doneMs} ms`);
    assert.ok(stoppedMs < (drainSeconds + 10) * 1000, `${stoppedMs} ms is within its grace`);
    assert.ok(doneMs < 45_000, `${doneMs} ms: nobody waited for the lease to run out`);
    const { status } = await stage.world(world);
    assert.deepEqual(
      status.versions?.map(({ version, hook: ended }) => [version, ended]),
      [
        [0, undefined],
        [1, "Succeeded"],
      ],
    );
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/work"), "precious\n");
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/hook"), runs);
    assert.equal(await stage.containers(sandbox), 0);
    assert.equal((await stage.sandbox(sandbox)).status.lastEnding?.outcome, "Published");
  });
}

/** The process that the lease names: its identity begins with host name and process id. */
async function leaderOf(stage: Stage, replicas: readonly RunningOperator[]): Promise<RunningOperator> {
  return eventually(async () => {
    const holder = await stage.kubectl(
      "-n",
      "agent-worlds-system",
      "get",
      "lease",
      "agent-worlds-controller",
      "-o",
      "jsonpath={.spec.holderIdentity}",
    );
    return replicas.find(({ process }) => holder.includes(`-${process.pid}_`));
  });
}
