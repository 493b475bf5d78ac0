import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { HelperUnavailable, isHelperBuilt, loadHelper } from "./helper.ts";

const { signal } = new AbortController();
const platform = process.arch === "arm64" ? "linux/arm64" : "linux/amd64";
const sources = new URL("../../helper", import.meta.url).pathname;

async function scratch(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "agentworlds-helper-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

test("a given binary is used as it is; its version follows from its bytes", async () => {
  await using directory = await scratch();
  const helperPath = join(directory.path, "helper");
  await writeFile(helperPath, "bytes");
  const helper = await loadHelper({ platform, helperPath }, signal);
  assert.equal(Buffer.from(helper.bytes).toString(), "bytes");
  assert.equal(helper.sha256.slice(0, 16), helper.version);
  await assert.rejects(loadHelper({ platform, helperPath: `${helperPath}-absent` }, signal), HelperUnavailable);
});

test("the helper is compiled once per content, also when two ask at once, and it runs", async () => {
  await using directory = await scratch();
  const sourceDir = join(directory.path, "source");
  const cacheDir = join(directory.path, "cache");
  await cp(sources, sourceDir, { recursive: true });
  const ask = () => loadHelper({ platform, sourceDir, cacheDir }, signal);
  assert.equal(await isHelperBuilt({ platform, sourceDir, cacheDir }), false);
  const [one, two] = await Promise.all([ask(), ask()]);
  assert.equal(await isHelperBuilt({ platform, sourceDir, cacheDir }), true);
  assert.equal(one.sha256, two.sha256);
  const [cached, ...others] = await readdir(cacheDir);
  assert.ok(cached !== undefined && others.length === 0);
  assert.deepEqual(await readdir(join(cacheDir, cached)), ["agentworlds-helper"]);
  // A Go that does not exist proves that nothing is compiled again.
  const again = await loadHelper({ platform, sourceDir, cacheDir, go: "/no/such/go" }, signal);
  assert.equal(again.sha256, one.sha256);
  const { stdout } = await promisify(execFile)(join(cacheDir, cached, "agentworlds-helper"), ["version"]);
  assert.match(stdout, /^agentworlds-helper protocol 1\n$/);
});

test("without Go and without a binary one sentence says what to do", async () => {
  await using directory = await scratch();
  const options = { platform, cacheDir: directory.path, go: "/no/such/go" } as const;
  await assert.rejects(
    loadHelper(options, signal),
    (error) => error instanceof HelperUnavailable && /install Go or set helperPath/.test(error.message),
  );
});

test("sources that do not compile are an error with the compiler's words, and nothing is cached", async () => {
  await using directory = await scratch();
  const sourceDir = join(directory.path, "source");
  const cacheDir = join(directory.path, "cache");
  await cp(sources, sourceDir, { recursive: true });
  await writeFile(join(sourceDir, "broken.go"), "package main\nfunc broken( {\n");
  await assert.rejects(
    loadHelper({ platform, sourceDir, cacheDir }, signal),
    (error) => error instanceof HelperUnavailable && /broken\.go/.test(error.message),
  );
  const [hash = ""] = await readdir(cacheDir);
  assert.deepEqual(await readdir(join(cacheDir, hash)), []);
});
