import assert from "node:assert/strict";
import { test } from "node:test";
import { Gauge, Registry } from "prom-client";
import { type Endpoint, serveHealth, serveMetrics } from "./endpoints.ts";

const disposable = (endpoint: Endpoint) => ({
  get: (path: string) => fetch(`http://127.0.0.1:${endpoint.port}${path}`),
  [Symbol.asyncDispose]: () => endpoint.close(),
});

test("alive is alive whatever is wrong; ready names what is wrong, and recovers", async () => {
  let problems: string[] = ["worlds: no list yet", "no lease"];
  await using server = disposable(await serveHealth({ port: 0, problems: () => problems }));
  assert.equal((await server.get("/healthz")).status, 200);
  assert.equal((await server.get("/livez")).status, 200);
  const unready = await server.get("/readyz?verbose");
  assert.equal(unready.status, 503);
  assert.equal(await unready.text(), "worlds: no list yet\nno lease\n");
  problems = [];
  assert.equal((await server.get("/readyz")).status, 200);
});

test("metrics are served as Prometheus text", async () => {
  const registry = new Registry();
  new Gauge({ name: "agentworlds_test", help: "A test.", registers: [registry] }).set(3);
  await using server = disposable(await serveMetrics({ port: 0, registry }));
  const answer = await server.get("/metrics");
  assert.equal(answer.headers.get("content-type"), registry.contentType);
  assert.match(await answer.text(), /^agentworlds_test 3$/m);
});

test("any other path is not found", async () => {
  await using server = disposable(await serveHealth({ port: 0, problems: () => [] }));
  for (const path of ["/", "/metrics", "/healthz/../readyz2", "//"]) assert.equal((await server.get(path)).status, 404);
});

test("a metric that cannot be collected costs that answer, not the process", async () => {
  const registry = new Registry();
  new Gauge({
    name: "agentworlds_broken",
    help: "Throws.",
    registers: [registry],
    collect() {
      throw new Error("no such file: /proc/secret");
    },
  });
  await using server = disposable(await serveMetrics({ port: 0, registry }));
  const answer = await server.get("/metrics");
  assert.equal(answer.status, 500);
  assert.doesNotMatch(await answer.text(), /secret/);
  assert.equal((await server.get("/")).status, 404);
});

test("a port that is taken is an error of the start", async () => {
  const first = await serveHealth({ port: 0, problems: () => [] });
  await using _ = disposable(first);
  await assert.rejects(serveHealth({ port: first.port, problems: () => [] }), { code: "EADDRINUSE" });
});
