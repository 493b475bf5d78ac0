import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { scriptedEngine } from "./scripted-engine.test-kit.ts";

test("what a killed test left in the temporary folder goes with the next one", async () => {
  const kit = JSON.stringify(join(import.meta.dirname, "scripted-engine.test-kit.ts"));
  const script = `import { scriptedEngine } from ${kit}; console.log((await scriptedEngine(() => {})).path);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [left] = await once(createInterface(child.stdout), "line");
  // Once its process is dead, any test that runs beside this one may be the next.
  assert.ok(existsSync(left));
  child.kill("SIGKILL");
  await once(child, "exit");
  {
    await using engine = await scriptedEngine(() => undefined);
    assert.ok(existsSync(engine.path));
    assert.ok(!existsSync(left));
  }
});
