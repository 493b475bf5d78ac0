/**
 * Records of rescues and ids of operations were altered by somebody who may write status: they name what another session left
 * behind. It is not stopped, published, handed out or removed, and the own work is not lost.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorldRescue, WorldVerb } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import type { ComputeOwner } from "../runtime/contract.ts";
import { captureName, captureTag } from "../snapshot/docker-commit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";
import { assertNothingLeft, isResolved, type Parts, regainRegistry, rescued, rescueIn } from "./rescues.test-kit.ts";

const VICTIM: ComputeOwner = {
  installation: "install",
  namespace: "victims",
  sandbox: "theirs",
  sandboxUid: "victim-uid",
  boot: 1,
};
const CONTAINER = "aw-victim-uid-1";
const OPERATION = "publish-of-victim";

/** What the victim left behind: a stopped container and, of another operation, a capture. */
function besideVictim(parts: Parts): void {
  const [known] = parts.host.containers.values();
  assert.ok(known);
  parts.host.containers.set(CONTAINER, { ...known, owner: VICTIM, state: "Running", work: ["base", "secret"] });
  parts.host.commits.set(captureName(OPERATION), ["base", "secret"]);
  parts.host.committedOf.set(captureName(OPERATION), VICTIM);
  parts.changeRuntime((runtime) => ({
    ...runtime,
    status: {
      ...runtime.status,
      rescues: [
        ...(runtime.status.rescues ?? []),
        {
          operation: OPERATION,
          namespace: "victims",
          sandbox: { name: "theirs", uid: "victim-uid" },
          host: "a",
          computeId: CONTAINER,
          reason: "SnapshotFailed",
          message: "",
          since: "2026-01-01T00:00:00Z",
        },
      ],
    },
  }));
}

function assertVictimUntouched(parts: Parts): void {
  const victim = parts.host.containers.get(CONTAINER);
  assert.deepEqual([victim?.state, victim?.work], ["Running", ["base", "secret"]]);
  assert.deepEqual(parts.host.commits.get(captureName(OPERATION)), ["base", "secret"]);
  const records = parts.runtimes.peek({ name: "local" })?.status.rescues ?? [];
  assert.ok(
    records.some(({ sandbox }) => sandbox.uid === "victim-uid"),
    "its Runtime still has its record",
  );
  assert.ok(!parts.registry.tags.has(captureTag(OPERATION)), "nothing of it was pushed");
  for (const { digest } of parts.world().status.versions ?? []) {
    assert.ok(!parts.host.worked(digest).includes("secret"), "nothing of it is a version");
  }
}

const changeRescue = (parts: Parts, change: Partial<WorldRescue>): void =>
  parts.changeWorld((world) => ({
    ...world,
    status: { ...world.status, rescues: (world.status.rescues ?? []).map((rescue) => ({ ...rescue, ...change })) },
  }));

const sandbox = { name: "theirs", uid: "victim-uid" };
const forgeries: Record<string, Partial<WorldRescue>> = {
  "another session's container": { computeId: CONTAINER },
  "another tenant's session with its container": { computeId: CONTAINER, sandbox },
  "another tenant's session, container and operation": { computeId: CONTAINER, sandbox, operation: OPERATION },
};

for (const [name, forgery] of Object.entries(forgeries)) {
  test(`a rescue that names ${name} is not published, and when its time is over nothing is removed`, async () => {
    const parts = await rescued();
    besideVictim(parts);
    regainRegistry(parts);
    changeRescue(parts, forgery);
    const isTold = () => parts.world().status.rescues?.some(({ lastError = "" }) => /ForeignCompute/.test(lastError));
    // Under another operation the own work is adopted from its Runtime's record, and becomes the version.
    await parts.until("told, or head has moved", () => isTold() === true || parts.world().status.head?.version !== 0);
    assertVictimUntouched(parts);
    parts.clock.jump(2 * 86_400_000);
    await parts.until("over", () => (parts.world().status.rescues ?? []).length === 0);
    assertVictimUntouched(parts);
  });

  for (const verb of ["RetryRescue", "ExportRescue", "DiscardRescue"] as const satisfies readonly WorldVerb[]) {
    test(`${verb} of a rescue that names ${name} touches nothing of it`, async () => {
      const parts = await rescued();
      besideVictim(parts);
      regainRegistry(parts);
      changeRescue(parts, forgery);
      parts.askWorld(verb, rescueIn(parts).operation, "asked");
      await parts.pass();
      const [request] = parts.world().status.requests ?? [];
      assert.match(request?.result?.message ?? "", /ForeignCompute/);
      assert.equal(request?.result?.outcome, verb === "DiscardRescue" ? "Succeeded" : "Failed");
      assertVictimUntouched(parts);
    });
  }
}

test("a rescue that is removed from the World by hand is not called lost while its Runtime has it", async () => {
  const parts = await rescued();
  parts.changeWorld((world) => ({ ...world, status: { ...world.status, rescues: [] } }));
  const outcomes = new Set<string | undefined>();
  regainRegistry(parts);
  await parts.until("published", () => {
    outcomes.add(parts.sandbox()?.status.lastEnding?.outcome);
    return parts.world().status.head?.version !== 0;
  });
  assert.deepEqual([...outcomes], ["Rescued"]);
  await parts.until("said", () => parts.sandbox()?.status.lastEnding?.outcome === "Published");
});

test("a rescue whose operation is another session's: its own container is published, and the other's capture stays", async () => {
  const parts = await rescued();
  besideVictim(parts);
  regainRegistry(parts);
  // The own capture is under the operation that was overwritten.
  changeRescue(parts, { operation: OPERATION });
  await parts.until("published", () => parts.world().status.head?.version !== 0);
  assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"]);
  assertVictimUntouched(parts);
});

test("an ending whose operation has another session's id takes another id, and publishes its own work", async () => {
  for (const stage of ["Intended", "Captured", "Uploaded"] as const) {
    const parts = await memoryParts({ withWorld: true });
    await parts.until("Ready", () => isTrue(parts.sandbox()?.status.conditions, "Ready"));
    parts.work("one");
    besideVictim(parts);
    parts.change((sandbox) => ({
      ...sandbox,
      status: {
        ...sandbox.status,
        operation: {
          id: OPERATION,
          verb: "Hibernate",
          reason: "ModeHibernated",
          stage,
          since: "2026-01-01T00:00:00Z",
          attempts: 0,
          supersedes: OPERATION,
        },
      },
    }));
    await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
    assertVictimUntouched(parts);
    assert.deepEqual(parts.host.worked(parts.world().status.head?.digest ?? ""), ["base", "one"], stage);
  }
});

test("what is as it was written is published as before", async () => {
  const parts = await rescued();
  besideVictim(parts);
  regainRegistry(parts);
  await parts.until("published", () => isResolved(parts));
  assertVictimUntouched(parts);
  parts.host.containers.delete(CONTAINER);
  parts.host.commits.clear();
  parts.changeRuntime((runtime) => ({ ...runtime, status: { ...runtime.status, rescues: [] } }));
  assertNothingLeft(parts);
});
