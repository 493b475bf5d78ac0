import assert from "node:assert/strict";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { binary, isCompiled } from "./binaries.ts";
import { MissingProgram } from "./errors.ts";

async function scratch(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "agent-worlds-test-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

async function script(path: string, text: string): Promise<void> {
  await writeFile(path, `#!/bin/sh\n${text}\n`);
  await chmod(path, 0o755);
}

const signal = (): AbortSignal => AbortSignal.timeout(20_000);

/** Stands in for Go: "compiles" by writing the package's name, and counts. */
const fakeGo = `
if [ "$1" = version ]; then exit; fi
while [ "$1" != -o ]; do shift; done
echo compiled >> "$FAKE_GO_LOG"
printf '%s' "$3" > "$2"; chmod 755 "$2"`;

test("a program of KUBEBUILDER_ASSETS is used as it is", async () => {
  await using folder = await scratch();
  await script(join(folder.path, "etcd"), "true");
  const env = { PATH: "/nowhere", KUBEBUILDER_ASSETS: folder.path };
  assert.equal(await binary("etcd", { signal: signal(), env }), join(folder.path, "etcd"));
});

test("without Go one sentence says what to install or set", async () => {
  await using folder = await scratch();
  const env = { PATH: folder.path };
  const failing = binary("kube-apiserver", { signal: signal(), env, cacheDirectory: folder.path });
  const error = await failing.catch((thrown: unknown) => thrown);
  assert.ok(error instanceof MissingProgram);
  assert.match(error.message, /^Go is not installed, and kube-apiserver is compiled .* set KUBEBUILDER_ASSETS .*\.$/);
});

test("a program is compiled once, however many ask at the same time, and then found", async () => {
  await using folder = await scratch();
  await script(join(folder.path, "go"), fakeGo);
  const log = join(folder.path, "log");
  const env = { PATH: `${folder.path}:/usr/bin:/bin`, FAKE_GO_LOG: log };
  const lines: string[] = [];
  const ask = (): Promise<string> =>
    binary("registry", {
      signal: signal(),
      env,
      cacheDirectory: folder.path,
      progress: (line) => void lines.push(line),
    });
  const paths = await Promise.all([ask(), ask(), ask()]);
  assert.equal(new Set([...paths, await ask()]).size, 1);
  assert.equal(lines.filter((line) => line.startsWith("compiling registry")).length, 1);
});

test("what is compiled already needs no Go", async () => {
  await using folder = await scratch();
  await script(join(folder.path, "go"), fakeGo);
  const env = { PATH: `${folder.path}:/usr/bin:/bin`, FAKE_GO_LOG: join(folder.path, "log") };
  const options = { signal: signal(), cacheDirectory: folder.path, progress: () => undefined };
  assert.equal(await isCompiled("etcd", { ...options, env }), false);
  const path = await binary("etcd", { ...options, env });
  const withoutGo = { PATH: "/nowhere" };
  assert.equal(await isCompiled("etcd", { ...options, env: withoutGo }), true);
  assert.equal(await binary("etcd", { ...options, env: withoutGo }), path);
});

test("a failed build leaves nothing that a later one would take for a program", async () => {
  await using folder = await scratch();
  await script(
    join(folder.path, "go"),
    `[ "$1" = version ] && exit; while [ "$1" != -o ]; do shift; done; echo half > "$2"; echo "no such module" >&2; exit 1`,
  );
  const env = { PATH: `${folder.path}:/usr/bin:/bin` };
  const options = { signal: signal(), env, cacheDirectory: folder.path, progress: () => undefined };
  await assert.rejects(binary("etcd", options), /no such module/);
  await assert.rejects(binary("etcd", options), /no such module/);
});
