/** Ready is proven, not presumed; and what is Ready ends. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { findCondition } from "../reconciler/conditions.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

/** The operator was killed after it had made the container and before it wrote that down. */
async function madeAndNotReady(): Promise<Parts> {
  const parts = await memoryParts({});
  parts.effects.killAfter("create");
  await parts.until("killed", () => parts.wasKilled());
  assert.equal(parts.host.containers.size, 1);
  assert.equal(parts.sandbox()?.status.compute?.provisionedAt, undefined);
  return parts;
}

const containerOf = (parts: Parts) => {
  const [container] = parts.host.containers.values();
  assert.ok(container);
  return container;
};

test("a container of an earlier try that has ended meanwhile is made anew: Ready means that it runs", async () => {
  const parts = await madeAndNotReady();
  const ended = containerOf(parts);
  ended.state = "Exited";
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.notEqual(containerOf(parts), ended);
  parts.work("one");
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one"]);
  assertClean(parts);
});

test("a container of an earlier try that somebody froze is thawed before it counts as Ready", async () => {
  const parts = await madeAndNotReady();
  containerOf(parts).state = "Frozen";
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(containerOf(parts).state, "Running");
});

// A Sandbox was Ready, and each of its commands refused: nothing on the object said why.
test("a Secret that spec.env names and that does not exist is told when the session is Ready, which it is all the same", async () => {
  const env = [{ name: "TOKEN", secretKeyRef: { name: "nope", key: "token" } }];
  const parts = await memoryParts({ sandbox: { spec: { env } } });
  await parts.until("Ready", () => isReady(parts.sandbox()));
  const told = parts.events.filter(({ reason }) => reason === "SecretNotFound");
  assert.equal(told.length, 1);
  assert.match(told[0]?.message ?? "", /^Secret nope, named in spec\.env, does not exist: no command runs; create it/);
});

test("a container that never stays up is made at most twice per pass, and told by name", async () => {
  const parts = await memoryParts({});
  parts.host.endsAtOnce = true;
  const waits = await parts.pass();
  assert.equal(parts.effects.seen.filter((effect) => effect === "create").length, 2);
  const ready = findCondition(parts.sandbox()?.status.conditions, "Ready");
  assert.equal(ready?.status, "False");
  assert.equal(ready?.reason, "HostRefused");
  assert.match(ready?.message ?? "", /Exited with code 137/);
  assert.ok(waits >= 10_000, `it comes back after ${waits} ms`);
  parts.host.endsAtOnce = false;
  await parts.until("Ready", () => isReady(parts.sandbox()));
});

test("a container that was Ready and has ended is not made anew, also when the cache does not show that it was", async () => {
  const parts = await memoryParts({});
  parts.effects.beforeNext("create", () => parts.showCachedSandbox(parts.sandbox()));
  await parts.pass();
  assert.ok(isReady(parts.sandbox()));
  parts.work("precious");
  containerOf(parts).state = "Exited";
  await parts.pass();
  assert.deepEqual(containerOf(parts).work, ["base", "precious"]);
  parts.showCachedSandbox();
  await parts.until("asleep", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["precious"]);
});

test("a foreign container of the boot's name: it is told, not touched, and when it is removed by hand the boot goes on", async () => {
  const parts = await memoryParts({});
  const name = "aw-sandbox-uid-1";
  const foreign = {
    owner: { installation: "", namespace: "", sandbox: "", sandboxUid: "", boot: 0 },
    state: "Running" as const,
    work: ["theirs"],
    image: "sh",
  };
  parts.host.containers.set(name, foreign);
  const waits = await parts.pass();
  const { conditions } = parts.sandbox()?.status ?? {};
  const ready = findCondition(conditions, "Ready");
  assert.equal(ready?.reason, "ComputeConflict");
  assert.match(ready?.message ?? "", /by hand; it is tried again/);
  assert.equal(findCondition(conditions, "Stalled"), undefined, "it heals without a change of the spec");
  assert.ok(waits >= 10_000, `it comes back after ${waits} ms`);
  assert.deepEqual([...parts.host.containers.values()], [foreign]);
  parts.host.containers.delete(name);
  await parts.until("Ready", () => isReady(parts.sandbox()));
});

const losses: Record<string, readonly ("expiresAt" | "lifetimeEndsAt")[]> = {
  "its deadline": ["expiresAt"],
  "its lifetime": ["lifetimeEndsAt"],
  "both its times": ["expiresAt", "lifetimeEndsAt"],
};
for (const [what, fields] of Object.entries(losses)) {
  test(`a running session that has lost ${what} ends all the same, and no pass comes back at once`, async () => {
    const parts = await memoryParts({});
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    const before = parts.sandbox()?.status;
    parts.change((sandbox) => {
      const status = { ...sandbox.status };
      for (const field of fields) delete status[field];
      return { ...sandbox, status };
    });
    const waits = await parts.pass();
    assert.ok(waits > 0, "it comes back when something is due");
    const { expiresAt, lifetimeEndsAt } = parts.sandbox()?.status ?? {};
    assert.ok(expiresAt && before?.expiresAt && expiresAt >= before.expiresAt);
    assert.ok(lifetimeEndsAt && before.lifetimeEndsAt && lifetimeEndsAt >= before.lifetimeEndsAt);
    await parts.until("asleep", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one"]);
    assertClean(parts);
  });
}

test("a throwaway image is pulled with the login of its source, and a version never is", async () => {
  const throwaway = await memoryParts({ sandbox: { spec: { image: "private.example/tools:1" } } });
  await throwaway.until("Ready", () => isReady(throwaway.sandbox()));
  assert.equal(throwaway.host.pulledAs, "source");
  const version = await memoryParts({});
  await version.until("Ready", () => isReady(version.sandbox()));
  assert.equal(version.host.pulledAs, undefined);
});

test("a session that somebody froze is told not Ready, with an Event, while its host does not thaw it", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  containerOf(parts).state = "Frozen";
  const { thaw } = parts.host.driver;
  parts.host.driver.thaw = refuseThaw;
  await parts.pass();
  const { conditions } = parts.sandbox()?.status ?? {};
  for (const [type, status] of [
    ["Ready", "False"],
    ["Reconciling", "True"],
  ] as const) {
    const condition = findCondition(conditions, type);
    assert.deepEqual([condition?.status, condition?.reason], [status, "HostRefused"]);
    assert.match(
      condition?.message ?? "",
      /frozen.*does not thaw it: the cgroup is busy; thaw aw-sandbox-uid-1 on local\/a/,
    );
  }
  assert.equal(parts.events.filter(({ reason }) => reason === "HostRefused").length, 1);
  await parts.pass();
  assert.equal(parts.events.filter(({ reason }) => reason === "HostRefused").length, 1, "told once");
  parts.host.driver.thaw = thaw;
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(findCondition(parts.sandbox()?.status.conditions, "Reconciling"), undefined);
});

const refuseThaw = (): Promise<never> => Promise.reject(new RuntimeError("HostRefused", "the cgroup is busy"));
