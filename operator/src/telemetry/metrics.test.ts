import assert from "node:assert/strict";
import { test } from "node:test";
import { PASS_ENDS, WATCH_ENDS } from "../reconciler/metrics.ts";
import { createMetrics } from "./metrics.ts";

const known = { controllers: ["world", "sandbox"], resources: ["worlds"] };

test("every series exists at zero before the first event, so that a rate exists before the first error", async () => {
  const text = await createMetrics(known).registry.metrics();
  for (const controller of known.controllers) {
    for (const outcome of PASS_ENDS) {
      assert.ok(
        text.includes(`agentworlds_reconcile_total{controller="${controller}",outcome="${outcome}"} 0`),
        outcome,
      );
    }
    assert.ok(text.includes(`agentworlds_queue_depth{queue="${controller}"} 0`));
  }
  for (const cause of WATCH_ENDS) {
    assert.ok(text.includes(`agentworlds_watch_closed_total{resource="worlds",cause="${cause}"} 0`), cause);
  }
});

test("what the reconciler reports is what is served, in seconds", async () => {
  const { registry, reconciler } = createMetrics(known);
  const [outcome] = PASS_ENDS;
  reconciler.reconciled("world", { outcome, milliseconds: 1_500 });
  reconciler.queueWaited("world", 250);
  reconciler.watchHeard("worlds", { type: "BOOKMARK", at: 5_000 });
  reconciler.leading("agent-worlds", true);
  const text = await registry.metrics();
  for (const line of [
    `agentworlds_reconcile_total{controller="world",outcome="${outcome}"} 1`,
    'agentworlds_reconcile_seconds_sum{controller="world"} 1.5',
    'agentworlds_queue_wait_seconds_sum{queue="world"} 0.25',
    'agentworlds_watch_last_event_timestamp_seconds{resource="worlds"} 5',
    'agentworlds_leader{lease="agent-worlds"} 1',
  ]) {
    assert.ok(text.includes(`${line}\n`), line);
  }
});

test("what the verification finds is served, and starts at zero", async () => {
  const { registry, verification } = createMetrics(known);
  assert.match(await registry.metrics(), /^agentworlds_versions_damaged 0$/m);
  verification.verified({ versions: 7, at: 5_000 });
  verification.verified({ versions: 2, at: 6_000 });
  verification.damaged(3);
  verification.failed();
  const text = await registry.metrics();
  for (const line of [
    "agentworlds_versions_verified_total 9",
    "agentworlds_verification_last_timestamp_seconds 6",
    "agentworlds_versions_damaged 3",
    "agentworlds_verification_failures_total 1",
  ]) {
    assert.ok(text.includes(`${line}\n`), line);
  }
});

test("what only a leader knows is not served by a process that ceased to lead", async () => {
  const { registry, reconciler, verification, rescues } = createMetrics(known);
  reconciler.leading("agent-worlds", true);
  verification.damaged(3);
  rescues.rescuesKept("local", 2);
  reconciler.leading("agent-worlds", false);
  const text = await registry.metrics();
  assert.match(text, /^agentworlds_leader\{lease="agent-worlds"\} 0$/m);
  assert.match(text, /^agentworlds_versions_damaged 0$/m);
  assert.doesNotMatch(text, /agentworlds_rescues\{/);
});

test("a Runtime that is gone leaves no series of its rescues behind, and another's stays", async () => {
  const { registry, rescues } = createMetrics(known);
  rescues.rescuesKept("gone", 2);
  rescues.rescuesKept("local", 1);
  rescues.rescuesKept("gone", undefined);
  const text = await registry.metrics();
  assert.doesNotMatch(text, /runtime="gone"/);
  assert.match(text, /^agentworlds_rescues\{runtime="local"\} 1$/m);
});

test("two sets of metrics in one process do not share a series", async () => {
  const one = createMetrics(known);
  createMetrics(known).reconciler.leading("agent-worlds", true);
  assert.doesNotMatch(await one.registry.metrics(), /agentworlds_leader\{/);
});
