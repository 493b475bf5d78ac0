/**
 * The product as its users meet it: operator processes beside a real control plane, the SDK through kube-apiserver, a real
 * engine and registry. What the parts' own suites prove with doubles is proved here once with everything real.
 */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { type RunningOperator, startOperator } from "../../../hack/parts/operator.ts";
import { AgentWorlds, AgentWorldsError, NotFoundError, PermissionError } from "../../../sdk/src/index.ts";
import { eventually } from "../../kit/index.ts";
import { conditionOf } from "../../kit/operator.ts";
import { Stage } from "../../kit/stage.ts";

const PLANTED = "planted-b7d1-secret-value";

describe("a session through the SDK, with everything real", () => {
  const parts = new AsyncDisposableStack();
  let stage: Stage;
  let operator: RunningOperator;
  let worlds: AgentWorlds;

  before(async () => {
    stage = parts.use(await Stage.open());
    operator = parts.use(
      await startOperator({
        kubeconfigPath: stage.site.ground.kubeconfigPath,
        registryUrl: stage.site.ground.registryUrl,
        settings: { leader: { leaseDurationSeconds: 2, renewDeadlineSeconds: 1.5, retryPeriodSeconds: 0.3 } },
        signal: stage.site.signal,
      }),
    );
    worlds = parts.use(new AgentWorlds({ kubeconfig: stage.site.ground.kubeconfigPath, namespace: stage.namespace }));
    await stage.kubectl(
      "-n",
      stage.namespace,
      "create",
      "secret",
      "generic",
      "planted",
      `--from-literal=token=${PLANTED}`,
    );
  });
  after(() => parts.disposeAsync());

  test("create, exec, files, touch, snapshot, close: each does what it says, and the version is the World's head", async () => {
    const world = await stage.readyWorld();
    const session = await worlds.sandboxes.create({
      world: world.metadata.name,
      ttlSeconds: 60,
      agent: { id: "tester", conversation: "c1" },
    });
    const said = await session.exec(["sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert.deepEqual([said.exitCode, said.stdout, said.stderr, said.timedOut], [3, "out\n", "err\n", false]);
    const late = await session.exec("echo early; sleep 30", { timeoutSeconds: 1 });
    assert.deepEqual([late.exitCode, late.timedOut, late.stdout], [124, true, "early\n"]);
    const bytes = new Uint8Array(300_000).map((_, index) => index % 256);
    await session.writeFile("/tmp/every byte\n.bin", bytes, { mode: 0o640 });
    assert.deepEqual(await session.readFile("/tmp/every byte\n.bin"), bytes);
    assert.equal((await session.exec("stat -c %a /tmp/every*")).stdout, "640\n");
    await assert.rejects(session.readFile("/tmp/none"), NotFoundError);
    const before = session.expiresAt;
    const touched = await session.touch({ ttlSeconds: 120 });
    assert.ok((touched.expiresAt ?? 0) > (before ?? 0));
    const snapshot = await session.snapshot({ description: "all bytes" });
    assert.equal(snapshot.version, 1);
    const closed = await session.close();
    assert.equal(closed.version, 2);
    const { status } = await stage.world(world);
    assert.equal(status.head?.digest, closed.digest);
    const version = status.versions?.find(({ version: number }) => number === 1);
    assert.equal(version?.description, "all bytes");
    assert.ok(status.versions?.at(-1)?.causedBy.user, "who did it is kept");
  });

  test("who did it: the creator is stamped, an agent stands in the version it ends in", async () => {
    const world = await stage.readyWorld();
    const kubeconfig = await stage.identity({ user: "alice", groups: ["system:masters"] });
    await using alice = new AgentWorlds({ kubeconfig, namespace: stage.namespace });
    const session = await alice.sandboxes.create({
      world: world.metadata.name,
      ttlSeconds: 2,
      agent: { id: "coder", conversation: "42" },
    });
    const sandbox = (await worlds.sandboxes.list()).find(({ metadata }) => metadata.name === session.name);
    assert.deepEqual(JSON.parse(sandbox?.metadata.annotations?.["agentworlds.dev/created-by"] ?? ""), {
      user: "alice",
      agent: "coder",
      conversation: "42",
    });
    const version = await eventually(async () =>
      (await stage.world(world)).status.versions?.find(({ version: n }) => n === 1),
    );
    assert.deepEqual(version.causedBy, { user: "alice", agent: "coder", conversation: "42" });
    assert.equal(version.reason, "Deadline");
  });

  test("a Secret reaches the command and nothing else: no argv, no container config, no version, no log", async () => {
    const world = await stage.readyWorld();
    const session = await worlds.sandboxes.create({
      world: world.metadata.name,
      ttlSeconds: 60,
      env: { PLAIN: "plain-value", TOKEN: { secretKeyRef: { name: "planted", key: "token" } } },
    });
    const running = session.exec('test "$PLAIN" = plain-value && sleep 1 && printf %s "$TOKEN" | wc -c', {
      env: { OTHER: PLANTED },
    });
    const seen = new Set<string>();
    let done = false;
    void running.finally(() => {
      done = true;
    });
    while (!done) for (const line of await commandLines()) if (line.includes(PLANTED)) seen.add(line);
    assert.equal((await running).stdout, `${PLANTED.length}\n`);
    assert.deepEqual([...seen], [], "no process had it in its arguments");
    const closed = await session.close();
    assert.equal(
      JSON.stringify(await stage.config(world, (await stage.world(world)).status.head?.digest)).includes(PLANTED),
      false,
    );
    assert.ok(closed.digest);
    assert.equal((await readFile(operator.logPath, "utf8")).includes(PLANTED), false);
    const events = await stage.kubectl("-n", stage.namespace, "get", "events,sandboxes,worlds", "-o", "json");
    assert.equal(events.includes(PLANTED), false);
  });

  test("a missing Secret key is named when a command needs it", async () => {
    const world = await stage.readyWorld();
    const session = await worlds.sandboxes.create({
      world: world.metadata.name,
      ttlSeconds: 60,
      env: { TOKEN: { secretKeyRef: { name: "planted", key: "absent" } } },
    });
    await assert.rejects(session.exec("true"), (error: unknown) => {
      assert.ok(error instanceof AgentWorldsError);
      assert.equal(error.code, "SecretKeyNotFound");
      assert.match(error.remediation ?? "", /add the key/);
      return true;
    });
    await session.close({ policy: "Discard" });
  });

  test("RBAC decides: a reader may look at the Sandbox and not into it", async () => {
    const world = await stage.readyWorld();
    const session = await worlds.sandboxes.create({ world: world.metadata.name, ttlSeconds: 60 });
    await stage.kubectl(
      "create",
      "clusterrole",
      `reader-${stage.namespace}`,
      "--verb=get,list,watch",
      "--resource=sandboxes.agentworlds.dev,sandboxes.sessions.agentworlds.dev/files,sandboxes.sessions.agentworlds.dev/exec",
    );
    await stage.kubectl(
      "create",
      "clusterrolebinding",
      `reader-${stage.namespace}`,
      `--clusterrole=reader-${stage.namespace}`,
      "--user=reader",
    );
    await using reader = new AgentWorlds({
      kubeconfig: await stage.identity({ user: "reader" }),
      namespace: stage.namespace,
    });
    const attached = await reader.sandboxes.get(session.name);
    await assert.rejects(attached.readFile("/etc/passwd"), PermissionError);
    await assert.rejects(attached.exec("id"), PermissionError);
    await session.close({ policy: "Discard" });
  });

  test("kubectl wait and get tell the story", async () => {
    const world = await stage.readyWorld();
    const session = await worlds.sandboxes.create({ world: world.metadata.name, name: "told", ttlSeconds: 60 });
    const n = ["-n", stage.namespace];
    await stage.kubectl(...n, "wait", "--for=condition=Ready", "--timeout=5s", `sandbox/${session.name}`);
    assert.match(await stage.kubectl(...n, "get", "wld,sbx"), /told +w\d+ +Running +0 +\d{4}-/);
    assert.match(await stage.kubectl("get", "rt"), /local +True +1 +20 +1\/1/);
    await stage.kubectl(...n, "patch", "sandbox", "told", "--type=merge", "-p", '{"spec":{"mode":"Hibernated"}}');
    await stage.kubectl(...n, "wait", "--for=condition=Hibernated", "--timeout=30s", "sandbox/told");
    const events = await stage.kubectl(
      ...n,
      "get",
      "events",
      "--field-selector=involvedObject.name=told",
      "-o",
      "jsonpath={.items[*].reason}",
    );
    for (const reason of ["Admitted", "Running", "Hibernating", "Snapshotted"])
      assert.match(events, new RegExp(reason));
  });

  test("the operator is killed while a session runs: work goes on, the next one hibernates it at its deadline", async () => {
    const world = await stage.readyWorld();
    const session = await worlds.sandboxes.create({ world: world.metadata.name, ttlSeconds: 4 });
    await session.writeFile("/tmp/kept", "kept");
    await operator.kill();
    operator = parts.use(
      await startOperator({
        kubeconfigPath: stage.site.ground.kubeconfigPath,
        registryUrl: stage.site.ground.registryUrl,
        signal: stage.site.signal,
      }),
    );
    const head = await eventually(async () => {
      const { status } = await stage.world(world);
      return status.head?.version === 1 ? status.head : undefined;
    });
    assert.equal(await stage.readInVersion(world, head.digest, "tmp/kept"), "kept");
  });

  test("an orderly stop withdraws the sessions API, so that namespaces can still be deleted", async () => {
    await operator.stop();
    await assert.rejects(stage.kubectl("get", "apiservice", "v1alpha1.sessions.agentworlds.dev"), /NotFound/);
    const namespace = await stage.site.namespace();
    await stage.kubectl("delete", "namespace", namespace, "--timeout=30s");
  });

  test("conditions of a World hold no surprise", async () => {
    const world = (await worlds.worlds.list())[0];
    assert.ok(world);
    assert.equal(conditionOf(world, "Stalled"), undefined);
  });
});

/** Arguments of every process of the machine. */
async function commandLines(): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.allSettled(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8")));
  return lines.flatMap((line) => (line.status === "fulfilled" ? [line.value] : []));
}
