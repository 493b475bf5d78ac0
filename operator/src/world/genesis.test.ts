import assert from "node:assert/strict";
import { test } from "node:test";
import { Waiting } from "../reconciler/policy.ts";
import { at, runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { REPOSITORY, worldParts } from "./world-parts.test-kit.ts";

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

const withoutGenesis = () => {
  const runtime = runtimeOf({ spec, status: { platform: "linux/amd64" } });
  const parts = worldParts({ history: [], runtimes: [runtime], image: "Offered" });
  parts.change((world) => ({
    ...world,
    status: { observedGeneration: -1, repository: `127.0.0.1:5055/${REPOSITORY}` },
  }));
  return parts;
};
const putByDigest = (parts: ReturnType<typeof worldParts>) =>
  parts.registry.writes.filter((write) => write.startsWith("manifest "));

test("a genesis whose manifest the registry kept by half is made of other bytes, and is version 0 all the same", async () => {
  const parts = withoutGenesis();
  parts.registry.spoilNext = (reference) => reference.startsWith("sha256:");
  const waits = await parts.pass();
  assert.ok(waits instanceof Waiting);
  assert.equal(waits.reason, "RegistryUnavailable");
  assert.equal(parts.world()?.status.head, undefined);
  const [spoilt] = putByDigest(parts);
  parts.clock.jump(waits.afterMs);
  await parts.pass();
  const { head, versions, nextVersion, pending } = parts.world()?.status ?? {};
  assert.deepEqual([head?.version, versions?.length, nextVersion, pending], [0, 1, 1, undefined]);
  assert.notEqual(`manifest ${head?.digest}`, spoilt);
  await parts.pass();
  assert.equal(parts.registry.tags.get("v0"), head?.digest);
});

test("a registry that is away when a genesis is read back changes nothing about it: the next try is the same bytes", async () => {
  const parts = withoutGenesis();
  parts.registry.spoilNext = (reference) => {
    if (!reference.startsWith("sha256:")) return false;
    parts.registry.failing.set(reference, "Unavailable");
    parts.registry.failing.set("tags", "Unavailable");
    return false;
  };
  const waits = await parts.pass();
  assert.ok(waits instanceof Waiting);
  const [put] = putByDigest(parts);
  parts.registry.spoilNext = undefined;
  parts.registry.failing.clear();
  parts.clock.jump(waits.afterMs);
  await parts.pass();
  assert.equal(`manifest ${parts.world()?.status.head?.digest}`, put);
});
