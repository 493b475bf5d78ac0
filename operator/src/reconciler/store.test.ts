import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeObject } from "./list-watch.ts";
import { silentLog } from "./log.ts";
import { keyOf, ObjectStore, type StoreChange, splitKey } from "./store.ts";

interface Thing extends KubeObject {
  readonly world?: string;
}

const thing = (name: string, version: number, rest: { uid?: string; world?: string } = {}): Thing => ({
  metadata: { namespace: "n", name, uid: rest.uid ?? `uid-${name}`, resourceVersion: String(version) },
  ...(rest.world === undefined ? {} : { world: rest.world }),
});

function watched() {
  const store = new ObjectStore<Thing>({
    resource: "things",
    indexes: { world: (object) => (object.world === undefined ? [] : [object.world]) },
  });
  const seen: string[] = [];
  store.subscribe((change) => seen.push(describe(change)));
  return { store, seen };
}

const describe = (change: StoreChange<Thing>): string =>
  `${change.kind} ${change.object.metadata.name}@${change.object.metadata.resourceVersion} ${change.object.metadata.uid}`;

test("keys are namespace/name, or the name alone, and come apart again", () => {
  assert.equal(keyOf(thing("a", 1)), "n/a");
  const cluster = { metadata: { name: "rt", uid: "u", resourceVersion: "1" } };
  assert.equal(keyOf(cluster), "rt");
  assert.deepEqual(splitKey("n/a"), { namespace: "n", name: "a" });
  assert.deepEqual(splitKey("rt"), { name: "rt" });
});

test("a same-name object with a new UID is a deletion and an addition, never an update", () => {
  const { store, seen } = watched();
  store.set(thing("a", 1, { uid: "old" }));
  store.set(thing("a", 2, { uid: "new" }));
  store.replace([thing("a", 3, { uid: "newest" })]);
  assert.deepEqual(seen, ["added a@1 old", "deleted a@1 old", "added a@2 new", "deleted a@2 new", "added a@3 newest"]);
});

test("the same state again tells nobody", () => {
  const { store, seen } = watched();
  store.set(thing("a", 1));
  store.set(thing("a", 1));
  store.replace([thing("a", 1)]);
  assert.deepEqual(seen, ["added a@1 uid-a"]);
});

test("a relist tells only the differences, and takes over lower resourceVersions of a restored server", () => {
  const { store, seen } = watched();
  store.replace([thing("a", 10), thing("b", 11), thing("c", 12)]);
  seen.length = 0;
  store.replace([thing("a", 10), thing("b", 5)]);
  assert.deepEqual(seen, ["deleted c@12 uid-c", "updated b@5 uid-b"]);
});

test("a deletion carries the last state, and one of another incarnation still removes the one held", () => {
  const { store, seen } = watched();
  store.set(thing("a", 1));
  store.delete(thing("a", 2));
  store.set(thing("b", 3, { uid: "held" }));
  store.delete(thing("b", 4, { uid: "other" }));
  store.delete(thing("never", 5));
  assert.deepEqual(seen, ["added a@1 uid-a", "deleted a@2 uid-a", "added b@3 held", "deleted b@3 held"]);
});

test("an index follows every change", () => {
  const { store } = watched();
  const names = (world: string) => store.byIndex("world", world).map((object) => object.metadata.name);
  store.replace([thing("a", 1, { world: "w" }), thing("b", 2, { world: "w" }), thing("c", 3)]);
  assert.deepEqual(names("w"), ["a", "b"]);
  store.set(thing("a", 4, { world: "v" }));
  assert.deepEqual([names("w"), names("v")], [["b"], ["a"]]);
  store.delete(thing("b", 5, { world: "w" }));
  assert.deepEqual(names("w"), []);
  assert.throws(() => store.byIndex("nosuch", "x"), /no index "nosuch"/);
});

test("a late subscriber is told what is there first, and an unsubscribed one nothing more", () => {
  const { store } = watched();
  store.set(thing("a", 1));
  const seen: string[] = [];
  const leave = store.subscribe((change) => seen.push(describe(change)));
  store.set(thing("b", 2));
  leave();
  store.set(thing("c", 3));
  assert.deepEqual(seen, ["added a@1 uid-a", "added b@2 uid-b"]);
});

// client-node's informer died without a word when a callback threw during a relist (measured, reference/clients.md A1).
test("a listener that throws, at once or later, is logged and keeps nobody else from being told", async () => {
  const errors: string[] = [];
  const log = { ...silentLog, error: (_: object, message: string) => void errors.push(message) };
  const store = new ObjectStore<Thing>({ resource: "things", log });
  const seen: string[] = [];
  store.subscribe(() => {
    throw new Error("at once");
  });
  store.subscribe(async () => {
    throw new Error("later");
  });
  store.subscribe((change) => seen.push(describe(change)));
  store.replace([thing("a", 1)]);
  await new Promise<void>((resolve) => setImmediate(resolve));
  assert.deepEqual(seen, ["added a@1 uid-a"]);
  assert.deepEqual(errors, ["a store listener threw", "a store listener threw"]);
});

test("an index function that throws costs the object that index only", () => {
  const store = new ObjectStore<Thing>({
    resource: "things",
    indexes: {
      broken: () => {
        throw new Error("no");
      },
    },
  });
  store.set(thing("a", 1));
  assert.equal(store.size, 1);
  assert.deepEqual(store.byIndex("broken", "x"), []);
});
