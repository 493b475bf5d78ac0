/** A session in memory whose end could not be published, and what must be true when that is over. */
import assert from "node:assert/strict";
import type { WorldRescue } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

export type Parts = Awaited<ReturnType<typeof memoryParts>>;
type Options = Omit<Parameters<typeof memoryParts>[0], "withWorld">;

export const isKept = (parts: Parts): boolean => (parts.world().status.rescues ?? []).length > 0;
export const isResolved = (parts: Parts): boolean =>
  !isKept(parts) && parts.sandbox()?.status.lastEnding !== undefined && !isRescued(parts);
const isRescued = (parts: Parts): boolean => parts.sandbox()?.status.lastEnding?.outcome === "Rescued";

export function rescueIn(parts: Parts): WorldRescue {
  const [rescue] = parts.world().status.rescues ?? [];
  assert.ok(rescue, "the World has a rescue");
  return rescue;
}

/** Its end cannot be published until it is handed over, and after. */
export async function rescued(options: Options = {}): Promise<Parts> {
  const parts = await memoryParts({ ...options, withWorld: true });
  await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
  parts.work("one");
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("rescued", () => isKept(parts) && isRescued(parts));
  return parts;
}

export const regainRegistry = (parts: Parts): void => parts.registry.failing.clear();

/** No container, capture, record, hold or reservation. */
export function assertNothingLeft(parts: Parts): void {
  const { holder, pending, rescues = [] } = parts.world().status;
  assert.deepEqual([holder, pending, rescues], [undefined, undefined, []]);
  assert.deepEqual(parts.runtimes.peek({ name: "local" })?.status.rescues ?? [], []);
  assert.deepEqual([[...parts.host.containers.keys()], [...parts.host.commits.keys()]], [[], []]);
}

export function assertPublishedOnce(parts: Parts, work: readonly string[]): void {
  const { head, versions = [] } = parts.world().status;
  assert.deepEqual(parts.host.worked(head?.digest ?? ""), ["base", ...work]);
  const operations = versions.map(({ operation }) => operation);
  assert.equal(new Set(operations).size, operations.length, "one version for each operation");
  assert.equal(parts.registry.tags.get("latest"), head?.digest);
}
