/**
 * Which Runtime a boot is made on is read from status, which others may write too, and what a Runtime allows may change while a
 * boot is under way: nothing is made on one that admission would not give to this session.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxStatus } from "@agentworlds/crds";
import { findCondition } from "../reconciler/conditions.ts";
import { runtimeOf } from "../runtime/test-objects.test-kit.ts";
import { Effects } from "./counted-effects.test-kit.ts";
import { assertSaved, isAsleep, isReady, type Parts } from "./lives.test-kit.ts";
import { MemoryHost } from "./memory-host.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

const CAPABILITIES = ["exec", "freeze", "commit", "cpuLimit", "memoryLimit", "pidsLimit", "isolatedNetwork"];
type RuntimeParts = NonNullable<Parameters<typeof runtimeOf>[0]>;

/** A second Runtime with a machine of its own. */
async function besideVault({
  sandbox,
  spec,
  status,
}: Pick<RuntimeParts, "spec" | "status"> & { sandbox?: Parameters<typeof memoryParts>[0]["sandbox"] }) {
  const parts = await memoryParts({ ...(sandbox ? { sandbox } : {}) });
  const effects = new Effects();
  parts.addHost("b", new MemoryHost(effects, parts.registry, "engine-2"));
  parts.runtimes.put(
    runtimeOf({
      metadata: { name: "vault", uid: "vault-uid" },
      spec: { docker: { hosts: [{ name: "b", endpoint: "tcp://vault:2376" }] }, ...spec },
      status: {
        platform: "linux/amd64",
        capabilities: CAPABILITIES,
        hosts: [{ name: "b", state: "Reachable", used: 0 }],
        ...status,
      },
    }),
  );
  return { parts, effects };
}

/** Somebody moves the boot to the other Runtime, with no container made yet. */
const toVault = (parts: Parts): void =>
  parts.change(({ status: { compute, ...status }, ...rest }) => {
    assert.ok(compute);
    return { ...rest, status: { ...status, compute: { ...compute, runtime: "vault", host: "b" } } };
  });

async function moveToVault(parts: Parts): Promise<void> {
  parts.silenceHost();
  await parts.pass();
  toVault(parts);
  parts.silenceHost(false);
}

const vaults: Record<string, { reason: string; vault: Parameters<typeof besideVault>[0] }> = {
  "is not for this namespace": {
    reason: "RuntimeNotAllowed",
    vault: { spec: { selection: "Default", namespaces: { matchLabels: { team: "security" } } } },
  },
  "is not the default, and none is named": { reason: "RuntimeChanged", vault: {} },
  "is not the one that is named": {
    reason: "RuntimeChanged",
    vault: { spec: { selection: "Default" }, sandbox: { spec: { runtime: { name: "local" } } } },
  },
  "lacks a capability": {
    reason: "CapabilityMissing",
    vault: { spec: { selection: "Default" }, status: { capabilities: ["exec"] } },
  },
  "is of another platform": {
    reason: "PlatformMismatch",
    vault: { spec: { selection: "Default" }, status: { platform: "linux/arm64" } },
  },
};

for (const [what, { reason, vault }] of Object.entries(vaults)) {
  test(`a boot is moved to a Runtime that ${what}: nothing is made there, it is told and admitted anew`, async () => {
    const { parts, effects } = await besideVault(vault);
    await moveToVault(parts);
    await parts.pass();
    assert.equal(findCondition(parts.sandbox()?.status.conditions, "Ready")?.reason, reason);
    await parts.until("given up", () => parts.sandbox()?.status.compute === undefined);
    const { lastEnding } = parts.sandbox()?.status ?? {};
    assert.deepEqual([lastEnding?.reason, lastEnding?.outcome], ["BootTimedOut", "Discarded"]);
    assert.match(lastEnding?.message ?? "", new RegExp(reason));
    assert.equal(parts.world().status.holder, undefined, "nobody waits for it");
    if (vault.spec?.namespaces === undefined) parts.runtimes.drop({ name: "vault" });
    await parts.until("Ready", () => isReady(parts.sandbox()));
    assert.equal(parts.sandbox()?.status.compute?.runtime, "local");
    assert.ok(!effects.seen.some((effect) => /create|pull/.test(effect)), `made nothing: ${effects.seen.join(", ")}`);
    parts.work("one");
    await parts.until("asleep", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one"]);
  });
}

test("a boot that nobody admitted is not made on a Runtime that is not for its namespace", async () => {
  const { parts, effects } = await besideVault({ spec: { namespaces: { matchLabels: { team: "security" } } } });
  const from = { version: 0, digest: parts.genesis.digest };
  const compute: SandboxStatus["compute"] = { runtime: "vault", host: "b", id: "aw-sandbox-uid-1", boot: 1 };
  parts.change((sandbox) => ({
    ...sandbox,
    status: { ...sandbox.status, boot: 1, compute, bootedFrom: from, base: from },
  }));
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.compute?.runtime, "local");
  assert.ok(!effects.seen.some((effect) => /create|pull/.test(effect)), `made nothing: ${effects.seen.join(", ")}`);
});

test("a namespace that loses its Runtime in the middle of a boot gets no container there, and waits by name", async () => {
  const { parts } = await besideVault({});
  parts.silenceHost();
  await parts.pass();
  parts.changeRuntime((runtime) => ({
    ...runtime,
    spec: { ...runtime.spec, selection: "ByName", namespaces: { matchLabels: { team: "security" } } },
  }));
  parts.silenceHost(false);
  await parts.until("told", () => parts.events.some(({ reason }) => reason === "NoDefaultRuntime"));
  assert.equal(parts.host.containers.size, 0);
  assert.equal(parts.world().status.holder, undefined);
});

test("a boot under way stays where it was admitted when another Runtime becomes a default beside, or its own is cordoned", async () => {
  const { parts } = await besideVault({ spec: { selection: "Default" } });
  parts.runtimes.drop({ name: "vault" });
  parts.silenceHost();
  await parts.pass();
  parts.runtimes.put(runtimeOf({ metadata: { name: "vault", uid: "vault-uid" }, spec: { selection: "Default" } }));
  parts.changeRuntime((runtime) => ({ ...runtime, spec: { ...runtime.spec, scheduling: "Cordoned" } }));
  parts.silenceHost(false);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.boot, 1);
});

test("status does not say what the boot begins with: it is given up, and admitted anew", async () => {
  const parts = await memoryParts({});
  parts.silenceHost();
  await parts.pass();
  parts.change(({ status: { bootedFrom: _, ...status }, ...rest }) => ({ ...rest, status }));
  parts.silenceHost(false);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  assert.equal(parts.sandbox()?.status.boot, 2);
  assert.equal(parts.sandbox()?.status.bootedFrom?.version, 0);
});
