/** On real parts: somebody who may write status names a Runtime that is not for the namespace. Nothing is made there. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { SandboxStatus } from "@agentworlds/crds";
import { eventWith } from "../../kit/events.ts";
import { startControllers, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

describe("a Sandbox whose status names a Runtime that is not for its namespace", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;

  before(async () => {
    stage = parts.use(await Stage.open());
    parts.use(await startControllers(stage.site));
  });
  after(() => parts.disposeAsync());

  test("it gets no container there, says so, and waits for its World as before", async () => {
    const { signal, runtimes, sandboxes } = stage.site;
    const { spec } = await runtimes.get({ name: "local" }, { signal });
    await runtimes.create(
      {
        apiVersion: "agentworlds.dev/v1alpha1",
        kind: "Runtime",
        metadata: { name: "vault" },
        spec: { ...spec, selection: "Default", namespaces: { matchLabels: { team: "security" } } },
      },
      { signal },
    );
    const world = await stage.readyWorld();
    const working = await stage.readySandbox(world, { ttlSeconds: 600 });
    const waiting = await stage.sandboxOf({ world: { name: world.metadata.name } });
    await eventWith(stage.site, waiting, "WorldHeld");

    const { head } = (await stage.world(world)).status;
    assert.ok(head);
    const from = { version: head.version, digest: head.digest };
    const id = `aw-${waiting.metadata.uid}-1`;
    const status: Partial<SandboxStatus> = {
      boot: 1,
      compute: { runtime: "vault", host: "here", id, boot: 1 },
      bootedFrom: from,
      base: from,
    };
    const { name, namespace = "" } = waiting.metadata;
    await sandboxes.patchStatus({ name, namespace }, { status }, { signal });

    const told = await eventWith(stage.site, waiting, "RuntimeNotAllowed");
    assert.match(told.note, /Runtime vault may not be used from namespace/);
    const over = await until(
      () => stage.sandbox(waiting),
      ({ status }) => status.compute === undefined && status.lastEnding !== undefined,
      { what: "the forged boot to be given up" },
    );
    assert.deepEqual([over.status.lastEnding?.reason, over.status.lastEnding?.outcome], ["BootTimedOut", "Discarded"]);
    assert.equal(await stage.containers(waiting), 0);
    assert.equal((await stage.world(world)).status.holder?.uid, working.metadata.uid, "the session beside it goes on");
    assert.equal(await stage.containers(working), 1);
    await stage.deleted(waiting);
    await stage.close(working);
  });
});
