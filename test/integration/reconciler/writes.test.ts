import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isAlreadyExists, isConflict, isNotFound } from "../../../operator/src/kube/errors.ts";
import { EventRecorder } from "../../../operator/src/kube/events.ts";
import { CONFIG_MAPS, type ConfigMap, EVENTS, NAMESPACES } from "../../../operator/src/kube/resource-types.ts";
import type { KubeObject } from "../../../operator/src/reconciler/list-watch.ts";
import { silentLog } from "../../../operator/src/reconciler/log.ts";
import { type ReachableCluster, useCluster } from "../../kit/index.ts";
import { rig, signal } from "./rig.ts";

let cluster: ReachableCluster;
before(async () => {
  cluster = await useCluster();
});
after(() => cluster[Symbol.asyncDispose]());

test("a merge patch with a resourceVersion is a compare-and-swap, one without is not", async () => {
  await using it = await rig(cluster);
  const maps = it.client().resource<ConfigMap>(CONFIG_MAPS);
  const ref = { namespace: it.namespace, name: "m" };
  const first = await maps.create({ metadata: { name: "m" }, data: { a: "1" } }, { namespace: it.namespace, signal });
  await assert.rejects(
    maps.create({ metadata: { name: "m" } }, { namespace: it.namespace, signal }),
    (error) => isAlreadyExists(error) && !isConflict(error),
  );
  const second = await maps.patch(ref, { data: { b: "2" } }, { signal });
  assert.deepEqual(second.data, { a: "1", b: "2" });
  const stale = { metadata: { resourceVersion: first.metadata.resourceVersion }, data: { c: "3" } };
  await assert.rejects(maps.patch(ref, stale, { signal }), isConflict);
});

test("server-side apply creates, and takes a field over by force", async () => {
  await using it = await rig(cluster);
  const maps = it.client().resource<ConfigMap>(CONFIG_MAPS);
  const ref = { namespace: it.namespace, name: "m" };
  const body = (a: string) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "m" }, data: { a } });
  await maps.apply(ref, body("1"), { signal });
  const path = `/api/v1/namespaces/${it.namespace}/configmaps/m`;
  const query = { fieldManager: "somebody-else" };
  const contentType = "application/merge-patch+json";
  await it.direct.request("PATCH", path, { body: { data: { a: "theirs" } }, contentType, query, signal });
  assert.deepEqual((await maps.apply(ref, body("ours"), { signal })).data, { a: "ours" });
});

test("a status patch changes the status only", async () => {
  await using it = await rig(cluster);
  const namespaces = it.client().resource<KubeObject & { spec?: { finalizers?: string[] } }>(NAMESPACES);
  const condition = { type: "Tested", status: "True", reason: "Test", message: "", lastTransitionTime: null };
  const patch = { spec: { finalizers: ["example.com/never"] }, status: { conditions: [condition] } };
  const after = await namespaces.patchStatus({ name: it.namespace }, patch, { signal });
  assert.deepEqual(after.spec?.finalizers, ["kubernetes"]);
});

test("a deletion with the UID of another incarnation is refused; a missing object is a 404", async () => {
  await using it = await rig(cluster);
  const maps = it.client().resource<ConfigMap>(CONFIG_MAPS);
  const ref = { namespace: it.namespace, name: "m" };
  const made = await maps.create({ metadata: { name: "m" } }, { namespace: it.namespace, signal });
  await assert.rejects(maps.delete(ref, { uid: "11111111-1111-1111-1111-111111111111", signal }), isConflict);
  await maps.delete(ref, { uid: made.metadata.uid, signal });
  await assert.rejects(maps.delete(ref, { signal }), isNotFound);
});

interface EventObject extends KubeObject {
  readonly note: string;
  readonly eventTime: string;
  readonly series?: { readonly count: number };
}

test("Events are accepted, repetitions count on the first, and the namespace's end is survived", async () => {
  await using it = await rig(cluster);
  const recorder = new EventRecorder({
    client: it.client(),
    controller: "agentworlds.dev/test",
    instance: "test-0",
    log: silentLog,
  });
  const regarding = {
    apiVersion: "v1",
    kind: "ConfigMap",
    namespace: it.namespace,
    name: "m",
    uid: "11111111-1111-1111-1111-111111111111",
  };
  const fact = { regarding, type: "Warning", reason: "RegistryDown", action: "Publish" } as const;
  for (let i = 0; i < 3; i++) recorder.record({ ...fact, note: "the registry does not answer" });
  recorder.record({ ...fact, note: "another note" });
  recorder.record({ ...fact, note: "nowhere", regarding: { ...regarding, namespace: "no-such-namespace" } });
  await recorder.flush(signal);
  assert.deepEqual(recorder.counts(), { created: 2, repeated: 2, dropped: 0, failed: 1 });
  const { items } = await it.direct.resource<EventObject>(EVENTS).list({ namespace: it.namespace, signal });
  const told = items
    .filter((item) => item.metadata.name.startsWith("m."))
    .map((item) => [item.note, item.series?.count]);
  assert.deepEqual(told.toSorted(), [
    ["another note", undefined],
    ["the registry does not answer", 3],
  ]);
  await recorder.close();
});
