/** `bin/kubectl-world`, the file that kubectl starts: which Node it runs on, whatever the machine has. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";

const LAUNCHER = join(import.meta.dirname, "..", "..", "bin", "kubectl-world");

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts a file as kubectl does: by its path, without a shell. */
async function start(file: string, args: readonly string[], path: string): Promise<Ended> {
  const child = spawn(file, args, { env: { PATH: path }, stdio: ["ignore", "pipe", "pipe"] });
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return { code: child.exitCode, stdout, stderr };
}

interface Place extends AsyncDisposable {
  readonly launcher: string;
  /** An executable file of this text, below the place. */
  program(name: string, script: string): Promise<string>;
}

/** The launcher by itself, in a folder whose name needs quotes, as in a package without a Node. */
async function place(): Promise<Place> {
  const root = await mkdtemp(join(tmpdir(), "kubectl world-"));
  const launcher = join(root, "packages", "sdk", "bin", "kubectl-world");
  await mkdir(dirname(launcher), { recursive: true });
  await copyFile(LAUNCHER, launcher);
  return {
    launcher,
    async program(name, script) {
      const file = join(root, name);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, script);
      await chmod(file, 0o755);
      return file;
    },
    [Symbol.asyncDispose]: () => rm(root, { recursive: true }),
  };
}

/** A Node that says it is this version, and otherwise what it was started with. */
const nodeOf = (version: string): string =>
  `#!/bin/sh\nif [ "$1" = --version ]; then echo v${version}; else printf '[%s]' "$@"; fi\n`;

test("it runs on the package's own Node, whichever one the machine has, also through a link and from anywhere", async () => {
  await using there = await place();
  const link = join(dirname(there.launcher), "linked");
  await symlink(LAUNCHER, link);
  for (const file of [LAUNCHER, link]) {
    const { code, stdout, stderr } = await start(file, ["--help"], "/usr/bin:/bin");
    assert.deepEqual([code, stderr], [0, ""]);
    assert.match(stdout, /kubectl world rescue list/);
  }
  const wrong = await start(LAUNCHER, ["rescue", "explode"], "/usr/bin:/bin");
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /^error: /);
});

test("the nearest folder above that has a Node gives it, with the arguments as they are", async () => {
  await using there = await place();
  await there.program("packages/node_modules/.bin/node", nodeOf("24.0.0"));
  await there.program("node_modules/.bin/node", "#!/bin/sh\necho the farther one\n");
  const { code, stdout } = await start(there.launcher, ["rescue", "a b", "$HOME", ""], "/nowhere");
  assert.equal(code, 0);
  assert.match(
    stdout,
    /^\[--disable-warning=ExperimentalWarning\]\[[^\]]*packages\/sdk\/src\/kubectl-world\/process\.ts\]/,
  );
  assert.ok(stdout.endsWith("[rescue][a b][$HOME][]"), stdout);
});

test("without one of the package, a Node 24 or newer of the machine is taken", async () => {
  await using there = await place();
  const machine = dirname(await there.program("machine/node", nodeOf("26.1.0")));
  const { code, stdout } = await start(there.launcher, ["rescue"], machine);
  assert.deepEqual([code, stdout.endsWith("[rescue]")], [0, true]);
});

test("where there is none, or an older one, one sentence says what is needed", async () => {
  await using there = await place();
  const older = dirname(await there.program("older/node", nodeOf("22.19.0")));
  const broken = dirname(await there.program("broken/node", "#!/bin/sh\nexit 1\n"));
  const needs =
    /^error: kubectl world needs Node 24 or newer, and the[^\n]*: run npm ci in \/[^\n]*\/packages, or put one on the PATH\n$/;
  for (const [path, found] of [
    ["/nowhere", /there is none/],
    [older, /the one on the PATH is v22\.19\.0/],
    [broken, /the one on the PATH does not run/],
  ] as const) {
    const { code, stdout, stderr } = await start(there.launcher, ["rescue", "list", "w"], path);
    assert.deepEqual([code, stdout], [1, ""]);
    assert.match(stderr, needs);
    assert.match(stderr, found);
  }
});
