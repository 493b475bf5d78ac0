import assert from "node:assert/strict";
import { test } from "node:test";
import { isTrue } from "../../reconciler/conditions.ts";
import { Waiting } from "../../reconciler/policy.ts";
import { creatorOf } from "../../world/creator.ts";
import { memoryParts } from "../memory-parts.test-kit.ts";
import { release } from "./release.ts";

test("without a driver for its host no container is removed, and none is forgotten", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  const since = "2026-01-01T00:00:00Z";
  const operation = { id: "end", verb: "Close", reason: "CloseRequested", outcome: "Discard", attempts: 0 } as const;
  parts.change((sandbox) => ({
    ...sandbox,
    status: { ...sandbox.status, operation: { ...operation, stage: "Discarded", since } },
  }));
  const sandbox = parts.sandbox();
  assert.ok(sandbox);
  const scope: Parameters<typeof release>[0] = {
    dependencies: parts.dependencies(),
    context: { signal: new AbortController().signal, clock: parts.clock, reconcileId: "test" },
    sandbox,
    createdBy: creatorOf(sandbox),
    worldEnding: false,
    savesNothing: false,
    goal: { kind: "asleep" },
  };
  await assert.rejects(release(scope), (error) => error instanceof Waiting && error.reason === "HostUnreachable");
  assert.deepEqual(parts.sandbox()?.status.compute, sandbox.status.compute);
  assert.equal(parts.host.containers.size, 1);
});
