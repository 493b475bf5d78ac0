/** What a person and a controller see of the kinds: defaults, status, and the columns of kubectl. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import {
  type RuntimeStatus,
  runtimeSchema,
  type SandboxStatus,
  sandboxSchema,
  type WorldStatus,
  type WorldVersion,
  worldSchema,
} from "@agentworlds/crds";
import { useCluster } from "../../kit/index.ts";
import { Api, createNamespace, installKinds, kubectlOk, manifest, pathOf } from "./api.ts";

const cluster = await useCluster({ kinds: true });
const api = await Api.open(cluster.kubeconfigPath);
await installKinds(cluster, api);
const namespace = await createNamespace(api, "presentation");
// Runtimes are cluster-scoped and the cluster may be shared.
const runtimeName = namespace;
after(async () => {
  await api.send("DELETE", pathOf("Runtime", { namespace, name: runtimeName }));
  await api.send("DELETE", `/api/v1/namespaces/${namespace}`);
  await api[Symbol.asyncDispose]();
  await cluster[Symbol.asyncDispose]();
});

const create = async (kind: string, name: string, spec: unknown) => {
  const answer = await api.send("POST", pathOf(kind, { namespace }), manifest(kind, name, spec));
  assert.equal(answer.status, 201, answer.message);
  return answer.body;
};
const writeStatus = async (kind: string, name: string, status: unknown) => {
  const answer = await api.patch(`${pathOf(kind, { namespace, name })}/status?fieldValidation=Strict`, { status });
  assert.equal(answer.status, 200, answer.message);
  return answer.body;
};

const digest = `sha256:${"ab".repeat(32)}` as const;
const at = "2026-12-01T10:00:00Z";
const ready = {
  type: "Ready",
  status: "True",
  observedGeneration: 1,
  lastTransitionTime: at,
  reason: "Available",
  message: "version 3 can be booted",
} as const;
const causedBy = { user: "alice", agent: "claude", conversation: "c1" };
const session = { name: "s", uid: "5f0c" };
const version: WorldVersion = {
  version: 3,
  digest,
  operation: "op-3",
  parent: digest,
  sizeBytes: 5_000_000_000,
  totalBytes: 9_000_000_000,
  layers: 4,
  createdAt: at,
  reason: "Deadline",
  consistency: "Frozen",
  recovered: { reason: "OutOfMemory", exitCode: 137 },
  description: "tools installed",
  causedBy,
  sandbox: session,
};

const worldStatus: WorldStatus = {
  observedGeneration: 1,
  conditions: [ready],
  repository: "worlds/1/default/w-12345678",
  genesis: { image: "busybox:1.36", digest, platform: "linux/amd64" },
  head: { version: 3, digest, image: `127.0.0.1:5055/worlds/1/default/w-12345678@${digest}` },
  versions: [version],
  nextVersion: 5,
  pending: { operation: "op-4", version: 4, sandbox: session, base: digest, since: at },
  holder: { sandbox: "s", uid: "5f0c", causedBy, acquiredAt: at },
  rescues: [
    {
      operation: "op-2",
      sandbox: session,
      runtime: "local",
      host: "a",
      computeId: "aw-5f0c-1",
      base: digest,
      reason: "RegistryUnavailable",
      message: "kept until tomorrow",
      since: at,
    },
  ],
  prunedVersions: [{ version: 1, digest, prunedAt: at, deletedAt: at, reason: "BeyondKeepVersions" }],
};

const sandboxStatus: SandboxStatus = {
  observedGeneration: 1,
  observedMode: "Running",
  phase: "Running",
  conditions: [ready],
  boot: 2,
  world: { uid: "77aa" },
  compute: { runtime: "local", host: "a", id: "aw-5f0c-2", boot: 2, provisionedAt: at },
  bootedFrom: { version: 3, digest },
  base: { version: 3, digest },
  expiresAt: "2099-01-01T00:00:00Z",
  lifetimeEndsAt: "2099-01-01T01:00:00Z",
  lastActivityAt: at,
  operation: {
    id: "op-5",
    verb: "Snapshot",
    reason: "Snapshot",
    stage: "Captured",
    outcome: "Snapshot",
    since: at,
    attempts: 2,
    lastError: "registry answered 503",
    retryAt: at,
    causedBy,
  },
  requests: [
    {
      id: "r1",
      verb: "Close",
      parameters: { ttlSeconds: 5, description: "done", discard: "Discard" },
      user: "alice",
      at,
      result: { outcome: "Succeeded", code: "Closed", message: "closed", version: 4, digest, at },
    },
  ],
  lastSnapshot: { version: 3, digest, at, reason: "Snapshot" },
  closed: { version: 4, digest, at },
};

const runtimeStatus: RuntimeStatus = {
  observedGeneration: 1,
  conditions: [{ ...ready, reason: "AllHostsReachable" }],
  capabilities: ["exec", "freeze"],
  platform: "linux/amd64",
  version: "27.1",
  hostsReachable: "1/1",
  hosts: [
    {
      name: "a",
      state: "Reachable",
      version: "27.1",
      platform: "linux/amd64",
      capabilities: ["exec"],
      message: "",
      used: 1,
    },
  ],
  capacity: { total: 20, used: 1 },
  rescues: [
    {
      operation: "op-2",
      namespace: "default",
      world: "w",
      sandbox: session,
      host: "a",
      computeId: "aw-5f0c-1",
      base: digest,
      reason: "RegistryUnavailable",
      message: "kept",
      since: at,
    },
  ],
};

test("a World's defaults are written out, and its status says that nothing has observed it yet", async () => {
  const world = worldSchema.parse(await create("World", "defaults", { from: { image: "busybox:1.36" } }));
  assert.deepEqual(world.spec, {
    from: { image: "busybox:1.36" },
    session: { ttlSeconds: 900, maxLifetimeSeconds: 14_400 },
    retention: { keepVersions: 10 },
    deletionPolicy: "Retain",
  });
  assert.deepEqual(world.status, { observedGeneration: -1 });
});

test("a member left out of a nested object takes its own default", async () => {
  const spec = { from: { image: "busybox:1.36" }, session: { ttlSeconds: 60 }, retention: { pinned: [2] } };
  const world = worldSchema.parse(await create("World", "nested", spec));
  assert.deepEqual(world.spec.session, { ttlSeconds: 60, maxLifetimeSeconds: 14_400 });
  assert.deepEqual(world.spec.retention, { keepVersions: 10, pinned: [2] });
});

test("a Sandbox's times have no default, so that the World's are not masked", async () => {
  const sandbox = sandboxSchema.parse(await create("Sandbox", "defaults", { world: { name: "w" } }));
  assert.deepEqual(sandbox.spec, {
    world: { name: "w" },
    mode: "Running",
    closePolicy: "Snapshot",
    rescuePolicy: "Wait",
  });
  assert.deepEqual(sandbox.status, { observedGeneration: -1 });
});

test("a Runtime is isolated and limited unless it says otherwise", async () => {
  const hosts = [{ name: "a", endpoint: "unix:///run/docker.sock" }];
  const runtime = runtimeSchema.parse(await create("Runtime", runtimeName, { docker: { hosts } }));
  assert.deepEqual(runtime.spec, {
    docker: { hosts },
    selection: "ByName",
    scheduling: "Enabled",
    drainSeconds: 300,
    hostLossSeconds: 7200,
    capacity: { maxSandboxes: 20 },
    isolation: { network: "Isolated", pidsLimit: 512, memory: "2Gi" },
    imageCache: { keepImages: 10 },
    rescueSeconds: 86_400,
  });
  assert.deepEqual(runtime.status, { observedGeneration: -1 });
});

test("every field of status is stored as it was written and parsed back to the same", async () => {
  await create("World", "w", { from: { image: "busybox:1.36" } });
  await create("Sandbox", "s", { world: { name: "w" }, agent: { id: "claude" } });
  assert.deepEqual(worldSchema.parse(await writeStatus("World", "w", worldStatus)).status, worldStatus);
  assert.deepEqual(sandboxSchema.parse(await writeStatus("Sandbox", "s", sandboxStatus)).status, sandboxStatus);
  assert.deepEqual(runtimeSchema.parse(await writeStatus("Runtime", runtimeName, runtimeStatus)).status, runtimeStatus);
});

test("a spec sent to the status endpoint, and a status sent to the object, change nothing", async () => {
  const path = pathOf("World", { namespace, name: "w" });
  const viaStatus = worldSchema.parse((await api.patch(`${path}/status`, { spec: { description: "changed" } })).body);
  assert.equal(viaStatus.spec.description, undefined);
  const viaObject = worldSchema.parse((await api.patch(path, { status: { nextVersion: 99 } })).body);
  assert.equal(viaObject.status.nextVersion, worldStatus.nextVersion);
});

test("a full history of longest texts fits into the object", async () => {
  await create("World", "full", { from: { image: "busybox:1.36" } });
  const versions = Array.from({ length: 128 }, (_, number) => ({
    ...version,
    version: number,
    description: "語".repeat(1024),
    causedBy: { user: "u".repeat(512), agent: "a".repeat(512), conversation: "c".repeat(256) },
  }));
  const stored = worldSchema.parse(await writeStatus("World", "full", { ...worldStatus, versions }));
  assert.equal(stored.status.versions?.length, 128);
});

test("a list beyond its limit is refused with the limit", async () => {
  const requests = Array.from({ length: 17 }, (_, number) => ({ id: `r${number}`, verb: "Touch", user: "alice", at }));
  const answer = await api.patch(`${pathOf("Sandbox", { namespace, name: "s" })}/status`, { status: { requests } });
  assert.equal(answer.status, 422);
  assert.match(answer.message, /status\.requests: Too many: 17: must have at most 16 items/);
});

const columnsOf = (line: string | undefined): string[] => (line ?? "").split(/\s{2,}/).filter((cell) => cell !== "");
const table = async (...args: string[]): Promise<string[][]> => {
  const stdout = await kubectlOk(cluster.kubeconfigPath, ["get", "-n", namespace, ...args]);
  return stdout.trim().split("\n").map(columnsOf);
};
/** Ages differ from run to run. */
const withoutAge = (row: string[] | undefined): string[] | undefined => row?.slice(0, -1);

