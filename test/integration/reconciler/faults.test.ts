import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { createKubeClient } from "../../../operator/src/kube/client.ts";
import { isNotFound } from "../../../operator/src/kube/errors.ts";
import { CONFIG_MAPS, type ConfigMap } from "../../../operator/src/kube/resource-types.ts";
import { type Cluster, controlPlane, eventually } from "../../kit/index.ts";
import { credential, mirror, type Rig, rig, setCredential, signal } from "./rig.ts";

const WATCH = /\/configmaps\?.*watch=1/;
const LIST = /\/configmaps\?(?!.*watch=1)/;

let cluster: Cluster;
before(async () => {
  cluster = await controlPlane();
});
after(() => cluster[Symbol.asyncDispose]());

/** Creates, changes, deletes and recreates a handful of objects. */
async function churn(it: Rig, round: string): Promise<void> {
  for (const name of ["a", "b", "c", "d"]) await it.write(name, `${round}-1`);
  await it.write("a", `${round}-2`);
  await it.remove("b");
  await it.remove("c");
  await it.write("c", `${round}-recreated`);
}

test("without faults the mirror equals the server, and paging yields every object", async () => {
  await using it = await rig(cluster);
  for (const name of ["p1", "p2", "p3", "p4", "p5", "p6", "p7"]) await it.write(name, "x");
  await using copy = mirror(it);
  await copy.converged();
  await churn(it, "calm");
  await copy.converged();
  assert.ok(copy.told.includes("deleted c calm-1") && copy.told.includes("added c calm-recreated"));
  assert.deepEqual(
    copy.happened.filter((what) => what === "list"),
    ["list"],
    "no second list was needed",
  );
});

test("latency on every request only delays", async () => {
  await using it = await rig(cluster);
  const rule = it.proxy.add({ fault: { kind: "latency", milliseconds: 300 } });
  await using copy = mirror(it);
  await churn(it, "slow");
  await copy.converged();
  assert.ok(rule.applied > 0);
});

test("429 with Retry-After on lists and watches is waited out", async () => {
  await using it = await rig(cluster);
  const fault = { kind: "respond", status: 429, headers: { "retry-after": "1" }, body: "slow down" } as const;
  const rules = [LIST, WATCH].map((path) => it.proxy.add({ path, times: 2, fault }));
  await using copy = mirror(it);
  await eventually(() => rules.every((rule) => rule.applied === 2), { what: "every fault has come true" });
  await churn(it, "throttled");
  await copy.converged();
});

test("5xx on lists and watches is retried until it ends; readiness waits for the first list", async () => {
  await using it = await rig(cluster);
  const broken = it.proxy.add({ path: LIST, fault: { kind: "respond", status: 503, body: "down" } });
  await using copy = mirror(it);
  await eventually(() => broken.applied >= 2);
  assert.equal(copy.reflector.hasSynced(), false);
  broken.remove();
  const watches = it.proxy.add({ path: WATCH, times: 3, fault: { kind: "respond", status: 500 } });
  await eventually(() => watches.applied === 3, { what: "every fault has come true" });
  await churn(it, "errors");
  await copy.converged();
});

test("a reset in mid-line loses no event and brings no half one", async () => {
  await using it = await rig(cluster);
  await using copy = mirror(it);
  await copy.converged();
  // Odd sizes, so that cuts fall anywhere in a line; each watch is cut as soon as it has carried that much.
  const rules = [157, 613, 1_031].map((afterBytes) =>
    it.proxy.add({ path: WATCH, times: 2, fault: { kind: "reset", afterBytes } }),
  );
  it.proxy.cut();
  for (let round = 0; round < 6; round++) await churn(it, `cut-${round}`);
  await copy.converged();
  assert.ok(
    rules.some((rule) => rule.applied > 0),
    "a fault came true",
  );
  assert.deepEqual(
    copy.happened.filter((what) => what === "list"),
    ["list"],
    "each time it resumed by resourceVersion",
  );
});

