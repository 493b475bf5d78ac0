import assert from "node:assert/strict";
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { kubectlSaid } from "./kubectl.ts";
import { ROOT } from "./operator.ts";

test("whoever starts kubectl takes its words from one place, where its cache is switched off", async () => {
  const others: string[] = [];
  for await (const path of glob("{hack,test,sdk}/**/*.ts", { cwd: ROOT, exclude: ["**/node_modules"] })) {
    if (path === "hack/parts/kubectl.ts") continue;
    const text = await readFile(join(ROOT, path), "utf8");
    if (/"kubectl",\s*(\[\s*)?"--kubeconfig"/.test(text)) others.push(path);
  }
  assert.deepEqual(others, []);
});

test("of a cluster that does not answer one sentence is told, not what discovery logs before it", () => {
  const noise =
    'E1201 17:00:00.123456   4242 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list"';
  const sentence = "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?";
  assert.equal(kubectlSaid(`${noise}\n${noise}\n${sentence}\n`), sentence);
});
