/** Every version carries the prose in force: an ending blanks none, and a text of the spec that comes back is in force again. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const describe = (parts: Parts, description: string) =>
  parts.changeWorld((world) => ({ ...world, spec: { ...world.spec, description } }));
const proseOf = (parts: Parts) => parts.world().status.versions?.map(({ description }) => description);

/** A boot, work, and its end. */
async function live(parts: Parts): Promise<void> {
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Running" } }));
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("more");
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
}

test("a description that is reverted is carried again, and one that a snapshot stated is not overwritten by an old one", async () => {
  const parts = await memoryParts({});
  for (const description of ["A", "B", "A"]) {
    describe(parts, description);
    await live(parts);
  }
  assert.deepEqual(proseOf(parts)?.slice(1), ["A", "B", "A"]);

  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Running" } }));
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("more");
  parts.ask("Snapshot", "save");
  parts.change(({ status, ...sandbox }) => ({
    ...sandbox,
    status: {
      ...status,
      requests: (status.requests ?? []).map((one) =>
        one.id === "save" ? { ...one, parameters: { description: "X" } } : one,
      ),
    },
  }));
  await parts.until("saved", () => proseOf(parts)?.at(-1) === "X");
  // Retention leaves none that carries the spec's.
  parts.changeWorld((world) => ({
    ...world,
    status: {
      ...world.status,
      versions: world.status.versions?.filter(({ description }) => description === "X") ?? [],
    },
  }));
  await live(parts);
  assert.deepEqual(proseOf(parts), ["X", "X"]);
});
