import assert from "node:assert/strict";
import { test } from "node:test";
import { type Sandbox, sandboxSchema } from "@agentworlds/crds";
import type { EventFact } from "../kube/events.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import type { Identity } from "./identity.ts";
import { TouchTrace } from "./touch-trace.ts";

const who = (user: string): Identity => ({ user, uid: undefined, groups: [], extra: {}, via: "Proxied" });

const session = (name: string): Sandbox =>
  sandboxSchema.parse({
    apiVersion: "agentworlds.dev/v1alpha1",
    kind: "Sandbox",
    metadata: { name, namespace: "team", uid: `uid-${name}`, resourceVersion: "1", generation: 1 },
    spec: { image: "busybox" },
    status: { observedGeneration: 1 },
  });

function rig() {
  const facts: EventFact[] = [];
  const clock = createTestClock();
  return { facts, clock, trace: new TouchTrace({ recorder: { record: (fact) => facts.push(fact) }, clock }) };
}

test("a touch leaves an Event on the Sandbox that names who touched", () => {
  const { facts, trace } = rig();
  trace.touched(session("s"), who("alice"));
  const [fact] = facts;
  assert.deepEqual(fact?.regarding, {
    apiVersion: "agentworlds.dev/v1alpha1",
    kind: "Sandbox",
    name: "s",
    namespace: "team",
    uid: "uid-s",
  });
  assert.equal(fact?.reason, "Touched");
  assert.deepEqual(fact?.annotations, { "agentworlds.dev/caused-by": '{"user":"alice"}' });
});

test("a ServiceAccount is named as the agent it counts as", () => {
  const { facts, trace } = rig();
  trace.touched(session("s"), who("system:serviceaccount:ci:runner"));
  assert.deepEqual(JSON.parse(facts[0]?.annotations?.["agentworlds.dev/caused-by"] ?? ""), {
    user: "system:serviceaccount:ci:runner",
    agent: "serviceaccount:ci:runner",
  });
});

test("one Event per session and user in a minute, whatever they touch", async () => {
  const { facts, trace, clock } = rig();
  for (let touches = 0; touches < 300; touches++) trace.touched(session("s"), who("alice"));
  assert.equal(facts.length, 1);
  trace.touched(session("s"), who("bob"));
  trace.touched(session("other"), who("alice"));
  assert.equal(facts.length, 3);
  await clock.advance(60_001);
  trace.touched(session("s"), who("alice"));
  assert.equal(facts.length, 4);
  assert.equal(facts[3]?.note, facts[0]?.note, "the same sentence: it becomes a count, not another Event");
});
