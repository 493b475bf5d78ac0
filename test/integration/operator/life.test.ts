/** The life of a World and its sessions, on a real control plane, engine and registry; the controllers run in this process. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eventWith } from "../../kit/events.ts";
import { conditionOf, startControllers, until } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

describe("a World and its sessions", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;

  before(async () => {
    stage = parts.use(await Stage.open());
    parts.use(await startControllers(stage.site));
  });
  after(() => parts.disposeAsync());

  test("genesis: the source is resolved once, copied into the World's own repository and published as version 0", async () => {
    const world = await stage.readyWorld();
    const { status } = world;
    assert.equal(status.head?.version, 0);
    assert.equal(status.nextVersion, 1);
    assert.equal(status.pending, undefined);
    assert.match(
      status.repository ?? "",
      new RegExp(
        `/worlds/[0-9a-z]+/${world.metadata.namespace}/${world.metadata.name}-${world.metadata.uid.slice(0, 8)}$`,
      ),
    );
    assert.equal(status.genesis?.platform, "linux/amd64");
    assert.deepEqual(await stage.tags(world), ["latest", "v0"]);
    assert.equal(conditionOf(world, "GenesisReady")?.status, "True");
    assert.equal(conditionOf(world, "Reconciling"), undefined);
  });

  test("a session's work is in the next version, which boots with it; mode Hibernated and Running are the switch", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo kept > /tmp/a && rm /bin/true && mkdir /tmp/d && chmod 1777 /tmp/d");
    const asleep = await stage.setMode(sandbox, "Hibernated");
    assert.equal(asleep.status.compute, undefined);
    assert.equal(asleep.status.expiresAt, undefined);
    assert.equal(conditionOf(asleep, "Ready"), undefined, "Ready is absent while hibernated");
    assert.equal(asleep.metadata.finalizers, undefined, "no finalizer without compute");

    const published = await stage.world(world);
    assert.equal(published.status.head?.version, 1);
    assert.equal(published.status.holder, undefined);
    const version = published.status.versions?.at(-1);
    assert.equal(version?.reason, "Mode");
    assert.equal(version?.consistency, "Frozen");
    assert.equal(version?.parent, world.status.head?.digest);
    assert.equal(version?.sandbox?.uid, sandbox.metadata.uid);
    assert.deepEqual(await stage.tags(world), ["latest", "v0", "v1"]);

    const awake = await stage.setMode(sandbox, "Running");
    assert.equal(awake.status.boot, 2);
    assert.equal(awake.status.bootedFrom?.version, 1);
    assert.equal(
      await stage.shell(awake, "cat /tmp/a; ls /bin/true 2>&1; stat -c %a /tmp/d"),
      "kept\nls: /bin/true: No such file or directory\n1777\n",
    );
  });

  test("kubectl annotate makes a version of the running session, once for an id, by the name of whoever annotated", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo kept > /tmp/a");
    const annotate = (id: string) =>
      stage.kubectl(
        "-n",
        stage.namespace,
        "annotate",
        "sandbox",
        sandbox.metadata.name,
        "--overwrite",
        `agentworlds.dev/snapshot-requested=${id}`,
      );
    const answered = (id: string) =>
      until(
        () => stage.sandbox(sandbox),
        ({ status }) => status.requests?.find((request) => request.id === id)?.result !== undefined,
        { what: `${id} to be answered` },
      );
    await annotate("by-hand");
    const after = await answered("by-hand");
    const { status } = await stage.world(world);
    const [request] = after.status.requests ?? [];
    assert.equal(request?.result?.outcome, "Succeeded", request?.result?.message);
    assert.equal(request?.result?.digest, status.head?.digest);
    assert.equal(status.head?.version, 1);
    assert.equal(request?.user, "local-admin");
    assert.equal(status.versions?.at(-1)?.causedBy.user, "local-admin");
    assert.deepEqual(after.status.snapshotsRequested, ["by-hand"]);
    await annotate("again");
    await answered("again");
    await annotate("by-hand");
    await stage.setMode(sandbox, "Hibernated");
    await annotate("asleep");
    const asleep = await answered("asleep");
    assert.equal(asleep.status.requests?.at(-1)?.result?.code, "Hibernated");
    await eventWith(stage.site, asleep, "SnapshotNotTaken");
    const versions = (await stage.world(world)).status.versions?.map(({ reason }) => reason);
    assert.deepEqual(versions, ["Genesis", "Snapshot", "Snapshot", "Mode"], "no id made two versions");
  });

  test("the version's config is the genesis image's: no keep-alive command, no label, no environment of the session", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world, { env: [{ name: "PLANTED", value: "planted-value-77" }] });
    await stage.setMode(sandbox, "Hibernated");
    const { status } = await stage.world(world);
    const [genesis, version] = await Promise.all([
      stage.config(world, world.status.head?.digest),
      stage.config(world, status.head?.digest),
    ]);
    assert.deepEqual(version.config, genesis.config);
    assert.equal(version.rootfs.diff_ids.length, genesis.rootfs.diff_ids.length + 1);
    assert.equal(JSON.stringify(version).includes("planted"), false);
  });

  test("the deadline passes: the session becomes a version, and a touch wakes it from there", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world, { ttlSeconds: 2 });
    await stage.shell(sandbox, "echo slept > /tmp/b");
    const asleep = await stage.hibernated(sandbox);
    assert.equal(conditionOf(asleep, "Hibernated")?.reason, "DeadlinePassed");
    assert.equal((await stage.world(world)).status.versions?.at(-1)?.reason, "Deadline");
    await stage.request(asleep, { id: "wake-1", verb: "Touch" });
    const awake = await stage.ready(asleep, 2);
    assert.equal(awake.status.requests?.[0]?.result?.outcome, "Succeeded");
    assert.equal(await stage.shell(awake, "cat /tmp/b"), "slept\n");
  });

  test("a snapshot of a running session publishes and the session goes on", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo one > /tmp/c");
    await stage.request(sandbox, { id: "snap-1", verb: "Snapshot", parameters: { description: "first light" } });
    const answered = await until(
      () => stage.sandbox(sandbox),
      ({ status }) => status.requests?.[0]?.result !== undefined,
      { what: "an answer to the snapshot" },
    );
    assert.equal(answered.status.requests?.[0]?.result?.version, 1);
    assert.equal(answered.status.compute?.boot, 1, "the same container");
    assert.equal(await stage.shell(answered, "cat /tmp/c; echo two >> /tmp/c"), "one\n", "it was thawed");
    const closed = await stage.close(answered);
    assert.equal(closed.status.closed?.version, 2);
    const { status } = await stage.world(world);
    assert.deepEqual(
      status.versions?.map(({ version, description, reason }) => [version, description, reason]),
      [
        [0, "", "Genesis"],
        [1, "first light", "Snapshot"],
        [2, "first light", "Close"],
      ],
      "a snapshot that states no description carries it forward",
    );
  });

  test("close with Discard saves nothing and says so", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.shell(sandbox, "echo gone > /tmp/x");
    const closed = await stage.close(sandbox, "Discard");
    assert.equal(closed.status.closed?.digest, undefined);
    assert.equal((await stage.world(world)).status.head?.version, 0);
    assert.equal(await stage.containers(sandbox), 0);
  });

  test("a throwaway session boots its image, saves nothing, and its end is its close", async () => {
    const sandbox = await stage.sandboxOf({ image: stage.image, ttlSeconds: 2 });
    const ready = await stage.ready(sandbox, 1);
    assert.equal(await stage.shell(ready, "echo ok"), "ok\n");
    const closed = await stage.closed(ready);
    assert.equal(closed.status.closed?.digest, undefined);
  });

  test("one writer: a second Sandbox waits by name and boots from the first one's version", async () => {
    const world = await stage.readyWorld();
    const first = await stage.readySandbox(world);
    const second = await stage.sandboxOf({ world: { name: world.metadata.name } });
    const waiting = await until(
      () => stage.sandbox(second),
      (sandbox) => conditionOf(sandbox, "Admitted")?.reason === "WorldHeld",
      { what: "the second to wait" },
    );
    assert.match(conditionOf(waiting, "Admitted")?.message ?? "", new RegExp(first.metadata.name));
    assert.match((await eventWith(stage.site, second, "WorldHeld")).note, new RegExp(first.metadata.name));
    await stage.shell(first, "echo from-first > /tmp/f");
    await stage.close(first);
    const booted = await stage.ready(second, 1);
    assert.equal(booted.status.bootedFrom?.version, 1);
    assert.equal(await stage.shell(booted, "cat /tmp/f"), "from-first\n");
  });

  test("deleting a Sandbox publishes its work first; deleting a World waits for its session", async () => {
    const world = await stage.readyWorld();
    const first = await stage.readySandbox(world);
    await stage.shell(first, "echo last > /tmp/l");
    await stage.deleted(first);
    assert.equal((await stage.world(world)).status.head?.version, 1);
    const second = await stage.readySandbox(world);
    assert.equal(await stage.shell(second, "cat /tmp/l"), "last\n");
    const repository = world.status.repository ?? "";
    await stage.kubectl("-n", stage.namespace, "delete", "world", world.metadata.name, "--timeout=60s");
    const asleep = await stage.hibernated(second);
    assert.equal(conditionOf(asleep, "Hibernated")?.reason, "WorldDeleted");
    assert.match((await eventWith(stage.site, world, "HolderEnding")).note, new RegExp(second.metadata.name));
    assert.ok((await stage.tagsOf(repository)).includes("v2"), "deletionPolicy Retain keeps the versions");
  });

  test("a World that is created again under the same name is a stranger", async () => {
    const world = await stage.readyWorld();
    const sandbox = await stage.readySandbox(world);
    await stage.setMode(sandbox, "Hibernated");
    await stage.kubectl("-n", stage.namespace, "delete", "world", world.metadata.name, "--timeout=60s");
    const { name } = world.metadata;
    await stage.createWorld({}, name);
    const left = (world.status.repository ?? "").replace(/^.*\//, "");
    await stage.kubectl("-n", stage.namespace, "annotate", "world", name, `agentworlds.dev/ignore-lineages=${left}`);
    const again = await until(
      () => stage.world(world),
      (object) => conditionOf(object, "Ready")?.status === "True",
      { what: "the World to start anew" },
    );
    assert.notEqual(again.status.repository, world.status.repository);
    await stage.patchMode(sandbox, "Running");
    const refused = await until(
      () => stage.sandbox(sandbox),
      (object) => conditionOf(object, "Stalled") !== undefined,
      { what: "the refusal" },
    );
    assert.equal(conditionOf(refused, "Stalled")?.reason, "WorldReplaced");
    assert.equal(await stage.containers(sandbox), 0);
  });

  test("a Sandbox that is created again under the same name is a stranger to the first one's container", async () => {
    const world = await stage.readyWorld();
    const first = await stage.readySandbox(world);
    await stage.shell(first, "echo first > /tmp/who");
    await stage.deleted(first);
    const again = await stage.sandboxOf({ world: { name: world.metadata.name } }, undefined, first.metadata.name);
    const ready = await stage.ready(again, 1);
    assert.notEqual(ready.status.compute?.id, first.status.compute?.id);
    assert.equal(ready.status.bootedFrom?.version, 1);
    assert.equal(await stage.shell(ready, "cat /tmp/who"), "first\n");
  });

  test("an image with VOLUME, USER, ENTRYPOINT and ENV: the volume's path is kept in versions, the rest is as it was", async () => {
    const image = await stage.imageWith("declared", [
      "VOLUME /data",
      "USER 1234:1234",
      'ENTRYPOINT ["/bin/echo"]',
      "ENV GIVEN=by-the-image",
      "WORKDIR /tmp",
    ]);
    const world = await stage.readyWorld(undefined, { from: { image } });
    const sandbox = await stage.readySandbox(world);
    assert.equal(await stage.shell(sandbox, 'id -u; echo "$GIVEN"; pwd'), "1234\nby-the-image\n/tmp\n");
    await stage.shellAs(sandbox, "0", "mkdir -p /data && echo kept > /data/file");
    await stage.setMode(sandbox, "Hibernated");
    const { status } = await stage.world(world);
    assert.equal(await stage.readInVersion(world, status.head?.digest, "data/file"), "kept\n");
    const { config } = await stage.config(world, status.head?.digest);
    assert.deepEqual(config.Entrypoint, ["/bin/echo"]);
    assert.equal(config.User, "1234:1234");
    assert.equal(config.Volumes, undefined);
  });

  test("retention: versions beyond keepVersions leave status and registry; pinned ones stay", async () => {
    const world = await stage.readyWorld(undefined, { retention: { keepVersions: 2, pinned: [1] } });
    const sandbox = await stage.readySandbox(world);
    for (let turn = 1; turn <= 4; turn++) {
      await stage.shell(sandbox, `echo ${turn} > /tmp/turn`);
      await stage.request(await stage.sandbox(sandbox), { id: `s-${turn}`, verb: "Snapshot" });
      await until(
        () => stage.sandbox(sandbox),
        ({ status }) => status.requests?.find(({ id }) => id === `s-${turn}`)?.result !== undefined,
        { what: `snapshot ${turn}` },
      );
    }
    const pruned = await until(
      () => stage.world(world),
      ({ status }) =>
        status.prunedVersions?.every(({ deletedAt }) => deletedAt !== undefined) === true &&
        status.prunedVersions.length === 1,
      { what: "the pruning" },
    );
    // Version 0 stays while the session that booted from it runs; 1 is pinned; 2 goes; 3 and 4 are the newest two.
    assert.deepEqual(
      pruned.status.versions?.map(({ version }) => version),
      [0, 1, 3, 4],
    );
    assert.equal((await stage.tags(world)).includes("v2"), false);
    await stage.close(sandbox);
  });
});
