import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type ControlPlane, controlPlane, eventually } from "../../kit/index.ts";
import { mirror, rig, signal } from "./rig.ts";

// An own control plane: these tests compact etcd and restart the API server.
let cluster: ControlPlane;
before(async () => {
  cluster = await controlPlane({ own: true });
});
after(() => cluster[Symbol.asyncDispose]());

const lists = (happened: readonly string[]): number => happened.filter((what) => what === "list").length;

test("a position that etcd has compacted away leads to one new list that tells only what changed", async () => {
  await using it = await rig(cluster);
  await it.write("kept", "1");
  await it.write("gone", "1");
  await using copy = mirror(it);
  await copy.converged();
  await it.proxy.down();
  await it.write("new", "1");
  await it.remove("gone");
  // The API server answers from its cache until it is restarted.
  await cluster.compact();
  await cluster.restartApiServer();
  const before = copy.told.length;
  await it.proxy.up();
  await copy.converged({ timeoutMs: 90_000 });
  assert.ok(copy.happened.includes("expired"), copy.happened.join());
  assert.equal(lists(copy.happened), 2);
  assert.deepEqual(copy.told.slice(before), ["deleted gone 1", "added new 1"]);
});

// kubernetes-client/javascript#795: after a restart of the API server no more events came.
test("events go on after the API server was restarted", async () => {
  await using it = await rig(cluster);
  await using copy = mirror(it);
  await copy.converged();
  await cluster.restartApiServer();
  await it.write("after", "1");
  await copy.converged({ timeoutMs: 90_000 });
});

// kubernetes-client/javascript#458
test("bookmarks move a quiet mirror on, so that a compaction does not force a new list", async () => {
  await using it = await rig(cluster);
  await using other = await rig(cluster);
  await it.write("quiet", "1");
  // The server sends a bookmark two seconds before a watch's timeout.
  await using copy = mirror(it, { reflector: { watchTimeoutSeconds: 5, random: () => 0 } });
  await copy.converged();
  const bookmarks = (): number => copy.happened.filter((what) => what === "BOOKMARK").length;
  // The rest of the cluster is busy: with nothing new to tell, the server sends a bookmark once a minute only.
  let written = 0;
  const nextBookmark = (what: string, after: number): Promise<true> =>
    eventually(
      async () => {
        await other.write("busy", String(written++));
        return bookmarks() > after;
      },
      { intervalMs: 250, timeoutMs: 120_000, what },
    );
  await nextBookmark("a bookmark", 0);
  await cluster.compact();
  await nextBookmark("a bookmark after the compaction", bookmarks());
  await it.proxy.down();
  await it.proxy.up();
  await nextBookmark("another bookmark", bookmarks());
  assert.equal(lists(copy.happened), 1);
  await it.configMaps.get({ namespace: it.namespace, name: "quiet" }, { signal });
});
