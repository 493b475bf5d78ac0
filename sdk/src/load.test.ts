import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

/** Prints the URL of every module that is resolved. */
const probe = `
import { registerHooks } from "node:module";
registerHooks({ resolve(specifier, context, next) {
  const found = next(specifier, context);
  process.stdout.write(found.url + "\\n");
  return found;
} });`;

async function modulesOf(code: string): Promise<string[]> {
  const preload = `data:text/javascript,${encodeURIComponent(probe)}`;
  const { stdout } = await promisify(execFile)(process.execPath, [
    "--import",
    preload,
    "--input-type=module",
    "-e",
    code,
  ]);
  return stdout.split("\n");
}

const index = new URL("./index.ts", import.meta.url).href;

test("loading the SDK loads no schema library, no Kubernetes client, no HTTP client and no YAML parser", async () => {
  const modules = await modulesOf(`await import(${JSON.stringify(index)});`);
  assert.ok(
    modules.some((url) => url.endsWith("/sdk/src/session.ts")),
    "the probe sees what is loaded",
  );
  const heavy = modules.filter((url) => /\/node_modules\/|\/crds\/|\/operator\//.test(url));
  assert.deepEqual(heavy, []);
});

test("making a client loads none of them either", async () => {
  const modules = await modulesOf(`const { AgentWorlds } = await import(${JSON.stringify(index)}); new AgentWorlds();`);
  assert.deepEqual(
    modules.filter((url) => url.includes("/node_modules/")),
    [],
  );
});

test("a call loads neither schema library nor Kubernetes client", async () => {
  const call = `await new AgentWorlds({ server: "https://127.0.0.1:1", token: "t" }).worlds.list({ timeoutMs: 20 }).catch((e) => e);`;
  const modules = await modulesOf(`const { AgentWorlds } = await import(${JSON.stringify(index)}); ${call}`);
  assert.ok(
    modules.some((url) => url.includes("/node_modules/undici/")),
    "the call reached the HTTP client",
  );
  assert.deepEqual(
    modules.filter((url) => /\/node_modules\/(zod|@kubernetes)\/|\/crds\//.test(url)),
    [],
  );
});