test("`kubectl get wld` tells which version is newest and who writes", async () => {
  const [header, row] = await table("wld", "w");
  assert.deepEqual(header, ["NAME", "HEAD", "HOLDER", "READY", "RESCUES", "AGE"]);
  assert.deepEqual(withoutAge(row), ["w", "3", "s", "True", "op-2"]);
});

test("`kubectl get sbx` tells what a session does and when it ends, also when that is in the future", async () => {
  const [header, row] = await table("sbx", "s");
  assert.deepEqual(header, ["NAME", "WORLD", "PHASE", "VERSION", "EXPIRES", "AGE"]);
  assert.deepEqual(withoutAge(row), ["s", "w", "Running", "3", "2099-01-01T00:00:00Z"]);
});

test("`kubectl get rt` tells how full a Runtime is", async () => {
  const [header, row] = await table("rt", runtimeName);
  assert.deepEqual(header, ["NAME", "READY", "USED", "TOTAL", "HOSTS", "AGE"]);
  assert.deepEqual(withoutAge(row), [runtimeName, "True", "1", "20", "1/1"]);
});

test("`-o wide` adds digest, host, agent and reasons", async () => {
  const wide = async (...args: string[]) =>
    (await kubectlOk(cluster.kubeconfigPath, ["get", "-n", namespace, "-o", "wide", ...args])).trim();
  assert.match(
    await wide("world", "w"),
    new RegExp(
      `HEAD +HOLDER +READY +RESCUES +REASON +DIGEST +FROM +AGE\\nw +3 +s +True +op-2 +Available +${digest} +busybox:1.36`,
    ),
  );
  assert.match(await wide("sandbox", "s"), /REASON +RUNTIME +HOST +AGENT +AGE\n.* Available +local +a +claude +/);
  assert.match(
    await wide("runtime", runtimeName),
    /REASON +PLATFORM +VERSION +SCHEDULING +AGE\n.* AllHostsReachable +linux\/amd64 +27\.1 +Enabled +/,
  );
});

test("`kubectl get agentworlds` lists every kind", async () => {
  const names = await kubectlOk(cluster.kubeconfigPath, ["get", "agentworlds", "-n", namespace, "-o", "name"]);
  for (const name of [
    "world.agentworlds.dev/w",
    "sandbox.agentworlds.dev/s",
    `runtime.agentworlds.dev/${runtimeName}`,
  ]) {
    assert.ok(names.split("\n").includes(name), names);
  }
});

test("`kubectl wait --for=condition` works on the conditions", async () => {
  const stdout = await kubectlOk(cluster.kubeconfigPath, [
    "wait",
    "-n",
    namespace,
    "--for=condition=Ready",
    "sandbox/s",
    "--timeout=5s",
  ]);
  assert.match(stdout, /condition met/);
});

test("`kubectl explain` says what a field means", async () => {
  const stdout = await kubectlOk(cluster.kubeconfigPath, ["explain", "worlds.spec.session.ttlSeconds"]);
  assert.match(stdout, /after it became Ready or was\s+last\s+touched/);
});
