/** Whoever looks between any two writes of an ending reads what became of the work: a condition says so as soon as status does. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox } from "@agentworlds/crds";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

/** The condition that an ending calls for; undefined while none is recorded. */
function dueCondition({ status }: Sandbox): string | undefined {
  if (status.lastEnding === undefined || status.compute !== undefined) return undefined;
  const { outcome } = status.lastEnding;
  if (outcome === "Lost") return "ComputeLost";
  if (outcome === "Rescued") return "SnapshotFailed";
  return status.closed ? "Closed" : "Hibernated";
}

const ENDINGS: Readonly<Record<string, { condition: string; begin: (parts: Parts) => void }>> = {
  "the container is removed": {
    condition: "ComputeLost",
    begin: (parts) => parts.host.containers.clear(),
  },
  "the end cannot be published, and the work is kept": {
    condition: "SnapshotFailed",
    begin(parts) {
      parts.registry.failing.set(parts.genesis.digest, "Unavailable");
      parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
    },
  },
  "mode Hibernated": {
    condition: "Hibernated",
    begin: (parts) => parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } })),
  },
  "a close": { condition: "Closed", begin: (parts) => parts.ask("Close", "c") },
};

for (const [name, { condition, begin }] of Object.entries(ENDINGS)) {
  const endingIn = (parts: Parts): string | undefined => {
    const sandbox = parts.sandbox();
    return sandbox && dueCondition(sandbox);
  };

  async function ready(kill?: { index: number; when: "after" }): Promise<Parts> {
    const parts = await memoryParts({ withWorld: true, ...(kill ? { kill } : {}) });
    await parts.until("Ready", () => parts.wasKilled() || isTrue(parts.sandbox()?.status.conditions, "Ready"));
    if (parts.wasKilled()) return parts;
    parts.work("one");
    begin(parts);
    return parts;
  }

  test(`${name}: after whichever of its writes the operator is killed, no ending stands in status without ${condition}`, async () => {
    const whole = await ready();
    await whole.until(condition, () => endingIn(whole) === condition);
    let endings = 0;
    for (const [index, effect] of whole.effects.seen.entries()) {
      if (effect !== "patch Sandbox status") continue;
      const parts = await ready({ index, when: "after" });
      await parts.until("killed", () => parts.wasKilled());
      const due = endingIn(parts);
      if (due === undefined) continue;
      endings += 1;
      assert.equal(due, condition);
      const said = findCondition(parts.sandbox()?.status.conditions, condition);
      assert.equal(said?.status, "True", `killed after effect ${index}`);
      assert.equal(said.reason, parts.sandbox()?.status.lastEnding?.reason);
    }
    assert.ok(endings > 0, "a kill came after the write of the ending");
  });
}
