/** The World is held from before a boot is recorded until its compute is gone (DESIGN §4.2). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../reconciler/conditions.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

const isReady = (parts: Parts) => () => isTrue(parts.sandbox()?.status.conditions, "Ready");

test("a pass that does not know of the boot that is recorded does not let go of its World", async () => {
  const parts = await memoryParts({});
  const before = parts.sandbox();
  parts.effects.killAfter("patch Sandbox status");
  await parts.until("killed", () => parts.wasKilled());
  assert.equal(parts.sandbox()?.status.compute?.boot, 1);
  parts.showCachedSandbox(before);
  await parts.pass();
  assert.equal(parts.sandbox()?.status.compute?.boot, 1, "it is not booted a second time");
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
  parts.showCachedSandbox();
  await parts.until("Ready", isReady(parts));
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
});

test("a boot whose record was carried out and not answered keeps its World", async () => {
  const parts = await memoryParts({});
  parts.sandboxes.interfere(
    () => undefined,
    () => parts.sandboxes.loseNextAnswer(true),
  );
  await parts.pass();
  assert.equal(parts.sandbox()?.status.compute?.boot, 1);
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
});

test("a pass that does not know of a boot's record neither lets go of its World nor takes its finalizer off", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  const { compute: _, boot: __, ...status } = parts.sandbox()?.status ?? { observedGeneration: 1 };
  const running = parts.sandbox();
  assert.ok(running);
  parts.showCachedSandbox({ ...running, spec: { ...running.spec, mode: "Hibernated" }, status });
  await parts.pass();
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
  assert.deepEqual(parts.sandbox()?.metadata.finalizers, ["agentworlds.dev/sandbox"]);
});

test("a close of a session that seems to sleep does not close over a boot that the cache does not show", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  parts.work("one");
  parts.ask("Close", "end");
  const closing = parts.sandbox();
  assert.ok(closing);
  const { compute: _, boot: __, ...status } = closing.status;
  parts.showCachedSandbox({
    ...closing,
    metadata: { ...closing.metadata, resourceVersion: "1", finalizers: [] },
    status,
  });
  await parts.pass();
  assert.equal(parts.sandbox()?.status.closed, undefined);
  parts.showCachedSandbox();
  await parts.until("Closed", () => parts.sandbox()?.status.closed !== undefined);
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"]);
});

test("a hold in the name of a session that has no compute and wants none is let go by that session", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  assert.equal(parts.world().status.holder, undefined);
  const holder = { sandbox: "one", uid: "sandbox-uid", causedBy: { user: "ada" }, acquiredAt: "2026-01-01T00:00:00Z" };
  parts.changeWorld((world) => ({ ...world, status: { ...world.status, holder } }));
  await parts.pass();
  assert.equal(parts.world().status.holder, undefined);
});
