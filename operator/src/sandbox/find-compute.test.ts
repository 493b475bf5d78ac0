/**
 * `status.compute`, or the whole status, is gone from outside (a patch by hand, an etcd that was restored): no boot begins
 * beside a container that lives, and no work is let go.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox, SandboxStatus } from "@agentworlds/crds";
import { findCondition, isTrue } from "../reconciler/conditions.ts";
import { Effects } from "./counted-effects.test-kit.ts";
import { MemoryHost } from "./memory-host.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Parts = Awaited<ReturnType<typeof memoryParts>>;

const CONTAINER = "aw-sandbox-uid-1";
const isReady = (parts: Parts) => () => isTrue(parts.sandbox()?.status.conditions, "Ready");
const condition = (parts: Parts, type: string) => findCondition(parts.sandbox()?.status.conditions, type);
const workIn = (parts: Parts) => parts.host.worked(parts.world().status.head?.digest ?? "");

async function working(options: Parameters<typeof memoryParts>[0] = {}): Promise<Parts> {
  const parts = await memoryParts(options);
  await parts.until("Ready", isReady(parts));
  parts.work("one");
  return parts;
}

/** What somebody with the right to write status leaves of it. */
const losses: Record<string, (status: SandboxStatus) => SandboxStatus> = {
  "status.compute": ({ compute: _, ...status }) => status,
  "the whole status": () => ({ observedGeneration: -1 }),
  "status as it was before the boot": ({ conditions = [] }) => ({ observedGeneration: 1, conditions }),
};
const lose = (parts: Parts, what: keyof typeof losses) =>
  parts.change((sandbox) => ({ ...sandbox, status: losses[what]?.(sandbox.status) ?? sandbox.status }));

for (const what of Object.keys(losses)) {
  test(`${what} is removed while the session runs: the container is found and the session goes on`, async () => {
    const parts = await working();
    const { compute, base, bootedFrom } = parts.sandbox()?.status ?? {};
    lose(parts, what);
    await parts.pass();
    const found = parts.sandbox()?.status;
    assert.deepEqual(
      [found?.compute?.host, found?.compute?.id, found?.compute?.boot, found?.compute?.engine, found?.boot],
      [compute?.host, CONTAINER, 1, "engine-1", 1],
    );
    assert.deepEqual([found?.base, found?.bootedFrom], [base, bootedFrom]);
    assert.ok(isReady(parts)(), "it is Ready");
    assert.ok(found?.expiresAt !== undefined, "its clock runs");
    assert.deepEqual([...parts.host.containers.keys()], [CONTAINER]);
    assert.ok(parts.events.some(({ reason }) => reason === "ComputeFound"));
    parts.work("two");
    await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
    assert.deepEqual(workIn(parts), ["base", "one", "two"]);
    assert.equal(parts.world().status.holder, undefined);
    assert.deepEqual([...parts.host.containers.keys()], []);
  });

  test(`${what} is removed and the Sandbox deleted: its work is saved before the finalizer goes`, async () => {
    const parts = await working();
    lose(parts, what);
    parts.delete();
    await parts.until("gone", () => parts.sandbox() === undefined);
    assert.deepEqual(workIn(parts), ["base", "one"]);
    assert.deepEqual([...parts.host.containers.keys()], []);
    assert.equal(parts.world().status.holder, undefined);
  });

  test(`${what} is removed and the container's processes have ended: the work is saved`, async () => {
    const parts = await working();
    for (const container of parts.host.containers.values()) container.state = "Exited";
    lose(parts, what);
    await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
    assert.deepEqual(workIn(parts), ["base", "one"]);
  });

  test(`${what} is removed and a host is silent: it waits by name, boots nothing and lets nothing go`, async () => {
    const parts = await working();
    parts.addHost("b");
    lose(parts, what);
    await parts.pass();
    await parts.pass();
    const unknown = condition(parts, "ComputeUnknown");
    assert.equal(unknown?.reason, "HostsNotAsked");
    assert.match(unknown?.message ?? "", /local\/b/);
    assert.equal(condition(parts, "Ready")?.status, "Unknown");
    assert.equal(condition(parts, "Hibernated"), undefined);
    assert.equal(parts.sandbox()?.status.compute, undefined);
    assert.deepEqual(parts.sandbox()?.metadata.finalizers, ["agentworlds.dev/sandbox"]);
    assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
    assert.equal(parts.host.containers.get(CONTAINER)?.state, "Running");
    assert.ok(parts.events.some(({ reason }) => reason === "HostsNotAsked"));
  });
}

