/** Lineages on real parts: a status that is gone, an etcd that was restored, a World made again, a blob that is lost. */
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import type { World } from "@agentworlds/crds";
import { eventWith } from "../../kit/events.ts";
import { type FaultProxy, startFaultProxy } from "../../kit/index.ts";
import { conditionOf, type RunningControllers, startControllers, testConfig, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

describe("a lineage", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let proxy: FaultProxy;
  let controllers: RunningControllers;
  const start = () =>
    startControllers(stage.site, {
      config: testConfig(stage.site.ground, {
        registry: { url: proxy.url, pullAs: new URL(stage.registry.endpoint.url).host },
      }),
    });

  before(async () => {
    stage = parts.use(
      await Stage.open({
        async registryUrl(url) {
          const { hostname, port } = new URL(url);
          proxy = parts.use(await startFaultProxy({ targetHost: hostname, targetPort: Number(port) }));
          return proxy.url;
        },
      }),
    );
    controllers = await start();
    parts.defer(() => controllers.stop());
  });
  afterEach(() => proxy.clear());
  after(() => parts.disposeAsync());

  /** Sessions that each leave a file and a version. */
  async function work(world: World, ...files: string[]): Promise<World> {
    for (const file of files) {
      const sandbox = await stage.readySandbox(world);
      await stage.shell(sandbox, `echo ${file} > /root/${file}`);
      await stage.close(sandbox);
    }
    return settled(world);
  }

  /** Until the last pass has tagged what was published. */
  async function settled(world: World): Promise<World> {
    const found = await until(
      () => stage.world(world),
      ({ status }) => status.holder === undefined && conditionOf({ status }, "Ready")?.status === "True",
      { what: "the World to settle" },
    );
    await until(
      async () => ({ status: { tags: await stage.tags(found) } }),
      ({ status }) => status.tags.includes(`v${found.status.head?.version}`),
      { what: "head to be tagged" },
    );
    return found;
  }

  const lineageOf = ({ status }: World) => {
    const { conditions: _, observedGeneration: __, ...lineage } = status;
    return lineage;
  };

  async function replaceStatus(world: World, status: unknown): Promise<void> {
    const { name, namespace } = world.metadata;
    const fresh = await stage.world(world);
    const object = JSON.stringify({ ...fresh, status });
    const file = await stage.temporaryFile(object);
    await stage.kubectl("-n", namespace ?? "", "replace", "--subresource=status", "-f", file);
    assert.equal(name, fresh.metadata.name);
  }

  test("a status that is wiped with kubectl is rebuilt as it was, and the next session boots from head", async () => {
    const world = await work(await stage.readyWorld(), "one", "two");
    const before = lineageOf(world);
    await replaceStatus(world, { observedGeneration: -1 });
    const rebuilt = await until(
      () => stage.world(world),
      ({ status }) => status.head !== undefined && conditionOf({ status }, "Ready")?.status === "True",
      { what: "the status to be rebuilt" },
    );
    assert.deepEqual(lineageOf(rebuilt), before);
    await eventWith(stage.site, world, "LineageRecovered");
    const sandbox = await stage.readySandbox(world);
    assert.equal(await stage.shell(sandbox, "cat /root/one /root/two"), "one\ntwo\n");
    await stage.close(sandbox, "Discard");
  });

  test("a status that is wiped while a session runs: the session holds the World again, and its work becomes the next version", async () => {
    const world = await work(await stage.readyWorld(), "one");
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo two > /root/two");
    await replaceStatus(world, { observedGeneration: -1 });
    await until(
      () => stage.world(world),
      ({ status }) => status.holder?.uid === sandbox.metadata.uid,
      { what: "the hold to be back" },
    );
    const second = await stage.sandboxOf({ world: { name: world.metadata.name } });
    await until(
      () => stage.sandbox(second),
      (object) => conditionOf(object, "Admitted")?.reason === "WorldHeld",
      { what: "the second session to wait" },
    );
    await stage.deleted(second);
    await stage.close(sandbox);
    const after = await settled(world);
    assert.deepEqual(
      after.status.versions?.map(({ version }) => version),
      [0, 1, 2],
    );
    assert.equal(await stage.readInVersion(after, after.status.head?.digest, "root/two"), "two\n");
  });

  test("etcd restored from a backup: nothing boots until the registry's newest version is adopted", async () => {
    const backup = await work(await stage.readyWorld(), "one");
    const newer = await work(backup, "two");
    assert.equal(newer.status.head?.version, 2);
    await controllers.stop();
    const { conditions, ...old } = backup.status;
    await replaceStatus(newer, { ...old, conditions });
    controllers = await start();
    const behind = await until(
      () => stage.world(newer),
      (object) => conditionOf(object, "HeadBehindRegistry")?.status === "True",
      { what: "the World to see that the registry is newer" },
    );
    assert.deepEqual(behind.status.registryHead, { version: 2, digest: newer.status.head?.digest });
    const sandbox = await stage.sandboxOf({ world: { name: newer.metadata.name } });
    await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "Admitted")?.reason === "HeadBehindRegistry",
      { what: "the session to wait by name" },
    );
    assert.equal(await stage.containers(sandbox), 0);
    await stage.kubectl(
      "-n",
      stage.namespace,
      "annotate",
      "world",
      newer.metadata.name,
      `agentworlds.dev/adopt-head=${newer.status.head?.digest}`,
    );
    const ready = await stage.ready(sandbox, 1);
    assert.equal(ready.status.bootedFrom?.version, 2);
    assert.equal(await stage.shell(ready, "cat /root/one /root/two"), "one\ntwo\n");
    await stage.close(ready);
    const after = await settled(newer);
    assert.deepEqual(
      after.status.versions?.map(({ version }) => version),
      [0, 1, 2, 3],
    );
    assert.equal(after.status.registryHead, undefined);
    await eventWith(stage.site, newer, "HeadAdopted");
  });

  test("a World made again under its name stalls and names both ways; with from.repository it goes on, by annotation it starts anew", async () => {
    const first = await work(await stage.readyWorld("again"), "one");
    const { repository } = first.status;
    assert.ok(repository);
    await stage.kubectl("-n", stage.namespace, "delete", "world", "again", "--timeout=60s");
    const second = await stage.createWorld({}, "again");
    const stalled = await until(
      () => stage.world(second),
      (object) => conditionOf(object, "Stalled")?.reason === "PreviousLineageFound",
      { what: "PreviousLineageFound" },
    );
    assert.ok(conditionOf(stalled, "Stalled")?.message.includes(repository));
    assert.equal(stalled.status.head, undefined);
    await stage.kubectl("-n", stage.namespace, "delete", "world", "again", "--timeout=60s");

    const adopted = await settled(await stage.createWorld({ from: { repository: { name: repository } } }, "again"));
    assert.deepEqual(adopted.status.versions, first.status.versions);
    assert.equal(adopted.status.head?.digest, first.status.head?.digest);
    assert.notEqual(adopted.status.repository, repository);
    const third = await work(adopted, "two");
    assert.equal(third.status.head?.version, 2);
    const sandbox = await stage.readySandbox(third);
    assert.equal(await stage.shell(sandbox, "cat /root/one /root/two"), "one\ntwo\n");
    await stage.close(sandbox, "Discard");
    assert.deepEqual(
      (await stage.tagsOf(repository)).filter((tag) => !tag.startsWith("capture-")),
      ["latest", "v0", "v1"],
      "the old repository is as it was",
    );

    const adoptedLineage = lineageOf(await settled(third));
    await replaceStatus(third, { observedGeneration: -1 });
    const rebuilt = await until(
      () => stage.world(third),
      ({ status }) => status.head !== undefined && conditionOf({ status }, "Ready")?.status === "True",
      { what: "the adopted World to be rebuilt" },
    );
    assert.deepEqual(lineageOf(rebuilt), adoptedLineage);

    await stage.kubectl("-n", stage.namespace, "delete", "world", "again", "--timeout=60s");
    const fresh = await stage.createWorld({}, "again");
    await until(
      () => stage.world(fresh),
      (object) => conditionOf(object, "Stalled")?.reason === "PreviousLineageFound",
      { what: "both earlier lineages to be found" },
    );
    const names = [repository, third.status.repository].map((name) => name?.slice(name.lastIndexOf("/") + 1));
    await stage.kubectl(
      "-n",
      stage.namespace,
      "annotate",
      "world",
      "again",
      `agentworlds.dev/ignore-lineages=${names.join(",")}`,
    );
    const anew = await settled(fresh);
    assert.equal(anew.status.head?.version, 0);
    await stage.kubectl("-n", stage.namespace, "delete", "world", "again", "--timeout=60s");
  });

  const indexOf = (world: World): string => stage.repositoryOf(world).replace(/-[^-]{8}$/, "/lineages");
  const entryOf = (world: World): string => stage.repositoryOf(world).slice(-8);
  const entries = async (world: World) => (await stage.registry.listTags(indexOf(world), stage.site.signal)).sort();
  const hideCatalog = (status: number) =>
    proxy.add({ path: /^\/v2\/_catalog/, fault: { kind: "respond", status, body: '{"errors":[]}' } });

  for (const status of [401, 404]) {
    test(`a registry that answers ${status} to its catalog: a World made again stalls all the same, and goes on or starts anew`, async () => {
      const hidden = hideCatalog(status);
      const name = `hidden-${status}`;
      const first = await work(await stage.readyWorld(name), "one");
      assert.ok(hidden.applied > 0, "the catalog was asked for and not shown");
      await eventWith(stage.site, first, "LineagesNotListed");
      const { repository } = first.status;
      assert.ok(repository);
      await stage.kubectl("-n", stage.namespace, "delete", "world", name, "--timeout=60s");
      const second = await stage.createWorld({}, name);
      const stalled = await until(
        () => stage.world(second),
        (object) => conditionOf(object, "Stalled")?.reason === "PreviousLineageFound",
        { what: "PreviousLineageFound" },
      );
      assert.ok(conditionOf(stalled, "Stalled")?.message.includes(`${repository} (newest version 1)`));
      assert.equal(stalled.status.head, undefined);
      assert.deepEqual(await entries(first), [entryOf(first)], "who stalls is not entered");
      await stage.kubectl("-n", stage.namespace, "delete", "world", name, "--timeout=60s");

      const adopted = await settled(await stage.createWorld({ from: { repository: { name: repository } } }, name));
      assert.equal(adopted.status.head?.digest, first.status.head?.digest);
      assert.deepEqual(await entries(first), [entryOf(first), entryOf(adopted)].sort());
      await stage.kubectl("-n", stage.namespace, "delete", "world", name, "--timeout=60s");
    });
  }

  test("without a catalog: a World that was deleted with its versions leaves no entry, and its name starts at genesis", async () => {
    hideCatalog(404);
    const first = await work(await stage.readyWorld("gone", { deletionPolicy: "Delete" }), "one");
    assert.deepEqual(await entries(first), [entryOf(first)]);
    await stage.kubectl("-n", stage.namespace, "delete", "world", "gone", "--timeout=60s");
    assert.deepEqual(await entries(first), []);
    const second = await settled(await stage.readyWorld("gone", { deletionPolicy: "Delete" }));
    assert.equal(second.status.head?.version, 0);
    await stage.kubectl("-n", stage.namespace, "delete", "world", "gone", "--timeout=60s");
  });

  test("a World that is older than the index is entered by the next operator, and found without a catalog", async () => {
    const world = await work(await stage.readyWorld("older"), "one");
    const { digest } = await stage.registry.getManifest(indexOf(world), entryOf(world), stage.site.signal);
    await stage.registry.deleteManifest(indexOf(world), digest, stage.site.signal);
    await controllers.stop();
    controllers = await start();
    await until(
      async () => ({ status: { tags: await entries(world) } }),
      ({ status }) => status.tags.includes(entryOf(world)),
      { what: "the World to be entered" },
    );
    const again = await stage.registry.getManifest(indexOf(world), entryOf(world), stage.site.signal);
    assert.equal(again.digest, digest, "the same entry");
    hideCatalog(401);
    await stage.kubectl("-n", stage.namespace, "delete", "world", "older", "--timeout=60s");
    const second = await stage.createWorld({}, "older");
    await until(
      () => stage.world(second),
      (object) => conditionOf(object, "Stalled")?.reason === "PreviousLineageFound",
      { what: "PreviousLineageFound" },
    );
  });

  test("a repository of another namespace is refused, and nothing of it is read", async () => {
    const victim = await work(await stage.readyWorld(), "secret");
    const other = await stage.site.namespace();
    const world = await stage.createWorld(
      { from: { repository: { name: victim.status.repository ?? "" } } },
      "thief",
      other,
    );
    await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Stalled")?.reason === "RepositoryNotAllowed",
      { what: "the refusal" },
    );
  });
});
