import assert from "node:assert/strict";
import { test } from "node:test";
import { at, runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { worldParts } from "./world-parts.test-kit.ts";

const spec = { selection: "Default" } as const;
const silent = {
  type: "Ready",
  status: "False",
  reason: "NoHostReachable",
  message: "no host answers: a at tcp://10.1.2.3:2376 (connect ECONNREFUSED)",
  lastTransitionTime: at(0),
  observedGeneration: 1,
} as const;

const waits: [name: string, runtime: ReturnType<typeof runtimeOf>, type: string, message: string][] = [
  [
    "made a moment ago, as at every first apply",
    runtimeOf({ spec, status: { observedGeneration: -1 } }),
    "Normal",
    "the hosts of Runtime local are being asked; this goes on by itself",
  ],
  [
    "whose hosts do not answer",
    runtimeOf({ spec, status: { conditions: [silent] } }),
    "Warning",
    "Runtime local cannot be used now: NoHostReachable; see its conditions: kubectl describe runtime local",
  ],
];
for (const [name, runtime, type, message] of waits) {
  test(`a new World on a Runtime ${name}: ${type}, and no address is told`, async () => {
    const parts = worldParts({ history: [], runtimes: [runtime], image: "Offered" });
    parts.change((world) => ({ ...world, status: { observedGeneration: -1 } }));
    await parts.pass();
    assert.deepEqual(
      parts.events.map((event) => [event.type, event.reason, event.message]),
      [[type, "RuntimeNotReady", message]],
    );
    assert.equal(parts.condition("Ready")?.reason, "RuntimeNotReady");
  });
}
