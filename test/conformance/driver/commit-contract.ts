import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { describe, test } from "node:test";
import { extract } from "tar-stream";
import { captureName } from "../../../operator/src/snapshot/docker-commit.ts";
import { refusal, STRANGERS_INSTALLATION } from "./bench.ts";
import type { OpenBench } from "./contract.ts";

/** Committing a container's filesystem to a local image. */
export function commitContract(open: OpenBench): void {
  describe("commit", () => {
    const states = ["Running", "Frozen", "Exited"] as const;
    for (const state of states) {
      test(`what boots from the commit of a container that is ${state} holds its files`, async () => {
        await using bench = open();
        const id = await bench.create();
        await bench.write(id, "/work/notes", `written before: ${state}`);
        if (state === "Frozen") await bench.driver.freeze(id, bench.signal);
        if (state === "Exited") await bench.kill(id);
        const image = bench.localName();
        await bench.driver.commit(id, image, bench.signal);
        assert.equal(await bench.state(id), state);
        const next = await bench.create({ image });
        assert.equal((await bench.read(next, "/work/notes")).toString(), `written before: ${state}`);
      });
    }

    test("a repeated commit under the same name is the first one, even when files changed since", async () => {
      await using bench = open();
      const id = await bench.create();
      await bench.write(id, "/work/notes", "first");
      const image = bench.localName();
      const first = await bench.driver.commit(id, image, bench.signal);
      await bench.write(id, "/work/notes", "second");
      assert.deepEqual(await bench.driver.commit(id, image, bench.signal), first);
      const next = await bench.create({ image });
      assert.equal((await bench.read(next, "/work/notes")).toString(), "first");
    });

    test("a name that is another container's commit is not moved", async () => {
      await using bench = open();
      const image = bench.localName();
      const first = await bench.driver.commit(await bench.create(), image, bench.signal);
      const other = await bench.create();
      await assert.rejects(
        bench.driver.commit(other, image, bench.signal),
        refusal("CommitFailed", /another container/),
      );
      assert.match(first.imageId, /^sha256:[0-9a-f]{64}$/);
    });

    test("commits of several containers at the same time all succeed", async () => {
      await using bench = open();
      const ids = await Promise.all([1, 2, 3].map(() => bench.create()));
      const images = await Promise.all(ids.map((id) => bench.driver.commit(id, bench.localName(), bench.signal)));
      assert.equal(new Set(images.map((image) => image.imageId)).size, 3);
    });

    test("captures are listed with their operation and session until they are forgotten, and nobody else's are", async () => {
      await using bench = open();
      const spec = bench.spec();
      const localName = bench.localName();
      await bench.driver.commit(await bench.driver.create(spec, bench.signal), localName, bench.signal);
      const theirs = await bench.stranger.create(bench.spec({ installation: STRANGERS_INSTALLATION }), bench.signal);
      await bench.stranger.commit(theirs, bench.localName(), bench.signal);
      const [capture, ...others] = await bench.driver.listCaptures(bench.installation, bench.signal);
      assert.deepEqual(others, []);
      assert.deepEqual(capture?.owner, spec.owner);
      assert.equal(capture?.localName, localName);
      assert.equal(localName, captureName(capture?.operation ?? ""));
      assert.ok(capture.createdAt > 0 && capture.createdAt <= Date.now() + 60_000);
      await bench.driver.forgetCommit(localName, bench.signal);
      assert.deepEqual(await bench.driver.listCaptures(bench.installation, bench.signal), []);
    });

    for (const state of ["Running", "Exited"] as const) {
      test(`the export of a container that is ${state} is a whole archive with its files`, async () => {
        await using bench = open();
        const id = await bench.create();
        await bench.write(id, "/work/notes", `written before: ${state}`);
        if (state === "Exited") await bench.kill(id);
        const entries = new Map<string, string>();
        const reader = extract();
        reader.on("entry", (header, content, next) => {
          void text(content).then((whole) => {
            entries.set(header.name, whole);
            next();
          }, next);
        });
        await pipeline(Readable.from(await bench.driver.exportTar(id, bench.signal)), reader);
        assert.equal(entries.get("work/notes"), `written before: ${state}`);
        assert.equal(await bench.state(id), state);
      });
    }

    test("the export of a container that is not there, or is a stranger's, is refused before the first byte", async () => {
      await using bench = open();
      const theirs = await bench.stranger.create(bench.spec({ installation: STRANGERS_INSTALLATION }), bench.signal);
      for (const id of ["aw-nobody-1", theirs]) {
        await assert.rejects(bench.driver.exportTar(id, bench.signal), refusal("ComputeNotFound", /./));
      }
    });

    test("a forgotten commit is gone, and forgetting may be repeated", async () => {
      await using bench = open();
      const image = bench.localName();
      const id = await bench.create();
      const first = await bench.driver.commit(id, image, bench.signal);
      await bench.driver.forgetCommit(image, bench.signal);
      await bench.driver.forgetCommit(image, bench.signal);
      assert.notEqual((await bench.driver.commit(id, image, bench.signal)).imageId, first.imageId);
    });
  });
}
