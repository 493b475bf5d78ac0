import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CONFIG_MAPS, type ConfigMap } from "../../../operator/src/kube/resource-types.ts";
import { createController, intentOf } from "../../../operator/src/reconciler/controller.ts";
import { noMetrics, type PassEnd } from "../../../operator/src/reconciler/metrics.ts";
import { Terminal } from "../../../operator/src/reconciler/policy.ts";
import type { Reconcile } from "../../../operator/src/reconciler/reconcile.ts";
import { keyOf } from "../../../operator/src/reconciler/store.ts";
import { WorkQueue } from "../../../operator/src/reconciler/workqueue.ts";
import { eventually, type Fault, type ReachableCluster, useCluster } from "../../kit/index.ts";
import { SEED_VARIABLE, sampleSeed } from "../../kit/seed.ts";
import { type Mirror, mirror, type Rig, rig, signal } from "./rig.ts";

let cluster: ReachableCluster;
before(async () => {
  cluster = await useCluster();
});
after(() => cluster[Symbol.asyncDispose]());

const SEEN = "agentworlds.dev/seen";

/** A controller that writes each ConfigMap's value into an annotation, by compare-and-swap, through the rig's proxy. */
function annotator(it: Rig, copy: Mirror) {
  const maps = it.client({ deadlineMs: 1_000 }).resource<ConfigMap>(CONFIG_MAPS);
  const ends: PassEnd[] = [];
  const queue = new WorkQueue({ name: "annotator", backoff: { baseMs: 20, capMs: 1_000 } });
  const reconcile: Reconcile = async (key, context) => {
    const object = copy.store.get(key);
    const value = object?.data?.["value"];
    if (object === undefined || value === undefined) return {};
    if (value === "poison") throw new Terminal("Poisoned", { message: "this value cannot be seen" });
    if (object.metadata.annotations?.[SEEN] === value) return {};
    const { resourceVersion, name } = object.metadata;
    const patch = { metadata: { resourceVersion, annotations: { [SEEN]: value } } };
    await maps.patch({ namespace: it.namespace, name }, patch, { signal: context.signal });
    return {};
  };
  const controller = createController({
    name: "annotator",
    queue,
    reconcile,
    // A ConfigMap has no generation; its value is what is asked for.
    intent: (key) => {
      const object = copy.store.get(key);
      return object && `${intentOf(object)} ${object.data?.["value"]}`;
    },
    metrics: { ...noMetrics, reconciled: (_, { outcome }) => void ends.push(outcome) },
  });
  copy.store.subscribe(({ object }) => queue.add(keyOf(object)));
  const stop = new AbortController();
  const running = controller.run(stop.signal);
  return {
    controller,
    ends,
    async [Symbol.asyncDispose]() {
      await controller.drain(5_000);
      await running;
    },
  };
}

async function allSeen(it: Rig): Promise<boolean> {
  const { items } = await it.configMaps.list({ namespace: it.namespace, signal });
  return items.every(
    ({ data, metadata }) => data?.["value"] === undefined || metadata.annotations?.[SEEN] === data["value"],
  );
}

async function versions(it: Rig): Promise<string> {
  const { items } = await it.configMaps.list({ namespace: it.namespace, signal });
  return items.map(({ metadata }) => `${metadata.name} ${metadata.resourceVersion}`).join();
}

/** Two more watches come and go, each of which would have brought a write to light. */
async function twoWatches(copy: Mirror): Promise<void> {
  const ended = (): number => copy.happened.filter((what) => what === "ended").length;
  const before = ended();
  await eventually(() => ended() >= before + 2, { what: "two watches end" });
}

/** mulberry32: a small generator whose sequence a seed repeats. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const FAULTS: readonly Fault[] = [
  { kind: "respond", status: 500 },
  { kind: "respond", status: 429, headers: { "retry-after": "1" } },
  { kind: "reset", at: "request" },
  // The write was carried out and its answer is lost.
  { kind: "reset", at: "answer" },
  { kind: "reset", afterBytes: 311 },
  { kind: "silence" },
  { kind: "half-open", afterBytes: 200 },
  { kind: "duplicate-lines" },
  { kind: "latency", milliseconds: 200 },
];

test("under random faults every value is seen in the end, and a settled system writes nothing", async (t) => {
  const seed = sampleSeed();
  t.diagnostic(`${SEED_VARIABLE}=${seed}`);
  const random = randomOf(seed);
  await using it = await rig(cluster);
  await using copy = mirror(it, { reflector: { watchTimeoutSeconds: 1 } });
  await using worker = annotator(it, copy);
  const rules = FAULTS.flatMap((fault) =>
    ["GET", "PATCH"].map((method) =>
      it.proxy.add({ method, path: /configmaps/, skip: Math.floor(random() * 8), times: 1, fault }),
    ),
  );
  for (let i = 0; i < 80; i++) {
    const name = `m${Math.floor(random() * 12)}`;
    await it.write(name, `value-${i}`);
    if (random() < 0.1) it.proxy.cut();
  }
  const applied = (): number => rules.filter((rule) => rule.applied > 0).length;
  await eventually(() => allSeen(it), { timeoutMs: 90_000, what: "every value is seen" });
  it.proxy.clear();
  await copy.converged();
  t.diagnostic(
    `${applied()} of ${rules.length} faults came true; passes: ${JSON.stringify(
      Object.fromEntries(
        Map.groupBy(worker.ends, (end) => end)
          .entries()
          .map(([end, all]) => [end, all.length]),
      ),
    )}`,
  );
  assert.ok(applied() >= FAULTS.length / 2, "too few faults came true to prove anything");

  const settled = await versions(it);
  await twoWatches(copy);
  assert.equal(await versions(it), settled);
});

test("a Terminal rests until the object changes, and a conflict is no error", async () => {
  await using it = await rig(cluster);
  await using copy = mirror(it);
  await using worker = annotator(it, copy);
  await it.write("m", "poison");
  await eventually(() => worker.ends.includes("terminal"));
  await it.configMaps.patch({ namespace: it.namespace, name: "m" }, { metadata: { labels: { a: "b" } } }, { signal });
  await eventually(() => worker.ends.includes("stalled"));
  await it.write("m", "wholesome");
  await eventually(() => allSeen(it));
  // Another writer of the same object: the controller's compare-and-swap loses now and then, and wins in the end.
  let race = 0;
  await eventually(
    async () => {
      race += 1;
      await it.write("m", `race-${race}`);
      return worker.ends.includes("conflict");
    },
    { intervalMs: 1 },
  );
  await eventually(() => allSeen(it));
  assert.equal(worker.ends.filter((end) => end === "terminal").length, 1);
  assert.ok(!worker.ends.includes("error"), worker.ends.join());
});