const secondHost = (parts: Parts) => {
  const machine = new MemoryHost(new Effects(), parts.registry, "engine-2");
  parts.addHost("b", machine);
  return machine;
};
const stray = (parts: Parts, boot: number) => {
  const known = parts.host.containers.get(CONTAINER);
  assert.ok(known);
  return { ...known, owner: { ...known.owner, boot }, work: ["base", "other"] };
};

test("a container of the same name on two engines: both are named, and neither is touched", async () => {
  const parts = await working();
  const other = secondHost(parts);
  other.containers.set(CONTAINER, stray(parts, 1));
  lose(parts, "status.compute");
  await parts.pass();
  const { reason, message = "" } = condition(parts, "ComputeUnknown") ?? {};
  assert.equal(reason, "SeveralContainers");
  assert.match(message, /aw-sandbox-uid-1 on local\/a and aw-sandbox-uid-1 on local\/b/);
  assert.equal(parts.host.containers.get(CONTAINER)?.state, "Running");
  assert.equal(other.containers.get(CONTAINER)?.state, "Running");
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
  other.containers.clear();
  await parts.until("Ready", isReady(parts));
  assert.equal(condition(parts, "ComputeUnknown"), undefined);
});

test("containers of two boots on one host: both are named, and neither is touched", async () => {
  const parts = await working();
  parts.host.containers.set("aw-sandbox-uid-2", stray(parts, 2));
  lose(parts, "the whole status");
  await parts.pass();
  const { reason, message = "" } = condition(parts, "ComputeUnknown") ?? {};
  assert.equal(reason, "SeveralContainers");
  assert.match(message, /aw-sandbox-uid-1 on local\/a and aw-sandbox-uid-2 on local\/a/);
  assert.deepEqual(
    [...parts.host.containers.values()].map(({ state }) => state),
    ["Running", "Running"],
  );
});

test("one engine under two addresses has one container, not two", async () => {
  const parts = await working();
  parts.addHost("same", parts.host);
  lose(parts, "status.compute");
  await parts.pass();
  assert.equal(parts.sandbox()?.status.compute?.id, CONTAINER);
});

test("a deletion that cannot know what is left is bounded, and its hold stays for the World's own proof", async () => {
  const parts = await working();
  parts.silenceHost();
  lose(parts, "status.compute");
  parts.delete();
  await parts.pass();
  assert.ok(parts.sandbox(), "it is not gone at once");
  await parts.until("gone", () => parts.sandbox() === undefined);
  assert.equal(parts.world().status.holder?.uid, "sandbox-uid");
  assert.equal(parts.host.containers.get(CONTAINER)?.state, "Running");
  assert.ok(parts.events.some(({ reason, action }) => reason === "HostsNotAsked" && action === "Delete"));
});

test("every host says that there is nothing: the loss is told, the World is let go, and a touch boots anew", async () => {
  const parts = await working();
  parts.host.containers.clear();
  lose(parts, "status.compute");
  await parts.pass();
  assert.equal(condition(parts, "ComputeLost")?.reason, "ContainerGone");
  assert.equal(parts.world().status.holder, undefined);
  assert.equal(parts.sandbox()?.metadata.finalizers?.length ?? 0, 0);
  const reads = parts.effects.seen.length;
  await parts.pass();
  assert.equal(parts.effects.seen.length, reads, "a settled Sandbox is not written");
  parts.ask("Touch", "wake");
  await parts.until("Ready again", isReady(parts));
  assert.equal(parts.sandbox()?.status.boot, 2);
});

test("a boot that was recorded, and forgotten before its container was made, is no container at all", async () => {
  const parts = await memoryParts({});
  parts.effects.killAfter("patch Sandbox status");
  await parts.until("killed", () => parts.wasKilled());
  assert.equal(parts.sandbox()?.status.compute?.boot, 1);
  assert.deepEqual([...parts.host.containers.keys()], []);
  lose(parts, "status.compute");
  await parts.pass();
  assert.equal(condition(parts, "ComputeLost")?.reason, "ContainerGone");
  assert.equal(parts.world().status.holder, undefined);
});

test("a container that was made and never Ready goes on booting", async () => {
  const parts = await memoryParts({});
  parts.effects.killAfter("create");
  await parts.until("killed", () => parts.wasKilled());
  parts.host.isDumb = true;
  lose(parts, "status.compute");
  await parts.pass();
  assert.equal(parts.sandbox()?.status.compute?.id, CONTAINER);
  await parts.until("Ready", isReady(parts));
});

