import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLog } from "../reconciler/log.ts";
import { createTestClock } from "../reconciler/test-clock.test-kit.ts";
import { type EventFact, EventRecorder } from "./events.ts";
import { fakeApi, json, type Respond, type SeenRequest } from "./fake-api.test-kit.ts";

const signal = new AbortController().signal;

const fact = (overrides: Partial<EventFact> = {}): EventFact => ({
  regarding: { apiVersion: "agentworlds.dev/v1alpha1", kind: "Sandbox", namespace: "team", name: "s", uid: "u1" },
  type: "Normal",
  reason: "Hibernated",
  action: "Hibernate",
  note: "published v1",
  ...overrides,
});

const accept: Respond = (_, response) => json(response, 200, { metadata: { name: "e", resourceVersion: "1" } });

async function setup(respond: Respond) {
  const api = await fakeApi(respond);
  const clock = createTestClock(Date.UTC(2026, 0, 2, 3, 4, 5, 6));
  const warnings: string[] = [];
  const recorder = new EventRecorder({
    client: api.client(),
    controller: "agentworlds.dev/sandbox",
    instance: "operator-0",
    log: { ...silentLog, warn: (_, message) => void warnings.push(message) },
    clock,
  });
  return {
    api,
    clock,
    recorder,
    warnings,
    async [Symbol.asyncDispose]() {
      await recorder.close();
      await api[Symbol.asyncDispose]();
    },
  };
}

const bodyOf = (request: SeenRequest | undefined) => JSON.parse(request?.body ?? "{}");

test("an Event carries the object, the reason, the action, the note and a MicroTime", async () => {
  await using it = await setup(accept);
  it.recorder.record(fact({ note: "x".repeat(2_000), annotations: { "agentworlds.dev/caused-by": "ada" } }));
  await it.recorder.flush(signal);
  const [request] = it.api.seen;
  assert.equal(request?.path, "/apis/events.k8s.io/v1/namespaces/team/events");
  const { metadata, note, ...rest } = bodyOf(request);
  assert.match(metadata.name, /^s\.[0-9a-f]{16}$/);
  assert.deepEqual(metadata.annotations, { "agentworlds.dev/caused-by": "ada" });
  assert.equal(note, `${"x".repeat(1_021)}…`);
  assert.deepEqual(rest, {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    eventTime: "2026-01-02T03:04:05.006000Z",
    reportingController: "agentworlds.dev/sandbox",
    reportingInstance: "operator-0",
    type: "Normal",
    reason: "Hibernated",
    action: "Hibernate",
    regarding: fact().regarding,
  });
});

test("a note is cut to 1,024 bytes, as the API server counts them, and never within a character", async () => {
  const bytesOf = (text: string): number => Buffer.byteLength(text);
  const whole = "é".repeat(512);
  const cases: [note: string, want: string][] = [
    [whole, whole],
    [`${whole}x`, `${"é".repeat(510)}…`],
    [`x${whole}`, `x${"é".repeat(510)}…`],
    ["世".repeat(1_024), `${"世".repeat(340)}…`],
    [`ab${"🦊".repeat(1_024)}`, `ab${"🦊".repeat(254)}…`],
  ];
  await using it = await setup(accept);
  for (const [note] of cases) it.recorder.record(fact({ note }));
  await it.recorder.flush(signal);
  const sent = it.api.seen.map((request) => String(bodyOf(request).note));
  assert.deepEqual(
    sent,
    cases.map(([, want]) => want),
  );
  for (const note of sent) assert.ok(bytesOf(note) <= 1_024, `${bytesOf(note)} bytes`);
});

test("the events of a cluster-scoped object live in default", async () => {
  await using it = await setup(accept);
  it.recorder.record(fact({ regarding: { apiVersion: "v1", kind: "Runtime", name: "rt", uid: "u2" } }));
  await it.recorder.flush(signal);
  assert.equal(it.api.seen[0]?.path, "/apis/events.k8s.io/v1/namespaces/default/events");
});

test("the same fact again counts on the first Event; another note is another Event", async () => {
  await using it = await setup(accept);
  for (const note of ["a", "a", "a", "b"]) it.recorder.record(fact({ note }));
  await it.recorder.flush(signal);
  assert.deepEqual(
    it.api.seen.map((request) => [request.method, bodyOf(request).series?.count]),
    [
      ["POST", undefined],
      ["PATCH", 2],
      ["PATCH", 3],
      ["POST", undefined],
    ],
  );
  assert.equal(bodyOf(it.api.seen[1]).series.lastObservedTime, "2026-01-02T03:04:05.006000Z");
  assert.deepEqual(it.recorder.counts(), { created: 2, repeated: 2, dropped: 0, failed: 0 });
});

test("a repetition after six minutes, or of an Event that has expired, is told anew", async () => {
  await using it = await setup((request, response) =>
    request.method === "PATCH" ? json(response, 404, { reason: "NotFound" }) : accept(request, response),
  );
  it.recorder.record(fact());
  await it.recorder.flush(signal);
  it.recorder.record(fact());
  await it.recorder.flush(signal);
  it.clock.jump(360_000);
  it.recorder.record(fact());
  await it.recorder.flush(signal);
  assert.deepEqual(
    it.api.seen.map((request) => request.method),
    ["POST", "PATCH", "POST", "POST"],
  );
});

test("an object whose note differs every time cannot fill etcd; other objects are not affected", async () => {
  await using it = await setup(accept);
  for (let i = 0; i < 40; i++) it.recorder.record(fact({ note: `position ${i}` }));
  it.recorder.record(fact({ regarding: { ...fact().regarding, uid: "other" } }));
  await it.recorder.flush(signal);
  assert.deepEqual(it.recorder.counts(), { created: 26, repeated: 0, dropped: 15, failed: 0 });
  it.clock.jump(60_000);
  it.recorder.record(fact({ note: "a minute later" }));
  await it.recorder.flush(signal);
  assert.equal(it.recorder.counts().created, 27);
});

test("an Event that cannot be written is counted and logged; the caller hears nothing, and the next is written", async () => {
  let calls = 0;
  await using it = await setup((request, response) => {
    calls += 1;
    if (calls === 1) json(response, 403, { reason: "Forbidden", message: "namespace is being terminated" });
    else accept(request, response);
  });
  it.recorder.record(fact({ note: "a" }));
  it.recorder.record(fact({ note: "b" }));
  await it.recorder.flush(signal);
  assert.deepEqual(it.recorder.counts(), { created: 1, repeated: 0, dropped: 0, failed: 1 });
  assert.deepEqual(it.warnings, ["an event could not be written"]);
});

test("closing aborts what hangs and drops the rest", async () => {
  await using it = await setup(() => undefined);
  it.recorder.record(fact({ note: "hangs" }));
  it.recorder.record(fact({ note: "waits" }));
  await it.recorder.close();
  it.recorder.record(fact({ note: "too late" }));
  const { failed, dropped } = it.recorder.counts();
  assert.equal(failed + dropped, 3);
});
