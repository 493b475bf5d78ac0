/** What happens in a running session before it is frozen: the World's hook, then the files to the disk. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorldSpec } from "@agentworlds/crds";
import { isTrue } from "../reconciler/conditions.ts";
import type { ExecRecord, ExecRequest } from "../runtime/contract.ts";
import { RuntimeError } from "../runtime/errors.ts";
import { assertClean, assertSaved, isAsleep, isReady, type Parts, testLife } from "./lives.test-kit.ts";
import { memoryParts } from "./memory-parts.test-kit.ts";

type Hook = NonNullable<NonNullable<WorldSpec["snapshot"]>["hook"]>;

const setHook = (parts: Parts, change: Partial<Hook> = {}): void => {
  const hook: Hook = { command: ["flush", "--all"], timeoutSeconds: 30, onFailure: "Continue", ...change };
  parts.changeWorld((world) => ({ ...world, spec: { ...world.spec, snapshot: { hook } } }));
};
/** A database that writes into its files only when it is asked to, and always the same. */
const flush = (_: ExecRequest, work: string[]): Partial<ExecRecord> => {
  if (!work.includes("flushed")) work.push("flushed");
  return {};
};
const lastVersion = (parts: Parts) => parts.world().status.versions?.at(-1);
const resultOf = (parts: Parts, id: string) =>
  parts.sandbox()?.status.requests?.find((request) => request.id === id)?.result;

testLife("a World with a hook: what it flushes is in the version of every ending and snapshot", {
  async live(parts) {
    setHook(parts);
    parts.host.command = flush;
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.ask("Snapshot", "save");
    await parts.until("answered", () => resultOf(parts, "save") !== undefined && isReady(parts.sandbox()));
    assertSaved(parts, ["one", "flushed"]);
    assert.equal(lastVersion(parts)?.hook, "Succeeded");
    parts.work("two");
    await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
    assertSaved(parts, ["one", "flushed", "two"]);
    assert.equal(lastVersion(parts)?.hook, "Succeeded");
    assert.equal(lastVersion(parts)?.consistency, "Frozen");
    assertClean(parts);
  },
});

test("the hook comes first, with the session's environment; then the files go to the disk, then all is frozen", async () => {
  const parts = await memoryParts({ sandbox: { spec: { env: [{ name: "PGPASSWORD", value: "secret" }] } } });
  setHook(parts);
  const asked: ExecRequest[] = [];
  parts.host.command = (request) => {
    asked.push(request);
    return {};
  };
  await parts.until("Ready", () => isReady(parts.sandbox()));
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  const order = parts.effects.seen.filter((name) => ["exec", "sync", "freeze", "commit"].includes(name));
  assert.deepEqual(order, ["exec", "sync", "freeze", "commit"]);
  assert.deepEqual(
    asked.map(({ command, env, timeoutMs }) => ({ command, env, timeoutMs })),
    [{ command: ["flush", "--all"], env: { PGPASSWORD: "secret" }, timeoutMs: 30_000 }],
  );
  const { head } = parts.world().status;
  const manifest = new TextDecoder().decode(parts.registry.manifests.get(head?.digest ?? ""));
  assert.equal(JSON.parse(manifest).annotations["dev.agentworlds.hook"], "Succeeded");
  assert.ok(!manifest.includes("secret"));
});

test("a World without a hook: nothing is run and nothing is said of one", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assert.ok(!parts.effects.seen.includes("exec"));
  assert.equal(lastVersion(parts)?.hook, undefined);
});

