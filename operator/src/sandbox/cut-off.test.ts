/** A call that hangs takes the whole pass, every time: it must neither hold a deletion nor a live session for ever. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { whenAborted } from "../reconciler/deadline.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

/** A session with work whose commits hang until their pass is cut off. */
async function withHangingCommits() {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  parts.work("one");
  parts.host.driver.commit = async (_id, _name, signal) => {
    parts.cutOff();
    await whenAborted(signal);
    throw signal.reason;
  };
  return parts;
}

test("a snapshot whose commit hangs is a failed attempt: the session is thawed, and told why it gives up", async () => {
  const parts = await withHangingCommits();
  parts.ask("Snapshot", "save");
  await parts.until("failed once", () => parts.sandbox()?.status.operation?.attempts === 1);
  assert.match(parts.sandbox()?.status.operation?.lastError ?? "", /took longer than/);
  assert.deepEqual(
    [...parts.host.containers.values()].map(({ state }) => state),
    ["Running"],
  );
  await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result !== undefined);
  assert.equal(parts.sandbox()?.status.requests?.[0]?.result?.code, "SnapshotFailed");
});

test("a deletion whose commit hangs ends with its work rescued", async () => {
  const parts = await withHangingCommits();
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.equal(parts.world().status.rescues?.length, 1);
  assert.equal(parts.host.containers.size, 1);
});

test("the deletion of a World whose session cannot publish ends, too: its work is handed over and the hold ends", async () => {
  const parts = await memoryParts({ withWorld: true });
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  parts.work("one");
  parts.silenceHost();
  parts.deleteWorld();
  await parts.until("gone", () => !parts.hasWorld());
  assert.equal(parts.sandbox()?.status.lastEnding?.outcome, "Rescued");
  assert.equal(parts.runtimes.peek({ name: "local" })?.status.rescues?.length, 1);
  assert.equal(parts.host.containers.size, 1);
});
