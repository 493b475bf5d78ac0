/**
 * Somebody who may write status removes `status.compute`, or all of it, as a restored etcd would: the container is found by
 * its labels, its session goes on, and no second one begins beside it.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "@agentworlds/crds";
import { computeName } from "../../../operator/src/runtime/contract.ts";
import { eventWith } from "../../kit/events.ts";
import { conditionOf, type RunningControllers, startControllers, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

describe("a Sandbox whose status has lost its container", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let controllers: RunningControllers;

  before(async () => {
    stage = parts.use(await Stage.open());
    controllers = parts.use(await startControllers(stage.site));
  });
  after(() => parts.disposeAsync());

  async function working() {
    const world = await stage.readyWorld();
    const ready = await stage.readySandbox(world);
    await stage.shell(ready, "echo precious > /tmp/work");
    return { world, ready };
  }

  const losePart = ({ metadata }: Sandbox, status: Readonly<Record<string, null>> | null) =>
    stage.site.sandboxes.patchStatus(
      { name: metadata.name, namespace: metadata.namespace ?? "" },
      status === null ? { status: { ...NOTHING } } : { status },
      { signal: stage.site.signal },
    );

  const found = (sandbox: Sandbox) =>
    until(
      () => stage.sandbox(sandbox),
      (object) => object.status.compute !== undefined && conditionOf(object, "Ready")?.status === "True",
      { what: `the container of Sandbox ${sandbox.metadata.name} to be found` },
    );

  test("status.compute is removed: the session goes on in its own container, and its work becomes a version", async () => {
    const { world, ready } = await working();
    await losePart(ready, { compute: null });
    const adopted = await found(ready);
    assert.deepEqual(
      [adopted.status.compute?.id, adopted.status.compute?.engine, adopted.status.expiresAt],
      [ready.status.compute?.id, ready.status.compute?.engine, ready.status.expiresAt],
    );
    assert.equal(await stage.containers(ready), 1);
    assert.equal(await stage.shell(adopted, "cat /tmp/work"), "precious\n");
    assert.match((await eventWith(stage.site, ready, "ComputeFound")).note, /the session goes on with it/);
    await stage.setMode(adopted, "Hibernated");
    const { status } = await stage.world(world);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/work"), "precious\n");
    assert.equal(status.holder, undefined);
    assert.equal(await stage.containers(ready), 0);
  });

  test("the whole status is removed while no operator runs, and the Sandbox deleted: its work is a version before it goes", async () => {
    const { world, ready } = await working();
    await controllers.stop();
    await losePart(ready, null);
    assert.equal((await stage.sandbox(ready)).status.boot, undefined, "the status is gone");
    controllers = parts.use(await startControllers(stage.site));
    await stage.deleted(ready);
    const { status } = await stage.world(world);
    assert.equal(status.head?.version, 1);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "tmp/work"), "precious\n");
    assert.equal(status.holder, undefined);
    assert.equal(await stage.containers(ready), 0);
  });

  test("containers of two boots: a condition names both, neither is touched, and it goes on when one is removed", async () => {
    const { ready } = await working();
    const boot = 2;
    const stray = computeName({ sandboxUid: ready.metadata.uid, boot });
    await makeContainer(ready, boot);
    await losePart(ready, { compute: null });
    const unknown = await until(
      () => stage.sandbox(ready),
      (object) => conditionOf(object, "ComputeUnknown") !== undefined,
      { what: "the condition" },
    );
    const { reason, message = "" } = conditionOf(unknown, "ComputeUnknown") ?? {};
    assert.equal(reason, "SeveralContainers");
    for (const id of [ready.status.compute?.id ?? "", stray]) assert.ok(message.includes(id), `${id} in: ${message}`);
    assert.equal(conditionOf(unknown, "Ready")?.status, "Unknown");
    assert.equal((await stage.driver.inspect(stray, stage.site.signal)).state, "Running");
    assert.equal(await stage.shell(ready, "cat /tmp/work"), "precious\n");
    await stage.driver.remove(stray, stage.site.signal);
    await stage.nudge(ready);
    const adopted = await found(ready);
    assert.equal(adopted.status.compute?.id, ready.status.compute?.id);
    assert.equal(conditionOf(adopted, "ComputeUnknown"), undefined);
    await stage.close(adopted, "Discard");
  });

  /** As an operator of another timeline would have made it. */
  async function makeContainer({ metadata }: Sandbox, boot: number): Promise<void> {
    const [listed] = (await stage.driver.list(stage.installation, stage.site.signal)).filter(
      ({ owner }) => owner.sandboxUid === metadata.uid,
    );
    assert.ok(listed?.image, "the host knows what the container was made from");
    const spec = {
      owner: { ...listed.owner, boot },
      image: listed.image,
      limits: { pids: 64 },
      isolation: { network: "None" },
    } as const;
    await stage.driver.create(spec, stage.site.signal);
  }
});

/** Every field of a Sandbox's status, removed. */
const NOTHING = {
  observedGeneration: -1,
  observedMode: null,
  phase: null,
  conditions: null,
  boot: null,
  world: null,
  compute: null,
  bootedFrom: null,
  base: null,
  expiresAt: null,
  lifetimeEndsAt: null,
  lastActivityAt: null,
  operation: null,
  requests: null,
  lastEnding: null,
  lastSnapshot: null,
  closed: null,
};