const failures: Record<string, { command: () => Partial<ExecRecord>; says: RegExp }> = {
  "ends with 3": { command: () => ({ exitCode: 3 }), says: /exit code 3/ },
  "takes too long": { command: () => ({ exitCode: 124, timedOut: true }), says: /did not end within 30 s/ },
  "is no program": {
    command: () => {
      throw new RuntimeError("CommandNotStarted", `"flush" is not in PATH`);
    },
    says: /could not be run to its end \(CommandNotStarted\)/,
  },
};
for (const [how, { command, says }] of Object.entries(failures)) {
  for (const onFailure of ["Continue", "Abort"] as const) {
    test(`a hook that ${how} (${onFailure}) loses nothing: the ending goes on, the version and the ending say so`, async () => {
      const parts = await memoryParts({});
      setHook(parts, { onFailure });
      parts.host.command = command;
      await parts.until("Ready", () => isReady(parts.sandbox()));
      parts.work("one");
      await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
      assertSaved(parts, ["one"]);
      assertClean(parts);
      assert.equal(lastVersion(parts)?.hook, "Failed");
      assert.match(parts.sandbox()?.status.lastEnding?.message ?? "", says);
      assert.deepEqual(
        parts.events.filter(({ reason }) => reason === "HookFailed").map(({ type }) => type),
        ["Warning"],
      );
      assert.deepEqual(parts.failures, [], "a failing hook is no failed attempt");
    });
  }

  test(`a hook that ${how} and may abort: the snapshot that was asked for fails by name, the session goes on`, async () => {
    const parts = await memoryParts({});
    setHook(parts, { onFailure: "Abort" });
    parts.host.command = command;
    await parts.until("Ready", () => isReady(parts.sandbox()));
    parts.work("one");
    parts.ask("Snapshot", "save");
    await parts.until("answered", () => resultOf(parts, "save") !== undefined);
    assert.deepEqual([resultOf(parts, "save")?.outcome, resultOf(parts, "save")?.code], ["Failed", "HookFailed"]);
    assert.match(resultOf(parts, "save")?.message ?? "", says);
    assert.ok(isReady(parts.sandbox()));
    assert.equal(parts.world().status.head?.version, 0);
    assert.ok(!parts.effects.seen.includes("freeze"));
  });
}

test("a container that is dead has nothing that a hook could run in", async () => {
  const parts = await memoryParts({});
  setHook(parts);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  for (const container of parts.host.containers.values()) container.state = "Exited";
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assert.ok(!parts.effects.seen.includes("exec"));
  assert.equal(lastVersion(parts)?.hook, undefined);
  assertSaved(parts, ["one"]);
});

test("a container that dies under its hook is captured dead", async () => {
  const parts = await memoryParts({});
  setHook(parts);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.host.command = () => {
    for (const container of parts.host.containers.values()) container.state = "Exited";
    throw new RuntimeError("ComputeNotRunning", "it has ended");
  };
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one"]);
  assert.equal(lastVersion(parts)?.consistency, "Crash");
  assert.deepEqual(lastVersion(parts)?.recovered, { reason: "ContainerExited", exitCode: 137 });
});

test("once frozen, an ending that cannot be published does not run the hook again", async () => {
  const parts = await memoryParts({});
  setHook(parts);
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.registry.failing.set("v1", "Unavailable");
  await parts.until("failing", () => (parts.sandbox()?.status.operation?.attempts ?? 0) >= 3);
  parts.registry.failing.clear();
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assert.equal(parts.effects.seen.filter((name) => name === "exec").length, 1);
});

test("files that cannot be brought to the disk fail the attempt: it is said, tried again, and nothing is published before", async () => {
  const parts = await memoryParts({});
  await parts.until("Ready", () => isReady(parts.sandbox()));
  parts.work("one");
  parts.host.refusesSync = true;
  await parts.until("failing", () => isTrue(parts.sandbox()?.status.conditions, "SnapshotFailed"));
  assert.match(parts.sandbox()?.status.operation?.lastError ?? "", /SyncFailed: input\/output error/);
  assert.ok(!parts.effects.seen.includes("freeze"));
  assert.equal(parts.world().status.head?.version, 0);
  parts.host.refusesSync = false;
  await parts.until("Hibernated", () => isAsleep(parts.sandbox()));
  assertSaved(parts, ["one"]);
  assertClean(parts);
});
