import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { PartsFile } from "../../../hack/parts/parts-file.ts";
import { freePort } from "../../../hack/parts/ports.ts";
import { attempt, type CommandResult } from "../../../hack/parts/process.ts";
import { eventuallyHolds, registry } from "../../kit/index.ts";
import { leftoversOf, nothing } from "./leftovers.ts";

const script = (name: string): string => fileURLToPath(new URL(`../../../hack/${name}`, import.meta.url));

function hack(name: string, ...words: string[]): Promise<CommandResult> {
  return attempt([process.execPath, script(name), ...words], { signal: AbortSignal.timeout(120_000) });
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
    });
    const exited = once(child, "exit");
    const [line] = await once(createInterface({ input: child.stdout }), "line");
    child.kill(how);
    assert.deepEqual(await exited, [3, null]);
    await expectGone(JSON.parse(String(line)));
  });
}

test("up twice is up once, down twice is down, and nothing is left", async () => {
  await using folder = await scratch();
  const words = ["--directory", join(folder.path, "local")];
  const up = ["up.ts", ...words, "--images", "busybox", "--registry-port", String(await freePort())] as const;
  const first = await hack(...up);
  assert.deepEqual([first.code, first.stderr], [0, ""]);
  const parts: PartsFile = JSON.parse(await readFile(join(folder.path, "local/parts.json"), "utf8"));
  assert.equal((await hack(...up)).stdout, first.stdout);
  assert.deepEqual(JSON.parse(await readFile(join(folder.path, "local/parts.json"), "utf8")), parts);
  assert.equal((await hack("down.ts", ...words)).code, 0);
  assert.deepEqual(await leftoversOf(join(folder.path, "local")), nothing);
  assert.equal((await hack("down.ts", ...words)).code, 0);
});

test("up after its keeper was killed starts anew, and down ends a state of which the parts file is unreadable", async () => {
  await using folder = await scratch();
  const directory = join(folder.path, "local");
  const up = [
    "up.ts",
    "--directory",
    directory,
    "--images",
    "busybox",
    "--registry-port",
    String(await freePort()),
  ] as const;
  assert.equal((await hack(...up)).code, 0);
  const before: PartsFile = JSON.parse(await readFile(join(directory, "parts.json"), "utf8"));
  process.kill(before.keeper.pid, "SIGKILL");
  assert.equal((await hack(...up)).code, 0);
  const later: PartsFile = JSON.parse(await readFile(join(directory, "parts.json"), "utf8"));
  assert.notDeepEqual(later.keeper, before.keeper);
  await rm(join(directory, "parts.json"));
  assert.equal((await hack("down.ts", "--directory", directory)).code, 0);
  assert.deepEqual(await leftoversOf(directory), nothing);
});

test("up says in one sentence that its registry's port is taken, and leaves nothing", async () => {
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
  assert.match(stderr, new RegExp(`port ${port} of 127.0.0.1 is taken`));
  assert.doesNotMatch(stderr, /\n\s+at /);
  assert.deepEqual((await leftoversOf(directory)).processes, []);
  assert.equal((await hack("down.ts", "--directory", directory)).code, 0);
  assert.deepEqual(await leftoversOf(directory), nothing);
});
