/** A snapshot that failed and is tried again: what it publishes is the tree of the freeze before it (DESIGN §4.7). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

test("a retry after a commit whose answer was lost captures anew: the session has worked on in between", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  parts.work("one");
  parts.ask("Snapshot", "save");
  const { commit } = parts.host.driver;
  let isLost = true;
  parts.host.driver.commit = async (...call) => {
    const committed = await commit(...call);
    if (!isLost) return committed;
    isLost = false;
    throw new RuntimeError("HostUnreachable", "the answer was lost");
  };
  await parts.until("failed once", () => parts.sandbox()?.status.operation?.attempts === 1);
  parts.work("two");
  await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result !== undefined);
  assert.equal(parts.sandbox()?.status.requests?.[0]?.result?.outcome, "Succeeded");
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one", "two"]);
});

test("a session that its host did not thaw after a failed attempt is thawed while the snapshot waits for the next", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  const { commit, thaw } = parts.host.driver;
  parts.host.driver.commit = () => Promise.reject(new RuntimeError("HostRefused", "no space left"));
  parts.host.driver.thaw = () => Promise.reject(new RuntimeError("HostRefused", "the cgroup is busy"));
  parts.ask("Snapshot", "save");
  await parts.until("failed once", () => parts.sandbox()?.status.operation?.attempts === 1);
  await parts.pass();
  assert.equal(parts.host.containers.get("aw-sandbox-uid-1")?.state, "Frozen");
  assert.equal(findCondition(parts.sandbox()?.status.conditions, "Ready")?.status, "False");
  parts.host.driver.thaw = thaw;
  await parts.pass();
  assert.equal(parts.sandbox()?.status.operation?.attempts, 1, "the next attempt is not due");
  assert.equal(findCondition(parts.sandbox()?.status.conditions, "Ready")?.status, "True");
  parts.work("one");
  parts.host.driver.commit = commit;
  await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result !== undefined);
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"]);
});
