/** A registry that loses bytes of versions, on its disk: noticed by the periodic verification, named, and healed. */
import assert from "node:assert/strict";
import { rename, truncate } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import type { World } from "@agentworlds/crds";
import type { Descriptor, Digest } from "../../../operator/src/registry/contract.ts";
import { eventWith } from "../../kit/events.ts";
import { conditionOf, startControllers, testConfig, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

for (const version of ["v3", "v2"] as const) {
  describe(`a damaged version in distribution ${version}`, () => {
    const parts = new AsyncDisposableStack();
    let stage: Stage;
    let world: World;

    before(async () => {
      stage = parts.use(await Stage.open({ ownRegistry: { own: true, version } }));
      const config = testConfig(stage.site.ground, { verification: { intervalSeconds: 2, callsPerSecond: 200 } });
      parts.use(await startControllers(stage.site, { config }));
      const created = await stage.readyWorld();
      for (const file of ["one", "two"]) {
        const sandbox = await stage.readySandbox(created);
        await stage.shell(sandbox, `echo ${file} > /root/${file}`);
        await stage.close(sandbox);
      }
      world = await stage.world(created);
    });
    after(() => parts.disposeAsync());

    async function blobsOf(number: number): Promise<{ config: Descriptor; layers: readonly Descriptor[] }> {
      const digest = world.status.versions?.find((one) => one.version === number)?.digest ?? "";
      const { manifest } = await stage.registry.getManifest(stage.repositoryOf(world), digest, stage.site.signal);
      if (manifest.kind === "index") throw new Error(`${digest} is an index`);
      return manifest.value;
    }

    /** Takes a blob away from the registry's disk; call the result to put it back. */
    async function lose(digest: Digest): Promise<() => Promise<void>> {
      const path = stage.blobFile(digest);
      await rename(path, `${path}.lost`);
      return () => rename(`${path}.lost`, path);
    }

    /** What a disk that was full leaves of the World's record of a blob: a file of no length. */
    async function empty(digest: Digest): Promise<void> {
      await truncate(stage.linkFile(stage.repositoryOf(world), digest));
      await assert.rejects(
        stage.registry.verifyBlob(stage.repositoryOf(world), { digest, size: 1 }, stage.site.signal),
      );
    }

    const shows = (what: string, check: (object: World) => boolean) => until(() => stage.world(world), check, { what });

    test("head's layer is lost: HeadAvailable names it, head is not booted, an earlier version is, and it heals", async () => {
      const lost = (await blobsOf(2)).layers.at(-1)?.digest ?? "sha256:";
      const restore = await lose(lost);
      const damaged = await shows("HeadDamaged", (o) => conditionOf(o, "HeadAvailable")?.reason === "HeadDamaged");
      const { message = "" } = conditionOf(damaged, "HeadAvailable") ?? {};
      assert.ok(message.includes(lost) && message.includes(world.status.head?.digest ?? "?"), message);
      assert.equal(conditionOf(damaged, "Ready")?.reason, "HeadDamaged");
      await eventWith(stage.site, world, "HeadDamaged");
      const waiting = await stage.sandboxOf({ world: { name: world.metadata.name } });
      const refused = await until(
        () => stage.sandbox(waiting),
        (object) => conditionOf(object, "Admitted")?.reason === "HeadDamaged",
        { what: "the session on head to wait by name" },
      );
      assert.equal(refused.status.compute, undefined);
      const looking = await stage.readySandbox(world, {
        world: { name: world.metadata.name, version: 1 },
        closePolicy: "Discard",
      });
      assert.equal(await stage.shell(looking, "cat /root/one"), "one\n");
      await stage.close(looking);
      await restore();
      await stage.kubectl("-n", stage.namespace, "annotate", "world", world.metadata.name, "example.com/look=again");
      await shows("the World to heal", (object) => conditionOf(object, "Ready")?.status === "True");
      const ready = await stage.ready(waiting, 1);
      assert.equal(await stage.shell(ready, "cat /root/one /root/two"), "one\ntwo\n");
      await stage.close(ready, "Discard");
    });

    test("another World of the namespace adopts the lineage: same numbers and digests, the old repository stays as it was", async () => {
      const repository = world.status.repository ?? "";
      const before = await stage.tagsOf(repository);
      const created = await stage.createWorld({ from: { repository: { name: repository } } });
      const adopted = await until(
        () => stage.world(created),
        (object) => conditionOf(object, "Ready")?.status === "True",
        { what: "the adoption" },
      );
      assert.deepEqual(adopted.status.versions, world.status.versions);
      assert.deepEqual(await stage.tags(adopted), ["latest", "v0", "v1", "v2"]);
      assert.deepEqual(await stage.tagsOf(repository), before);
      const sandbox = await stage.readySandbox(adopted);
      assert.equal(await stage.shell(sandbox, "cat /root/one /root/two"), "one\ntwo\n");
      await stage.close(sandbox, "Discard");
    });

    test("an older version's config is lost: VersionsDamaged names the version, sessions go on, nothing is written again", async () => {
      const lost = (await blobsOf(1)).config.digest;
      const restore = await lose(lost);
      const damaged = await shows("VersionsDamaged", (object) => conditionOf(object, "VersionsDamaged") !== undefined);
      assert.match(conditionOf(damaged, "VersionsDamaged")?.message ?? "", new RegExp(`version 1: config ${lost}`));
      assert.equal(conditionOf(damaged, "Ready")?.status, "True");
      await stage.close(await stage.readySandbox(world), "Discard");
      await restore();
    });

    test("the record of a layer that a full disk left empty is written again: the next version is published", async () => {
      const sandbox = await stage.readySandbox(world);
      await stage.shell(sandbox, "echo three > /root/three");
      for (const { digest } of (await blobsOf(2)).layers.slice(-1)) await empty(digest);
      const closed = await stage.close(sandbox);
      assert.equal(closed.status.closed?.version, 3);
      const ready = await stage.readySandbox(world);
      assert.equal(await stage.shell(ready, "cat /root/one /root/two /root/three"), "one\ntwo\nthree\n");
      await stage.close(ready, "Discard");
      await shows("the World without a complaint", (object) => conditionOf(object, "Ready")?.status === "True");
    });
  });
}