test("a half-open watch is noticed, and what it withheld arrives", async () => {
  await using it = await rig(cluster);
  const rule = it.proxy.add({ path: WATCH, times: 1, fault: { kind: "half-open", afterBytes: 0 } });
  await using copy = mirror(it);
  await eventually(() => copy.reflector.hasSynced());
  await churn(it, "withheld");
  await copy.converged();
  assert.equal(rule.applied, 1);
  assert.ok(copy.happened.includes("silent"));
});

test("a partition heals by itself, whichever connections it left open", async () => {
  await using it = await rig(cluster);
  await using copy = mirror(it);
  await copy.converged();
  it.proxy.partition();
  await churn(it, "partition");
  await eventually(() => copy.happened.includes("silent") || copy.happened.includes("watch failed"));
  it.proxy.heal();
  await copy.converged();
});

test("an outage heals by itself", async () => {
  await using it = await rig(cluster);
  await using copy = mirror(it);
  await copy.converged();
  await it.proxy.down();
  await churn(it, "outage");
  await eventually(() => copy.reflector.health().failures >= 3);
  await it.proxy.up();
  await copy.converged();
});

test("characters split over several packets arrive whole", async () => {
  await using it = await rig(cluster);
  const rule = it.proxy.add({ path: /configmaps/, fault: { kind: "split", sizes: [1, 2, 3, 5, 64], pauseMs: 1 } });
  const text = "Wörld 🌍 λ — 日本語";
  await it.write("before", text);
  await using copy = mirror(it, { client: { deadlineMs: 30_000 }, reflector: { listDeadlineMs: 30_000 } });
  await eventually(() => copy.reflector.hasSynced());
  await it.write("after", text);
  const values = await eventually(() => {
    const found = ["before", "after"].map((name) => copy.store.get(`${it.namespace}/${name}`)?.data?.["value"]);
    return found.includes(undefined) ? undefined : found;
  });
  assert.deepEqual(values, [text, text]);
  assert.ok(rule.applied > 0);
});

test("a list and a watch that are never answered end at their deadlines", async () => {
  await using it = await rig(cluster);
  const rules = [LIST, WATCH].map((path) => it.proxy.add({ path, times: 1, fault: { kind: "silence" } }));
  await using copy = mirror(it, { client: { deadlineMs: 500 }, reflector: { listDeadlineMs: 500 } });
  await eventually(() => rules.every((rule) => rule.applied === 1), { what: "both silences have come true" });
  await churn(it, "silence");
  await copy.converged();
});

test("the head of an error and then silence ends at the deadline; no try leaves its connection behind", async () => {
  await using it = await rig(cluster);
  const rules = [
    it.proxy.add({ path: WATCH, times: 4, fault: { kind: "respond", status: 503, body: "down" } }),
    it.proxy.add({ path: WATCH, times: 4, fault: { kind: "half-open", afterBytes: 1 } }),
  ];
  await using copy = mirror(it, { client: { deadlineMs: 300 } });
  await eventually(() => rules.every((rule) => rule.applied === 4), { what: "every fault has come true" });
  await churn(it, "stuck");
  await copy.converged();
  // The watch that serves now, and the pool of calls: one at a time here.
  await eventually(() => it.proxy.connections <= 2, { what: "the connections of the failed tries are closed" });
});

test("a redirect on lists and watches is a failure that is retried, never an answer", async () => {
  await using it = await rig(cluster);
  const fault = { kind: "respond", status: 302, headers: { location: "/login" } } as const;
  const rules = [LIST, WATCH].map((path) => it.proxy.add({ path, times: 2, fault }));
  await using copy = mirror(it);
  await eventually(() => rules.every((rule) => rule.applied === 2), { what: "every fault has come true" });
  await churn(it, "redirected");
  await copy.converged();
});

test("duplicated events are told once", async () => {
  await using it = await rig(cluster);
  const rule = it.proxy.add({ path: WATCH, fault: { kind: "duplicate-lines" } });
  await using copy = mirror(it);
  await eventually(() => copy.reflector.hasSynced());
  await churn(it, "twice");
  await copy.converged();
  assert.ok(rule.applied > 0);
  assert.deepEqual(copy.told.toSorted(), [...new Set(copy.told)].toSorted());
});

