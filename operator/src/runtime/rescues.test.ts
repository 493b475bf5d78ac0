import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime, RuntimeRescue } from "@agentworlds/crds";
import { RUNTIMES } from "../kube/resource-types.ts";
import { silentLog } from "../reconciler/log.ts";
import { memoryResource } from "./memory-resource.test-kit.ts";
import { createRuntimeRescues } from "./rescues.ts";
import { at, runtimeOf } from "./test-objects.test-kit.ts";

const { signal } = new AbortController();
const rescueOf = (boot: number, change: Partial<RuntimeRescue> = {}): RuntimeRescue => ({
  operation: `publish-${boot}`,
  namespace: "team",
  sandbox: { name: "one", uid: "sandbox-uid" },
  host: "a",
  computeId: `aw-sandbox-uid-${boot}`,
  reason: "SnapshotFailed",
  message: "the registry refused it",
  since: at(boot),
  ...change,
});

function setup(rescues: RuntimeRescue[] = []) {
  const runtimes = memoryResource<Runtime>(RUNTIMES, [
    runtimeOf({ status: { capacity: { total: 5, used: 1 }, ...(rescues.length > 0 ? { rescues } : {}) } }),
  ]);
  const recorded = () => runtimes.peek({ name: "local" })?.status.rescues;
  const errors: unknown[] = [];
  const log = { ...silentLog, error: (fields: object) => void errors.push(fields) };
  return { runtimes, rescues: createRuntimeRescues(runtimes, log), recorded, errors };
}

test("a rescue is added under the resourceVersion read, and nothing else of the status is touched", async () => {
  const { runtimes, rescues, recorded } = setup([rescueOf(1)]);
  await rescues.record("local", rescueOf(2), signal);
  assert.deepEqual(recorded(), [rescueOf(1), rescueOf(2)]);
  assert.deepEqual(runtimes.peek({ name: "local" })?.status.capacity, { total: 5, used: 1 });
  assert.deepEqual(
    runtimes.writes.map(({ body }) => body),
    [{ metadata: { resourceVersion: "101" }, status: { rescues: [rescueOf(1), rescueOf(2)] } }],
  );
});

test("a rescue that another process records in between is kept", async () => {
  const { runtimes, rescues, recorded } = setup();
  runtimes.interfere(() => {
    const runtime = runtimes.peek({ name: "local" });
    assert.ok(runtime);
    runtimes.put({ ...runtime, status: { ...runtime.status, rescues: [rescueOf(1)] } });
  });
  await rescues.record("local", rescueOf(2), signal);
  assert.deepEqual(recorded(), [rescueOf(1), rescueOf(2)]);
});

test("the same operation again is recorded once, with the time of the first", async () => {
  const { runtimes, rescues, recorded } = setup();
  await rescues.record("local", rescueOf(1), signal);
  await rescues.record("local", rescueOf(1, { since: at(999) }), signal);
  assert.deepEqual(recorded(), [rescueOf(1)]);
  assert.equal(runtimes.writes.length, 1);
});

test("a container that is kept already is not quarantined as another rescue", async () => {
  const { rescues, recorded } = setup([rescueOf(1)]);
  await rescues.record("local", rescueOf(1, { operation: "orphan-sandbox-uid-1", reason: "Orphaned" }), signal);
  assert.deepEqual(recorded(), [rescueOf(1)]);
});

test("the same name on another host is another container", async () => {
  const { rescues, recorded } = setup([rescueOf(1)]);
  await rescues.record("local", rescueOf(1, { operation: "publish-9", host: "b" }), signal);
  assert.equal(recorded()?.length, 2);
});

test("a full list drops nobody's work and holds nobody up: the caller and the log hear that it is not written down", async () => {
  const full = Array.from({ length: 64 }, (_, index) => rescueOf(index));
  const { runtimes, rescues, errors } = setup(full);
  assert.equal(await rescues.record("local", rescueOf(99), signal), "Full");
  assert.deepEqual(runtimes.writes, []);
  assert.deepEqual(errors, [{ runtime: "local", rescue: rescueOf(99) }]);
  assert.equal(await rescues.record("local", rescueOf(63), signal), "KnownAlready");
});

test("what is kept is read from the store", async () => {
  const { rescues } = setup();
  assert.deepEqual(await rescues.kept("local", signal), []);
  assert.equal(await rescues.record("local", rescueOf(1), signal), "Recorded");
  assert.deepEqual(await rescues.kept("local", signal), [rescueOf(1)]);
});

test("a Runtime that does not exist is an error: the caller must know that nothing was written down", async () => {
  const { rescues } = setup();
  await assert.rejects(rescues.record("gone", rescueOf(1), signal), { status: 404 });
});

test("endless conflicts end in an error", async () => {
  const { runtimes, rescues } = setup();
  const other = () => void runtimes.put(runtimes.peek({ name: "local" }) ?? runtimeOf());
  runtimes.interfere(...Array.from({ length: 100 }, () => other));
  await assert.rejects(rescues.record("local", rescueOf(1), signal), { status: 409 });
});
