/** A boot that does not come about leaves nothing behind: no hold, no finalizer, and no slot. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionError } from "../kube/errors.ts";
import { findCondition } from "../reconciler/conditions.ts";
import { at } from "../runtime/test-objects.test-kit.ts";
import { isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

/** One more host, which does not answer: whoever has to ask all of them waits for it. */
async function withSilentHost(options: Parameters<typeof memoryParts>[0] = {}): Promise<Parts> {
  const parts = await memoryParts(options);
  parts.addHost("b");
  return parts;
}

const slots = (parts: Parts): number =>
  [...parts.dependencies().admission.occupancy(parts.dependencies().sandboxes.list(), "local").values()].reduce(
    (sum, count) => sum + count,
    0,
  );
const ready = (parts: Parts) => findCondition(parts.sandbox()?.status.conditions, "Ready");

test("a session that lost the race for its World waits for that World alone, although another host is silent", async () => {
  const parts = await withSilentHost();
  const holder = { sandbox: "two", uid: "two-uid", causedBy: { user: "bob" }, acquiredAt: at(0) };
  parts.effects.beforeNext("patch Sandbox", () =>
    parts.changeWorld((world) => ({ ...world, status: { ...world.status, holder } })),
  );
  await parts.pass();
  assert.deepEqual([ready(parts)?.reason, parts.sandbox()?.metadata.finalizers], ["WorldHeld", []]);
  await parts.pass();
  assert.equal(ready(parts)?.reason, "WorldHeld");
  assert.equal(parts.world().status.holder?.uid, "two-uid");
  parts.changeWorld(({ status: { holder: _, ...status }, ...world }) => ({ ...world, status }));
  await parts.until("Ready", () => isReady(parts.sandbox()));
});

const kinds: [name: string, sandbox: NonNullable<Parameters<typeof memoryParts>[0]["sandbox"]>][] = [
  ["a session of a World", {}],
  ["a throwaway session", { spec: { image: "busybox:1" } }],
];
for (const [name, sandbox] of kinds) {
  test(`${name} that is written to while it boots boots right afterwards, although another host is silent`, async () => {
    const parts = await withSilentHost({ sandbox });
    parts.effects.beforeNext("patch Sandbox status", () => parts.ask("Touch", "wake"));
    await parts.pass();
    assert.deepEqual([parts.sandbox()?.status.boot, parts.sandbox()?.metadata.finalizers], [undefined, []]);
    assert.deepEqual([parts.world().status.holder, slots(parts)], [undefined, 0]);
    await parts.until("Ready", () => isReady(parts.sandbox()));
  });

  test(`${name} whose boot had no answer and was not recorded gives its slot back, also when it is not to boot any more`, async () => {
    for (const lost of ["patch", "patchStatus"] as const) {
      const parts = await memoryParts({ sandbox });
      const client = parts.sandboxes;
      const whole = client[lost];
      client[lost] = () => Promise.reject(new ConnectionError("the answer was cut", { outcomeUnknown: true }));
      await parts.pass();
      client[lost] = whole;
      parts.change((one) => ({ ...one, spec: { ...one.spec, mode: "Hibernated" } }));
      await parts.pass();
      assert.deepEqual([slots(parts), parts.world().status.holder], [0, undefined], lost);
      assert.deepEqual(parts.sandbox()?.metadata.finalizers ?? [], [], lost);
    }
  });
}

test("a slot stays taken while the cache does not show the boot that was recorded without an answer", async () => {
  const parts = await memoryParts({});
  const before = parts.sandbox();
  const { patchStatus } = parts.sandboxes;
  parts.sandboxes.patchStatus = async (...call) => {
    parts.sandboxes.patchStatus = patchStatus;
    await patchStatus(...call);
    throw new ConnectionError("the answer was cut", { outcomeUnknown: true });
  };
  await parts.pass();
  assert.equal(parts.sandbox()?.status.boot, 1);
  parts.showCachedSandbox(before);
  await parts.pass();
  assert.equal(slots(parts), 1);
  parts.showCachedSandbox();
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(slots(parts), 1);
});