test("a rotated token is taken up without a restart, by calls and by the mirror", async () => {
  await using it = await rig(cluster);
  const client = it.client();
  const maps = client.resource<ConfigMap>(CONFIG_MAPS);
  await using copy = mirror(it);
  await copy.converged();
  await maps.list({ namespace: it.namespace, signal });

  const old = await credential(it, "token");
  await setCredential(it, "token", await it.renewServiceAccount());
  // The server caches a verdict on a token for some seconds; wait until the old one is refused.
  await eventually(async () => (await statusWith(it, old)) === 401, { what: "the old token is refused" });
  await maps.list({ namespace: it.namespace, signal });
  it.proxy.cut();
  await churn(it, "rotated");
  await copy.converged();
});

test("a rotated CA is taken up without a restart, by calls and by the mirror", async () => {
  await using it = await rig(cluster);
  const maps = it.client().resource<ConfigMap>(CONFIG_MAPS);
  await using copy = mirror(it);
  await copy.converged();
  await maps.list({ namespace: it.namespace, signal });

  const next = it.newServerIdentity();
  it.proxy.rotateServerTls(next.tls);
  it.proxy.cut();
  await assert.rejects(maps.list({ namespace: it.namespace, signal }), {
    name: "ConnectionError",
    outcomeUnknown: false,
  });
  await setCredential(it, "ca.crt", next.caPem);
  await maps.list({ namespace: it.namespace, signal });
  await churn(it, "rotated");
  await copy.converged();
});

// kubernetes-client/javascript#2893: 300 calls made 300 TLS connections.
test("a thousand calls make no more TLS connections than the pool has", async (t) => {
  await using it = await rig(cluster);
  await using relay = await countingRelay(cluster);
  const text = (await readFile(cluster.kubeconfigPath, "utf8")).replaceAll(cluster.url, relay.url);
  const client = createKubeClient({ source: { kind: "kubeconfigText", text }, poolSize: 4 });
  const maps = client.resource<ConfigMap>(CONFIG_MAPS);
  const absent = { namespace: it.namespace, name: "absent" };
  for (let round = 0; round < 40; round++) {
    const calls = Array.from({ length: 25 }, () => maps.get(absent, { signal }));
    for (const result of await Promise.allSettled(calls)) {
      assert.ok(result.status === "rejected" && isNotFound(result.reason));
    }
  }
  await client.close();
  t.diagnostic(`connections for 1000 calls: ${relay.accepted()}`);
  assert.ok(relay.accepted() >= 1 && relay.accepted() <= 4, `${relay.accepted()} connections`);
});

/** Passes bytes through to the API server and counts the connections, which nothing else tells apart from outside. */
async function countingRelay(to: Cluster): Promise<AsyncDisposable & { url: string; accepted(): number }> {
  const target = new URL(to.url);
  const sockets = new Set<Socket>();
  let accepted = 0;
  const server = createServer((inward) => {
    accepted += 1;
    const outward = connect(Number(target.port), target.hostname);
    for (const [from, into] of [
      [inward, outward],
      [outward, inward],
    ] as const) {
      sockets.add(from);
      from.pipe(into);
      // Either end may reset while the test closes; the other end follows.
      from.on("error", () => into.destroy());
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return {
    url: `https://127.0.0.1:${address.port}`,
    accepted: () => accepted,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

test("a mirror that is stopped leaves no connection behind", async () => {
  await using it = await rig(cluster);
  const copy = mirror(it);
  await copy.converged();
  await copy.stop();
  await eventually(() => it.proxy.connections <= 1, { what: "the watch's connection is closed" });
});

async function statusWith(it: Rig, token: string): Promise<number> {
  const review = await it.direct.request<{ status: { authenticated?: boolean } }>(
    "POST",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    { body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token } }, signal },
  );
  return review.status.authenticated === true ? 200 : 401;
}
