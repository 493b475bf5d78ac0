import assert from "node:assert/strict";
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
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
