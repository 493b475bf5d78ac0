/** Who asked is kept with everything that came of it: operation, version, Event (DESIGN §4.10). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { CREATED_BY } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import { isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const RUNNER = "system:serviceaccount:ci:runner";
/** A ServiceAccount counts as an agent of its own (DESIGN §11). */
const AGENT = { user: RUNNER, agent: "serviceaccount:ci:runner" };
/** The stamp of a session in which a named agent works. */
const CREATOR = { user: RUNNER, agent: "coder", conversation: "c-1" };

const newestCause = (parts: Parts) => parts.world().status.versions?.at(-1)?.causedBy;
const toldOf = (parts: Parts, reason: string) => parts.events.findLast((event) => event.reason === reason)?.causedBy;

test("a ServiceAccount that snapshots, wakes and closes a session of another is named as the agent it counts as", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.ask("Snapshot", "save", RUNNER);
  await parts.until("saved", () => parts.world().status.head?.version === 1);
  assert.deepEqual(newestCause(parts), AGENT);

  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  parts.ask("Touch", "wake", RUNNER);
  await parts.until("Ready again", () => isReady(parts.sandbox()));
  assert.deepEqual(toldOf(parts, "Admitted"), AGENT);

  parts.work("two");
  parts.ask("Close", "end", RUNNER);
  await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
  assert.deepEqual(newestCause(parts), AGENT);
  assert.deepEqual(toldOf(parts, "Hibernating"), AGENT);
});

test("a person who asks is named without an agent", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.ask("Snapshot", "save", "bob");
  await parts.until("saved", () => parts.world().status.head?.version === 1);
  assert.deepEqual(newestCause(parts), { user: "bob" });
});

test("the creator who asks for something in the own session is who the stamp says, agent and conversation included", async () => {
  const parts = await memoryParts({});
  parts.change((sandbox) => ({
    ...sandbox,
    metadata: { ...sandbox.metadata, annotations: { [CREATED_BY]: JSON.stringify(CREATOR) } },
  }));
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  parts.ask("Touch", "wake", RUNNER);
  await parts.until("Ready again", () => isReady(parts.sandbox()));
  assert.deepEqual(toldOf(parts, "Admitted"), CREATOR);
  parts.ask("Snapshot", "save", RUNNER);
  await parts.until("saved", () => parts.world().status.head?.version === 2);
  assert.deepEqual(newestCause(parts), CREATOR);
});
