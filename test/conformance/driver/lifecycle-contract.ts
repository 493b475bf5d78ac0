import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { once, refusal, STRANGERS_INSTALLATION } from "./bench.ts";
import type { OpenBench } from "./contract.ts";

/** Create, adopt, freeze, stop, remove, list. */
export function lifecycleContract(open: OpenBench, absentImage: () => string): void {
  describe("life of a container", () => {
    test("a create answers with the name known before it, and the container runs", async () => {
      await using bench = open();
      const spec = bench.spec();
      const id = await bench.driver.create(spec, bench.signal);
      assert.equal(id, `aw-${spec.owner.sandboxUid}-1`);
      assert.equal(await bench.state(id), "Running");
    });

    test("whose a container is stands in what it was made with; of one that is not there nobody knows", async () => {
      await using bench = open();
      const spec = bench.spec();
      const id = await bench.driver.create(spec, bench.signal);
      assert.deepEqual(await bench.driver.ownerOf(id, bench.signal), spec.owner);
      await bench.driver.remove(id, bench.signal);
      assert.equal(await bench.driver.ownerOf(id, bench.signal), undefined);
    });

    test("a repeated create adopts what the first one made", async () => {
      await using bench = open();
      const spec = bench.spec();
      const ids = await Promise.all([1, 2, 3].map(() => bench.driver.create(spec, bench.signal)));
      await bench.write(ids[0] ?? "", "/tmp/kept", "x");
      ids.push(await bench.driver.create(spec, bench.signal));
      assert.equal(new Set(ids).size, 1);
      assert.equal((await bench.driver.list(bench.installation, bench.signal)).length, 1);
      assert.equal((await bench.read(ids[0] ?? "", "/tmp/kept")).toString(), "x");
    });

    test("an adopted container that has ended is not started again", async () => {
      await using bench = open();
      const spec = bench.spec();
      const id = await bench.driver.create(spec, bench.signal);
      await bench.kill(id);
      assert.equal(await bench.driver.create(spec, bench.signal), id);
      assert.equal(await bench.state(id), "Exited");
    });

    test("an adopted container that is frozen stays frozen", async () => {
      await using bench = open();
      const spec = bench.spec();
      const id = await bench.driver.create(spec, bench.signal);
      await bench.driver.freeze(id, bench.signal);
      assert.equal(await bench.driver.create(spec, bench.signal), id);
      assert.equal(await bench.state(id), "Frozen");
    });

    test("a container of that name that is another installation's is neither adopted nor touched", async () => {
      await using bench = open();
      const theirs = bench.spec({ installation: STRANGERS_INSTALLATION });
      const id = await bench.stranger.create(theirs, bench.signal);
      const ours = bench.spec({ uid: theirs.owner.sandboxUid });
      await assert.rejects(bench.driver.create(ours, bench.signal), refusal("ComputeConflict"));
      assert.equal((await bench.stranger.inspect(id, bench.signal)).state, "Running");
    });

    test("another installation's container is absent: it is not looked into, and survives every effect on its name", async () => {
      await using bench = open();
      const id = await bench.stranger.create(bench.spec({ installation: STRANGERS_INSTALLATION }), bench.signal);
      const path = Buffer.from("/tmp/theirs");
      assert.deepEqual(await bench.driver.inspect(id, bench.signal), { state: "Absent" });
      assert.equal(await bench.driver.ownerOf(id, bench.signal), undefined);
      const acts = [
        () => bench.driver.exec(id, { command: ["true"] }, bench.signal),
        () => bench.driver.readFile(id, path, bench.signal),
        () => bench.driver.writeFile(id, { path, content: once(Buffer.from("ours")) }, bench.signal),
        () => bench.driver.sync(id, bench.signal),
        () => bench.driver.freeze(id, bench.signal),
        () => bench.driver.thaw(id, bench.signal),
        () => bench.driver.commit(id, bench.localName(), bench.signal),
        () => bench.driver.stop(id, bench.signal),
      ];
      for (const act of acts) await assert.rejects(act, refusal("ComputeNotFound"));
      await bench.driver.remove(id, bench.signal);
      assert.equal((await bench.stranger.inspect(id, bench.signal)).state, "Running");
      await assert.rejects(bench.stranger.readFile(id, path, bench.signal), refusal("FileNotFound"));
    });

    test("an image that does not exist is named in the refusal, and nothing is made", async () => {
      await using bench = open();
      const spec = bench.spec({ image: absentImage() });
      await assert.rejects(
        bench.driver.create(spec, bench.signal),
        (error) =>
          refusal("ImageUnavailable")(error) && error instanceof Error && error.message.includes(absentImage()),
      );
      assert.deepEqual(await bench.driver.list(bench.installation, bench.signal), []);
    });

    test("what was written in a running container is brought to the disk; a frozen or dead one cannot do so and says that", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.write(id, "/tmp/synced", "x".repeat(1 << 20));
      await bench.driver.sync(id, bench.signal);
      await bench.driver.sync(id, bench.signal);
      await bench.driver.freeze(id, bench.signal);
      await assert.rejects(bench.driver.sync(id, bench.signal), refusal("ComputeNotRunning"));
      await bench.kill(id);
      await assert.rejects(bench.driver.sync(id, bench.signal), refusal("ComputeNotRunning"));
    });

    test("freezing and thawing may be repeated", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.driver.thaw(id, bench.signal);
      await bench.driver.freeze(id, bench.signal);
      await bench.driver.freeze(id, bench.signal);
      assert.equal(await bench.state(id), "Frozen");
      await bench.driver.thaw(id, bench.signal);
      await bench.driver.thaw(id, bench.signal);
      assert.equal(await bench.state(id), "Running");
    });

    test("a stop ends a running or frozen container, keeps it, and may be repeated", async () => {
      await using bench = open();
      for (const isFrozen of [false, true]) {
        const id = await bench.create();
        if (isFrozen) await bench.driver.freeze(id, bench.signal);
        await bench.driver.stop(id, bench.signal);
        await bench.driver.stop(id, bench.signal);
        assert.equal(await bench.state(id), "Exited", `frozen: ${isFrozen}`);
      }
    });

    test("a remove ends whatever state there is, and an absent container is a success", async () => {
      await using bench = open();
      const running = await bench.create();
      const frozen = await bench.create();
      const dead = await bench.create();
      await bench.driver.freeze(frozen, bench.signal);
      await bench.kill(dead);
      for (const id of [running, frozen, dead]) {
        await Promise.all([bench.driver.remove(id, bench.signal), bench.driver.remove(id, bench.signal)]);
        await bench.driver.remove(id, bench.signal);
        assert.equal(await bench.state(id), "Absent");
      }
    });

    test("a dead container reports that it ended", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.kill(id);
      const compute = await bench.driver.inspect(id, bench.signal);
      assert.equal(compute.state === "Exited" && compute.exitCode, 137);
    });

    test("a container that does not exist is said to be absent, and acting on it names it", async () => {
      await using bench = open();
      const id = "aw-nobody-1";
      assert.deepEqual(await bench.driver.inspect(id, bench.signal), { state: "Absent" });
      const acts = [
        () => bench.driver.exec(id, { command: ["true"] }, bench.signal),
        () => bench.driver.sync(id, bench.signal),
        () => bench.driver.freeze(id, bench.signal),
        () => bench.driver.thaw(id, bench.signal),
        () => bench.driver.stop(id, bench.signal),
        () => bench.driver.commit(id, bench.localName(), bench.signal),
      ];
      for (const act of acts) await assert.rejects(act, refusal("ComputeNotFound", /aw-nobody-1/));
    });

    test("a list shows this installation's containers in every state, and nobody else's", async () => {
      await using bench = open();
      const running = bench.spec();
      const dead = bench.spec();
      await bench.driver.create(running, bench.signal);
      await bench.kill(await bench.driver.create(dead, bench.signal));
      await bench.stranger.create(bench.spec({ installation: STRANGERS_INSTALLATION }), bench.signal);
      const listed = await bench.driver.list(bench.installation, bench.signal);
      const byUid = new Map(listed.map((compute) => [compute.owner.sandboxUid, compute]));
      assert.equal(listed.length, 2);
      assert.deepEqual(byUid.get(running.owner.sandboxUid)?.owner, running.owner);
      assert.equal(byUid.get(running.owner.sandboxUid)?.state, "Running");
      assert.equal(byUid.get(dead.owner.sandboxUid)?.state, "Exited");
    });

    test("a call whose signal is aborted does nothing and says so with the caller's reason", async () => {
      await using bench = open();
      const spec = bench.spec();
      const reason = new Error("the lease is lost");
      await assert.rejects(bench.driver.create(spec, AbortSignal.abort(reason)), (error) => error === reason);
      assert.deepEqual(await bench.driver.list(bench.installation, bench.signal), []);
    });

    test("a host says what it is", async () => {
      await using bench = open();
      const facts = await bench.driver.probe(bench.signal);
      assert.match(facts.platform, /^linux\/(amd64|arm64)$/);
      assert.ok(facts.ociRuntimes.length > 0, "a host tells by what its containers run");
      assert.ok(facts.capabilities.includes("exec") && facts.cpus > 0 && facts.memoryBytes > 0);
    });
  });
}
