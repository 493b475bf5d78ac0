/** The last look before a hold turns into a boot. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Condition } from "@agentworlds/crds";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { at, versionOf } from "../runtime/test-objects.test-kit.ts";
import { MOST_VERSIONS } from "../world/lineage.ts";
import { publishedVersion, putHistory } from "../world/published-history.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

const admitted = (parts: Parts): Condition | undefined => findCondition(parts.sandbox()?.status.conditions, "Admitted");
const isReady = (parts: Parts) => () => isTrue(parts.sandbox()?.status.conditions, "Ready");

const of = (type: string, status: Condition["status"], reason: string, message: string): Condition => ({
  ...{ type, status, reason, message },
  lastTransitionTime: at(0),
  observedGeneration: 1,
});

test("a registry that is ahead of head: no boot, the World says so, and nobody is left as its holder", async () => {
  const parts = await memoryParts({});
  const newer = publishedVersion(1, { parent: parts.genesis.digest });
  putHistory(parts.registry, [newer]);
  await parts.pass();
  assert.equal(admitted(parts)?.reason, "HeadBehindRegistry");
  assert.equal(parts.sandbox()?.status.compute, undefined);
  assert.equal(parts.host.containers.size, 0);
  assert.equal(parts.world().status.holder, undefined);
  assert.deepEqual(parts.world().status.registryHead, { version: 1, digest: newer.digest });
  const writes = parts.effects.seen.length;
  await parts.pass();
  assert.equal(parts.host.containers.size, 0);
  assert.ok(parts.effects.seen.length - writes <= 1, "it waits without taking the World again and again");
});

test("once the newer version is adopted, the session boots from it", async () => {
  const parts = await memoryParts({});
  const newer = publishedVersion(1, { parent: parts.genesis.digest });
  putHistory(parts.registry, [newer]);
  await parts.pass();
  parts.changeWorld((world) => {
    const { registryHead: _, ...status } = world.status;
    const head = { version: 1, digest: newer.digest, image: `lab@${newer.digest}` };
    return {
      ...world,
      status: { ...status, head, versions: [...(status.versions ?? []), newer.entry], nextVersion: 2 },
    };
  });
  await parts.until("Ready", isReady(parts));
  assert.deepEqual(parts.sandbox()?.status.bootedFrom, { version: 1, digest: newer.digest });
});

test("a World whose list of versions is full: no boot whose end could not be published, and who waits reads why", async () => {
  const parts = await memoryParts({});
  const pinned = Array.from({ length: MOST_VERSIONS - 1 }, (_, index) => versionOf(index + 1));
  const fill = (versions: typeof pinned) =>
    parts.changeWorld((world) => ({
      ...world,
      status: { ...world.status, versions: [...versions, ...(world.status.versions ?? []).slice(-1)] },
    }));
  fill(pinned);
  await parts.pass();
  assert.equal(admitted(parts)?.reason, "TooManyVersions");
  assert.match(admitted(parts)?.message ?? "", /128 versions.*unpin/);
  assert.equal(parts.sandbox()?.status.compute, undefined);
  assert.equal(parts.world().status.holder, undefined);
  fill(pinned.slice(1));
  await parts.until("Ready", isReady(parts));
});

const unready: [name: string, conditions: Condition[], said: string][] = [
  [
    "stalls",
    [
      of("Ready", "False", "PreviousLineageFound", "left versions"),
      of("Stalled", "True", "PreviousLineageFound", "left versions; annotate it"),
    ],
    "World lab has no version yet: PreviousLineageFound: left versions; annotate it",
  ],
  [
    "copies",
    [of("Ready", "False", "CopyingGenesis", "copying busybox:1")],
    "World lab has no version yet: CopyingGenesis: copying busybox:1",
  ],
  ["was not looked at yet", [], "World lab has no version yet; see the World's conditions"],
];
for (const [name, conditions, said] of unready) {
  test(`who waits for a World that ${name} reads there why`, async () => {
    const parts = await memoryParts({});
    parts.changeWorld((world) => ({ ...world, status: { observedGeneration: 1, conditions } }));
    await parts.pass();
    assert.equal(admitted(parts)?.reason, "WorldNotReady");
    assert.equal(admitted(parts)?.message, said);
  });
}

test("that a new World copies its image, or a new Runtime is being asked, is no warning; a World that stalls is one", async () => {
  const parts = await memoryParts({});
  parts.changeWorld((world) => ({ ...world, status: { observedGeneration: -1 } }));
  await parts.pass();
  const conditions = [of("Stalled", "True", "PreviousLineageFound", "left versions")];
  parts.changeWorld((world) => ({ ...world, status: { observedGeneration: 1, conditions } }));
  await parts.pass();
  assert.deepEqual(
    parts.events.filter(({ reason }) => reason === "WorldNotReady").map(({ type }) => type),
    ["Normal", "Warning"],
  );
});

test("a long reason of the World is cut", async () => {
  const parts = await memoryParts({});
  const conditions = [of("Stalled", "True", "SourceNotAllowed", "x".repeat(1024))];
  parts.changeWorld((world) => ({ ...world, status: { observedGeneration: 1, conditions } }));
  await parts.pass();
  assert.match(admitted(parts)?.message ?? "", /^World lab has no version yet: SourceNotAllowed: x+…$/);
});

test("a registry that does not answer whether head is the newest: no boot on a guess", async () => {
  const parts = await memoryParts({});
  parts.registry.failing.set("tags", "Unavailable");
  await parts.pass();
  assert.equal(admitted(parts)?.reason, "RegistryUnavailable");
  assert.equal(parts.host.containers.size, 0);
  assert.equal(parts.world().status.holder, undefined);
  parts.registry.failing.clear();
  await parts.until("Ready", isReady(parts));
});

test("work of a session that runs while etcd is restored is never published beside the newer versions", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", isReady(parts));
  parts.work("precious");
  const newer = publishedVersion(1, { parent: parts.genesis.digest });
  putHistory(parts.registry, [newer]);
  parts.ask("Snapshot", "one");
  for (let passes = 0; passes < 5; passes++) parts.clock.jump(Math.min(await parts.pass(), 60_000));
  assert.equal(parts.world().status.head?.version, 0);
  assert.deepEqual(
    parts.world().status.versions?.map(({ version }) => version),
    [0],
  );
  assert.equal(parts.registry.tags.get("v1"), newer.digest);
  assert.equal(parts.registry.tags.get("v2"), undefined);
  assert.match(parts.failures.join("; "), /a version 1 of this World/);
  assert.equal(parts.host.containers.size, 1, "the work is kept");
});

for (const reason of ["HeadNotFound", "HeadMismatch", "HeadDamaged"]) {
  const lost = (parts: Parts) =>
    parts.changeWorld((world) => ({
      ...world,
      status: {
        ...world.status,
        conditions: [{ type: "HeadAvailable", status: "False", reason, message: "gone", lastTransitionTime: at(0) }],
      },
    }));
  test(`a head that is known to be broken (${reason}) is not booted, and the reason is told`, async () => {
    const parts = await memoryParts({});
    lost(parts);
    await parts.pass();
    assert.equal(admitted(parts)?.reason, reason);
    assert.equal(parts.host.containers.size, 0);
  });
}

test("a registry that is silent keeps no other session from being admitted", { timeout: 10_000 }, async () => {
  const parts = await memoryParts({});
  const answers = Promise.withResolvers<void>();
  parts.registry.silent = answers.promise;
  const boot = parts.pass();
  await new Promise((resolve) => setImmediate(resolve));
  await parts.inTurn(async () => undefined);
  assert.equal(parts.sandbox()?.status.compute, undefined, "it waits for the registry's word");
  assert.equal(parts.world().status.holder, undefined, "and holds nothing meanwhile");
  answers.resolve();
  await boot;
  assert.ok(isReady(parts)());
});

test("head that moves between the look into the registry and the hold is compared anew before it boots", async () => {
  const parts = await memoryParts({});
  const newer = publishedVersion(1, { parent: parts.genesis.digest });
  parts.effects.beforeNext("patch World status", () => {
    putHistory(parts.registry, [newer]);
    parts.changeWorld((world) => {
      const head = { version: 1, digest: newer.digest, image: `lab@${newer.digest}` };
      const versions = [...(world.status.versions ?? []), newer.entry];
      return { ...world, status: { ...world.status, head, versions, nextVersion: 2 } };
    });
  });
  await parts.until("Ready", isReady(parts));
  assert.deepEqual(parts.sandbox()?.status.bootedFrom, { version: 1, digest: newer.digest });
});

test("while it waits for a slot no session asks the registry", async () => {
  const parts = await memoryParts({});
  parts.changeRuntime((runtime) => ({ ...runtime, spec: { ...runtime.spec, capacity: { maxSandboxes: 0 } } }));
  parts.registry.silent = new Promise(() => undefined);
  await parts.pass();
  assert.equal(admitted(parts)?.reason, "RuntimeFull");
});

test("a head whose digest is not the one that versions name for it is not booted, and is put right by the registry", async () => {
  const parts = await memoryParts({ withWorld: true });
  await parts.until("Ready", isReady(parts));
  parts.work("one");
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  const right = parts.world().status.head;
  const forge = () =>
    parts.changeWorld((world) => {
      assert.ok(world.status.head);
      const head = { ...world.status.head, digest: parts.genesis.digest };
      return { ...world, status: { ...world.status, head } };
    });
  forge();
  parts.ask("Touch", "wake");
  await parts.until("refused, or Ready", () => admitted(parts)?.reason === "HeadContradicted" || isReady(parts)());
  assert.equal(admitted(parts)?.reason, "HeadContradicted");
  await parts.until("Ready", isReady(parts));
  assert.deepEqual(parts.world().status.head, right);
  assert.equal(parts.sandbox()?.status.bootedFrom?.digest, right?.digest);
});
