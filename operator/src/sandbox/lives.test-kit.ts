/** Lives of a session in memory, and the operator killed before and after each of their effects. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

export type Parts = Awaited<ReturnType<typeof memoryParts>>;

export const isReady = (sandbox: Sandbox | undefined) =>
  sandbox !== undefined && sandbox.status.operation === undefined && isTrue(sandbox.status.conditions, "Ready");
export const isAsleep = (sandbox: Sandbox | undefined) =>
  sandbox !== undefined && isTrue(sandbox.status.conditions, "Hibernated");

/** Nothing of a session is left over: no container, no capture, no hold, no reservation. */
export function assertClean(parts: Parts): void {
  const { status } = parts.world();
  assert.equal(status.holder, undefined, "the World is held by nobody");
  assert.equal(status.pending, undefined, "nothing is reserved");
  assert.deepEqual([...parts.host.containers.keys()], [], "no container is left");
  assert.deepEqual([...parts.host.commits.keys()], [], "no capture is left on the host");
  assert.deepEqual(
    [...parts.registry.tags.keys()].filter((tag) => tag.startsWith("capture-")),
    [],
  );
}

/** Head boots into exactly this work, its tags name it, and every version stands alone. */
export function assertSaved(parts: Parts, work: readonly string[]): void {
  const { head, versions = [] } = parts.world().status;
  assert.ok(head);
  assert.deepEqual(parts.host.worked(head.digest), ["base", ...work]);
  assert.equal(parts.registry.tags.get(`v${head.version}`), head.digest);
  assert.equal(parts.registry.tags.get("latest"), head.digest);
  assert.equal(new Set(versions.map(({ operation }) => operation)).size, versions.length, "one version per operation");
  assert.deepEqual(versions.at(-1)?.digest, head.digest);
}

export interface Life {
  readonly sandbox?: Parameters<typeof memoryParts>[0]["sandbox"];
  live(parts: Parts): Promise<void>;
}

/** Lives it once in peace, and once for each effect before and after which the operator is killed. */
export function testLife(name: string, { sandbox, live }: Life): void {
  const begin = (kill?: { index: number; when: "before" | "after" }) =>
    memoryParts({ ...(sandbox ? { sandbox } : {}), ...(kill ? { kill } : {}) });

  test(`a life: ${name}`, async () => {
    await live(await begin());
  });

  test(`a life: ${name}; killed before and after each of its effects, the operator goes on where it was`, async () => {
    const whole = await begin();
    await live(whole);
    assert.ok(whole.effects.seen.length > 10, "a life has effects to be killed at");
    for (const [index, effect] of whole.effects.seen.entries()) {
      for (const when of ["before", "after"] as const) {
        const parts = await begin({ index, when });
        try {
          await live(parts);
        } catch (error) {
          throw new Error(`killed ${when} effect ${index}, ${effect}`, { cause: error });
        }
        assert.ok(parts.wasKilled(), `the life went by without effect ${index}, ${effect}`);
      }
    }
  });
}
