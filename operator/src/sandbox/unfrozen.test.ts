/**
 * Sessions on hosts that cannot freeze. A snapshot is taken while the processes run; an ending stops them first, because its
 * container goes with the version and nothing may be worked in it after the capture.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertClean, assertSaved, isAsleep, isReady, type Parts, testLife } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const LONG = { spec: { ttlSeconds: 86_400, maxLifetimeSeconds: 86_400 } } as const;

async function working(cannot: (parts: Parts) => void): Promise<Parts> {
  const parts = await memoryParts({ sandbox: LONG });
  await parts.until("Ready", () => isReady(parts.sandbox()));
  cannot(parts);
  parts.work("one");
  return parts;
}

const withoutCapability = (parts: Parts): void =>
  parts.changeRuntime((runtime) => ({
    ...runtime,
    status: {
      ...runtime.status,
      hosts: [{ name: "a", state: "Reachable", used: 0, capabilities: ["exec", "commit"] }],
    },
  }));
const refusing = ({ host }: Parts): void => {
  host.refusesFreeze = true;
};
const hibernate = (parts: Parts): void =>
  parts.change((sandbox) => ({ ...sandbox, spec: { ...sandbox.spec, mode: "Hibernated" } }));
const containerOf = (parts: Parts) => {
  const container = parts.host.containers.get("aw-sandbox-uid-1");
  assert.ok(container);
  return container;
};
const lastVersion = (parts: Parts) => parts.world().status.versions?.at(-1);

testLife("the host does not freeze: the session is stopped, its work is saved, and the version says so", {
  async live(parts) {
    refusing(parts);
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one"]);
    assertClean(parts);
    const version = lastVersion(parts);
    assert.equal(version?.consistency, "Crash");
    assert.equal(version?.recovered, undefined, "it was brought to its end in order");
    assert.equal(version?.reason, "Deadline");
  },
});

test("a host that lacks the capability is not asked to freeze", async () => {
  const parts = await working(withoutCapability);
  hibernate(parts);
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assert.ok(!parts.effects.seen.includes("freeze"));
  assertSaved(parts, ["one"]);
  assert.equal(lastVersion(parts)?.consistency, "Crash");
});

test("an ending whose version waits for the registry: nothing is worked in the container meanwhile", async () => {
  const parts = await working(withoutCapability);
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  hibernate(parts);
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 2);
  assert.throws(() => parts.work("two"), /nobody can work/);
  parts.registry.failing.clear();
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one"]);
});

test("the operator is killed after the capture: nothing is worked in the container until the next one goes on", async () => {
  const parts = await working(withoutCapability);
  parts.effects.killAfter("commit");
  hibernate(parts);
  await parts.until("killed", () => parts.wasKilled());
  assert.equal(containerOf(parts).state, "Exited");
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one"]);
  assert.equal(lastVersion(parts)?.recovered, undefined);
});

for (const stage of ["Frozen", "Captured", "Uploaded"] as const) {
  for (const state of ["Running", "Exited"] as const) {
    test(`an older operator had captured while the processes ran, at ${stage}; they ran on, and it is ${state} now: captured anew`, async () => {
      const parts = await working(withoutCapability);
      parts.registry.failing.set(parts.genesis.digest, "Unavailable");
      hibernate(parts);
      await parts.until("captured", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
      parts.change((sandbox) => {
        const { operation } = sandbox.status;
        assert.ok(operation);
        return { ...sandbox, status: { ...sandbox.status, operation: { ...operation, stage, consistency: "Fuzzy" } } };
      });
      const container = containerOf(parts);
      container.work.push("two");
      container.state = state;
      parts.registry.failing.clear();
      await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
      assertSaved(parts, ["one", "two"]);
      assertClean(parts);
    });
  }
}

test("somebody thaws a session that was frozen and captured for its end: the work since is captured", async () => {
  const parts = await working(() => undefined);
  parts.registry.failing.set(parts.genesis.digest, "Unavailable");
  hibernate(parts);
  await parts.until("captured", () => (parts.sandbox()?.status.operation?.attempts ?? 0) > 0);
  containerOf(parts).state = "Running";
  parts.work("two");
  parts.registry.failing.clear();
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one", "two"]);
  assertClean(parts);
});

test("a snapshot leaves the session running, and says that it is fuzzy", async () => {
  const parts = await working(withoutCapability);
  parts.ask("Snapshot", "save");
  await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result?.outcome === "Succeeded");
  assert.equal(containerOf(parts).state, "Running");
  assert.equal(lastVersion(parts)?.consistency, "Fuzzy");
  const manifest = parts.registry.manifests.get(parts.world().status.head?.digest ?? "");
  const { annotations } = JSON.parse(new TextDecoder().decode(manifest));
  assert.equal(annotations["dev.agentworlds.consistency"], "Fuzzy");
});

test("a fuzzy snapshot that was captured and not recorded, of a session that ran on and ended: captured anew", async () => {
  const parts = await working(withoutCapability);
  parts.effects.killAfter("commit");
  parts.ask("Snapshot", "save");
  await parts.until("killed", () => parts.wasKilled());
  parts.work("two");
  containerOf(parts).state = "Exited";
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one", "two"]);
  assertClean(parts);
});
