/**
 * `status.compute` was altered by somebody who may write status: it names another session's container, or a place where the own
 * one is not. A stranger's container is reached by nothing, and the own one is neither forgotten nor called lost.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxCompute } from "@agentworlds/crds";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { Effects } from "./counted-effects.test-kit.ts";
import { MemoryHost } from "./memory-host.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

const OWN = "aw-sandbox-uid-1";
const FOREIGN = "aw-victim-uid-1";
const isReady = (parts: Parts) => isTrue(parts.sandbox()?.status.conditions, "Ready");
const isHibernated = (parts: Parts) => isTrue(parts.sandbox()?.status.conditions, "Hibernated");
const workIn = (parts: Parts) => parts.host.worked(parts.world().status.head?.digest ?? "");

/** A session with work in it, on a host that has another tenant's container too. */
async function besideVictim(): Promise<Parts> {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts));
  parts.work("one");
  const own = parts.host.containers.get(OWN);
  assert.ok(own);
  parts.host.containers.set(FOREIGN, {
    ...own,
    owner: { ...own.owner, namespace: "victims", sandbox: "theirs", sandboxUid: "victim-uid" },
    state: "Running",
    work: ["base", "secret"],
  });
  return parts;
}

const forge = (parts: Parts, change: Partial<SandboxCompute>) =>
  parts.change((sandbox) => {
    const { compute } = sandbox.status;
    assert.ok(compute);
    return { ...sandbox, status: { ...sandbox.status, compute: { ...compute, ...change } } };
  });

function assertVictimUntouched(parts: Parts): void {
  const victim = parts.host.containers.get(FOREIGN);
  assert.deepEqual([victim?.state, victim?.work], ["Running", ["base", "secret"]]);
  const versions = parts.world().status.versions ?? [];
  assert.ok(
    !versions.some(({ digest }) => parts.host.worked(digest).includes("secret")),
    "nothing of it was published",
  );
}

/** A forged id, and one of a boot that is not the one recorded beside it. */
for (const id of [FOREIGN, "aw-sandbox-uid-2", "anything"]) {
  test(`status names ${id}: it is told, and the session goes on with its own container`, async () => {
    const parts = await besideVictim();
    forge(parts, { id });
    await parts.pass();
    assert.equal(parts.sandbox()?.status.compute?.id, OWN);
    assert.ok(isReady(parts));
    const told = parts.events.find(({ reason }) => reason === "ForeignCompute");
    assert.ok(told?.message.includes(id), told?.message);
    await parts.until("Hibernated", () => isHibernated(parts));
    assert.deepEqual(workIn(parts), ["base", "one"]);
    assert.deepEqual([...parts.host.containers.keys()], [FOREIGN]);
    assertVictimUntouched(parts);
  });
}

test("deleted with a stranger's container in its status: its own work is saved, its own container goes", async () => {
  const parts = await besideVictim();
  forge(parts, { id: FOREIGN });
  parts.delete();
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.deepEqual(workIn(parts), ["base", "one"]);
  assert.deepEqual([...parts.host.containers.keys()], [FOREIGN]);
  assertVictimUntouched(parts);
});

test("a session that sleeps is given a stranger's container: it sleeps on", async () => {
  const parts = await besideVictim();
  await parts.until("Hibernated", () => isHibernated(parts));
  parts.change((sandbox) => ({
    ...sandbox,
    status: {
      ...sandbox.status,
      compute: { runtime: "local", host: "a", id: FOREIGN, boot: 1, provisionedAt: "2026-01-01T00:00:00Z" },
    },
  }));
  await parts.pass();
  assert.equal(parts.sandbox()?.status.compute, undefined);
  await parts.until("Hibernated", () => isHibernated(parts));
  assertVictimUntouched(parts);
});

test("forged in the middle of an ending, at whatever effect: the stranger's container is not touched, and no work is lost", async () => {
  const effects = ["freeze", "commit", "push", "patch World status", "forgetCommit", "remove"];
  for (const effect of effects) {
    const parts = await besideVictim();
    parts.effects.beforeNext(effect, () => {
      if (parts.sandbox()?.status.compute) forge(parts, { id: FOREIGN });
    });
    parts.ask("Close", "end");
    await parts.until(`Closed, forged before ${effect}`, () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
    assert.deepEqual(workIn(parts), ["base", "one"], effect);
    assert.deepEqual([...parts.host.containers.keys()], [FOREIGN], effect);
    assertVictimUntouched(parts);
  }
});

test("a deletion that is skipped leaves the stranger's container alone", async () => {
  const parts = await besideVictim();
  forge(parts, { id: FOREIGN });
  parts.delete();
  parts.change(({ metadata, ...sandbox }) => ({
    ...sandbox,
    metadata: { ...metadata, annotations: { "agentworlds.dev/skip-finalizer": metadata.uid } },
  }));
  await parts.until("gone", () => parts.sandbox() === undefined);
  assertVictimUntouched(parts);
  assert.equal(parts.host.containers.get(OWN)?.state, "Running", "the Runtime's sweep finds it");
  assert.deepEqual(parts.runtimes.peek({ name: "local" })?.status.rescues ?? [], []);
});

/** The Runtime's second host, of another engine. */
const secondHost = (parts: Parts): MemoryHost => {
  const machine = new MemoryHost(new Effects(), parts.registry, "engine-2");
  parts.addHost("b", machine);
  return machine;
};

const misplaced: Record<string, Partial<SandboxCompute>> = {
  "another host of the Runtime": { host: "b" },
  "another host, with its engine": { host: "b", engine: "engine-2" },
  "a host that does not exist": { host: "nowhere" },
  "a Runtime that does not exist": { runtime: "nowhere" },
  "another engine": { engine: "engine-2" },
  "another boot, whole": { boot: 4, id: "aw-sandbox-uid-4" },
};
for (const [name, change] of Object.entries(misplaced)) {
  test(`status says that the container is on ${name}: the hosts are asked before anything is called lost`, async () => {
    const parts = await besideVictim();
    secondHost(parts);
    forge(parts, change);
    await parts.pass();
    const { compute } = parts.sandbox()?.status ?? {};
    assert.deepEqual(
      [compute?.runtime, compute?.host, compute?.id, compute?.boot, compute?.engine],
      ["local", "a", OWN, 1, "engine-1"],
    );
    assert.ok(parts.events.some(({ reason }) => reason === "ComputeFound"));
    assert.ok(isReady(parts));
    await parts.until("Hibernated", () => isHibernated(parts));
    assert.deepEqual(workIn(parts), ["base", "one"]);
    assertVictimUntouched(parts);
  });
}

test("a container that its own engine does not have is lost, although another host is silent", async () => {
  const parts = await besideVictim();
  parts.addHost("b");
  parts.host.containers.delete(OWN);
  await parts.pass();
  assert.equal(findCondition(parts.sandbox()?.status.conditions, "ComputeLost")?.reason, "ContainerGone");
});

test("without the engine that made it, a container is lost only when every host says so", async () => {
  const parts = await besideVictim();
  parts.addHost("b");
  parts.host.containers.delete(OWN);
  parts.change((sandbox) => {
    assert.ok(sandbox.status.compute);
    const { engine: _, ...compute } = sandbox.status.compute;
    return { ...sandbox, status: { ...sandbox.status, compute } };
  });
  await parts.pass();
  assert.equal(findCondition(parts.sandbox()?.status.conditions, "ComputeUnknown")?.reason, "HostsNotAsked");
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
});
