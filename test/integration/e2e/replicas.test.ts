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
