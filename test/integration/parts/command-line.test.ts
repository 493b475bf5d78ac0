import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { isAlive } from "../../../hack/parts/directory.ts";
import { callEngine } from "../../../hack/parts/engine-api.ts";
import { kubectlWords } from "../../../hack/parts/kubectl.ts";
import type { PartsFile } from "../../../hack/parts/parts-file.ts";
import { freePort, isPortFree } from "../../../hack/parts/ports.ts";
import { attempt, type CommandResult, run } from "../../../hack/parts/process.ts";
import { reservePort } from "../../../hack/parts/reserved-port.ts";
import { REGISTRY_PORT } from "../../../hack/parts/undertakings.ts";
import { eventuallyHolds, registry } from "../../kit/index.ts";
import { leftoversOf, nothing } from "./leftovers.ts";

const script = (name: string): string => fileURLToPath(new URL(`../../../hack/${name}`, import.meta.url));

const limit = (): AbortSignal => AbortSignal.timeout(60_000);

/** The runner's own cluster is not one that somebody lends. */
const { KUBECONFIG: _kubeconfig, ...withoutCluster } = process.env;

function hack(name: string, ...words: string[]): Promise<CommandResult> {
  return attempt([process.execPath, script(name), ...words], {
    env: withoutCluster,
    signal: AbortSignal.timeout(120_000),
  });
}