test("a running container that does not answer, of a boot that status knows nothing of, is waited for", async () => {
  const parts = await working();
  parts.host.isDumb = true;
  lose(parts, "the whole status");
  await parts.pass();
  assert.equal(condition(parts, "ComputeUnknown")?.reason, "ContainerNotAdopted");
  parts.host.isDumb = false;
  await parts.until("Ready", isReady(parts));
});

test("a container of another World's image is not adopted", async () => {
  const parts = await working();
  const [container] = parts.host.containers.values();
  assert.ok(container);
  parts.host.containers.set(CONTAINER, { ...container, image: `other/repository@${parts.genesis.digest}` });
  lose(parts, "the whole status");
  await parts.pass();
  assert.equal(condition(parts, "ComputeUnknown")?.reason, "ContainerNotAdopted");
  assert.equal(parts.sandbox()?.status.compute, undefined);
});

test("a session that had published goes on from its own version", async () => {
  const parts = await working();
  parts.ask("Snapshot", "save");
  await parts.until("answered", () => parts.sandbox()?.status.requests?.[0]?.result !== undefined);
  parts.work("two");
  lose(parts, "the whole status");
  await parts.pass();
  assert.equal(parts.sandbox()?.status.bootedFrom?.version, 0);
  assert.equal(parts.sandbox()?.status.base?.version, 1);
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  assert.deepEqual(workIn(parts), ["base", "one", "two"]);
});

test("a throwaway session is found too, and saves nothing", async () => {
  const parts = await working({ sandbox: { spec: { image: "busybox:1" } } });
  lose(parts, "the whole status");
  await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
  assert.deepEqual([...parts.host.containers.keys()], []);
  assert.equal(parts.world().status.head?.version, 0);
});

test("an operation in its course is finished with the container that is found", async () => {
  for (const effect of ["freeze", "commit", "push", "put manifest", "patch World status", "remove"]) {
    const parts = await working();
    parts.ask("Close", "end");
    parts.effects.killAfter(effect);
    await parts.until("killed", () => parts.wasKilled());
    lose(parts, "status.compute");
    await parts.until(`Closed after ${effect}`, () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
    assert.deepEqual(workIn(parts), ["base", "one"], effect);
    assert.equal(parts.sandbox()?.status.closed?.version, 1, effect);
    assert.equal(parts.world().status.holder, undefined, effect);
    assert.equal(parts.world().status.pending, undefined, effect);
    assert.deepEqual([...parts.host.containers.keys()], [], effect);
  }
});

test("the container is gone and its capture is left: that is what becomes the version", async () => {
  const parts = await working();
  parts.ask("Close", "end");
  parts.effects.killAfter("commit");
  await parts.until("killed", () => parts.wasKilled());
  parts.host.containers.clear();
  lose(parts, "status.compute");
  await parts.until("Closed", () => isTrue(parts.sandbox()?.status.conditions, "Closed"));
  assert.deepEqual(workIn(parts), ["base", "one"]);
});

test("a session that ended in order asks no host, whatever else is written about it", async () => {
  const parts = await working();
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  parts.silenceHost();
  await parts.pass();
  assert.equal(condition(parts, "ComputeUnknown"), undefined);
  assert.ok(isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
});

test("a session that had ended when its operator did is settled, although its host does not answer any more", async () => {
  const parts = await working();
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  parts.change((sandbox) => ({
    ...sandbox,
    metadata: { ...sandbox.metadata, finalizers: ["agentworlds.dev/sandbox"] },
  }));
  parts.silenceHost();
  await parts.pass();
  assert.deepEqual(parts.sandbox()?.metadata.finalizers, []);
  assert.ok(isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
});

test("an older status: a container of a boot that it does not know of is found", async () => {
  const parts = await working();
  await parts.until("Hibernated", () => isTrue(parts.sandbox()?.status.conditions, "Hibernated"));
  const asleep: Sandbox | undefined = parts.sandbox();
  assert.ok(asleep);
  parts.ask("Touch", "wake");
  await parts.until("Ready again", () => parts.sandbox()?.status.boot === 2 && isReady(parts)());
  parts.work("two");
  parts.change((sandbox) => ({ ...sandbox, status: asleep.status }));
  await parts.pass();
  assert.equal(parts.sandbox()?.status.compute?.id, "aw-sandbox-uid-2");
  assert.deepEqual(parts.sandbox()?.status.base, parts.sandbox()?.status.bootedFrom);
  assert.equal(parts.sandbox()?.status.bootedFrom?.version, 1);
});