async function scratch(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "agent-worlds-test-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Prints the parts file as one line. */
const showParts = 'tr -d "\\n" < "$AGENTWORLDS_PARTS"; echo';

async function expectGone(parts: PartsFile): Promise<void> {
  await eventuallyHolds(async () => assert.deepEqual(await leftoversOf(parts.controlPlane.directory), nothing));
  if (parts.engine.private) {
    const directory = dirname(parts.engine.dockerHost.replace("unix://", ""));
    await eventuallyHolds(async () => assert.deepEqual(await leftoversOf(directory), nothing));
  }
}

test("with-parts runs a command with every part, hands back its exit code and tears everything down", async () => {
  const command = `${showParts}; test -n "$DOCKER_HOST" && test -r "$KUBECONFIG" || exit 1; exit 7`;
  const { code, stdout } = await hack("with-parts.ts", "--", "sh", "-c", command);
  assert.equal(code, 7);
  const parts: PartsFile = JSON.parse(stdout);
  assert.match(parts.baseImages["busybox"] ?? "", /^127\.0\.0\.1:\d+\/base\/busybox:latest$/);
  await expectGone(parts);
});

for (const how of ["SIGTERM", "SIGINT"] as const) {
  test(`with-parts hands ${how} to its command, waits for it and tears everything down`, async () => {
    const command = `trap "exit 3" INT TERM; ${showParts}; while :; do sleep 0.1; done`;
    const child = spawn(process.execPath, [script("with-parts.ts"), "--", "sh", "-c", command], {
      stdio: ["ignore", "pipe", "inherit"],
      env: withoutCluster,
    });
    const exited = once(child, "exit");
    const [line] = await once(createInterface({ input: child.stdout }), "line");
    child.kill(how);
    assert.deepEqual(await exited, [3, null]);
    await expectGone(JSON.parse(String(line)));
  });
}

test("of two that come up at once on one port one says who holds it; the other is up once, survives its keeper's death and goes down", async () => {
  await using folder = await scratch();
  const port = String(await freePort());
  const up = (directory: string) =>
    hack("up.ts", "--directory", directory, "--images", "busybox", "--registry-port", port);
  const directories = ["one", "two"].map((name) => join(folder.path, name)) as [string, string];
  const [one, two] = await Promise.all([up(directories[0]), up(directories[1])]);
  const [first, directory, loser, empty] =
    one.code === 0 ? [one, directories[0], two, directories[1]] : [two, directories[1], one, directories[0]];

  assert.deepEqual([first.code, loser.code], [0, 1]);
  assert.match(first.stdout, /^(export [A-Z_]+='[^']+'\n){3}$/, "what `eval` takes, and nothing else");
  const host = `127.0.0.1:${port}`;
  assert.equal(first.stderr, `registry http://${host}\nimage    ${host}/base/busybox:latest\n`);
  assert.match(
    loser.stderr,
    /port \d+ of 127\.0\.0\.1 is taken by `make up` \(process \d+\): `make down` in .* ends it/,
  );
  assert.doesNotMatch(loser.stderr, /\n\s+at /);
  assert.deepEqual((await leftoversOf(empty)).processes, []);
  assert.equal((await hack("down.ts", "--directory", empty)).code, 0);
  assert.deepEqual(await leftoversOf(empty), nothing);

  const parts = async (): Promise<PartsFile> => JSON.parse(await readFile(join(directory, "parts.json"), "utf8"));
  const before = await parts();
  assert.equal((await up(directory)).stdout, first.stdout);
  assert.deepEqual(await parts(), before, "up twice is up once");

  process.kill(before.keeper.pid, "SIGKILL");
  assert.equal((await up(directory)).code, 0);
  assert.notDeepEqual((await parts()).keeper, before.keeper);
  // A state of which nothing can be read any more goes down all the same.
  await rm(join(directory, "parts.json"));
  for (const _ of ["down", "down twice is down"])
    assert.equal((await hack("down.ts", "--directory", directory)).code, 0);
  assert.deepEqual(await leftoversOf(directory), nothing);
});

test("up says in one sentence that a stranger has its registry's port, and leaves nothing", async () => {
  await using folder = await scratch();
  await using taken = await registry({ own: true });
  const port = new URL(taken.url).port;
  const directory = join(folder.path, "local");
  const { code, stderr } = await hack(
    "up.ts",
    "--directory",
    directory,
    "--images",
    "busybox",
    "--registry-port",
    port,
  );
  assert.equal(code, 1);
  assert.match(
    stderr,
    new RegExp(
      `^make up cannot begin:\n- port ${port} of 127\\.0\\.0\\.1 is taken by .registry. \\(process \\d+\\): end that first\\.\n$`,
    ),
  );
  assert.equal((await hack("down.ts", "--directory", directory)).code, 0);
  assert.deepEqual(await leftoversOf(directory), nothing);
});

test("a second demo says at once who holds its port and what to do, and leaves nothing", async () => {
  // Held by another undertaking of this machine it is as well.
  const held = await reservePort({ port: REGISTRY_PORT, by: "make demo", toEnd: "wait", signal: limit() }).catch(
    () => undefined,
  );
  await using _ = held ?? { [Symbol.asyncDispose]: () => Promise.resolve() };
  const before = await readdir(tmpdir());
  const { code, stdout, stderr } = await hack("demo.ts");
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /^registry: port 5055 of 127\.0\.0\.1 is taken by `.+` \(process \d+\): .+\n$/);
  const made = (await readdir(tmpdir())).filter(
    (name) => name.startsWith("agent-worlds-demo-") && !before.includes(name),
  );
  assert.deepEqual(made, []);
});

test("a kept demo comes back to the shell with everything running; down ends it, a session on an engine that is not ours too", async () => {
  await using folder = await scratch();
  const directory = join(folder.path, "local");
  const port = String(await freePort());
  const words = ["--directory", directory, "--registry-port", port, "--image", "busybox"];
  const keep = () =>
    attempt([process.execPath, script("demo.ts"), ...words], {
      env: { ...withoutCluster, KEEP: "1" },
      signal: AbortSignal.timeout(300_000),
    });
  const down = () => hack("down.ts", "--directory", directory);
  await using undo = new AsyncDisposableStack();
  undo.defer(async () => void (await down()));
  const { code, stdout, stderr } = await keep();
  assert.equal(code, 0, stderr);
  assert.deepEqual(Object.keys(JSON.parse(stdout)), ["ok", "seconds", "version", "digest"]);
  const parts: PartsFile = JSON.parse(await readFile(join(directory, "parts.json"), "utf8"));
  const { kubeconfig } = parts.controlPlane;
  assert.ok(stderr.includes(`\nkubeconfig  ${kubeconfig}\n`), stderr);
  assert.match(stderr, /`make down` ends it/);

  const again = await keep();
  assert.equal(again.code, 1);
  assert.match(again.stderr, /parts are up in .* already: `make down` ends them/);

  const kubectl = (input: string, ...rest: string[]) =>
    run(kubectlWords(kubeconfig, ...rest), { input, signal: limit() });
  const session = {
    apiVersion: "agentworlds.dev/v1alpha1",
    kind: "Sandbox",
    metadata: { name: "kept", namespace: "default" },
    spec: { world: { name: "hello" } },
  };
  await kubectl(JSON.stringify(session), "create", "-f", "-");
  await kubectl("", "wait", "--for=condition=Ready", "--timeout=50s", "sandboxes.agentworlds.dev/kept");
  const id = await kubectl("", "get", "sandboxes.agentworlds.dev", "kept", "-o", "jsonpath={.status.compute.id}");
  const container = () =>
    callEngine(parts.engine.dockerHost, { method: "GET", path: `/containers/${id}/json`, signal: limit() });
  assert.equal((await container()).status, 200);

  assert.equal((await down()).code, 0);
  assert.deepEqual(await leftoversOf(directory), nothing);
  for (const one of parts.processes) assert.ok(!(await isAlive(one)), `process ${one.pid} is left`);
  assert.ok(await isPortFree(Number(port)));
  if (!parts.engine.private) assert.equal((await container()).status, 404, "no container is left");
});

test("an ordinary user is told everything that is missing in one go, and sees no stack", async (t) => {
  if (process.getuid?.() !== 0) return t.skip("only root can become another user");
  const asUser = (...words: string[]) =>
    attempt(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", process.execPath, ...words], {
      env: { PATH: "/usr/bin:/bin", HOME: "/nonexistent", DOCKER_HOST: "unix:///nowhere/docker.sock" },
      signal: limit(),
    });
  if ((await asUser("--check", script("demo.ts"))).code !== 0) return t.skip("another user cannot read this clone");
  const { code, stderr } = await asUser(script("demo.ts"));
  assert.equal(code, 1);
  assert.match(stderr, /^make demo cannot begin:\n(- .+\.\n)+$/);
  assert.match(stderr, /set HOME to a folder of yours/);
  assert.match(stderr, /nothing answers at DOCKER_HOST=unix:\/\/\/nowhere\/docker\.sock/);
});
