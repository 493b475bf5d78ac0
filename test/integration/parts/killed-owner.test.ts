import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { partDirectory } from "../../../hack/parts/directory.ts";
import { eventuallyHolds, whyNoOwnEngine } from "../../kit/index.ts";
import { engineState, leftoversOf, nothing, nothingOutside, outsideEngine } from "./leftovers.ts";

/** Starts a process that owns a part; returns it when the part is up, with the part's folder. */
async function owner(part: string): Promise<{ kill(): void; directory: string; gone: Promise<unknown> }> {
  const script = fileURLToPath(new URL("./owner.ts", import.meta.url));
  const child = spawn(process.execPath, [script, part], { stdio: ["ignore", "pipe", "inherit"] });
  const gone = once(child, "exit");
  const [directory] = await once(createInterface({ input: child.stdout }), "line");
  return { directory: String(directory), kill: () => void child.kill("SIGKILL"), gone };
}

test("an engine whose owner is killed by SIGKILL cleans up after itself", { skip: whyNoOwnEngine() }, async () => {
  const { directory, kill, gone } = await owner("engine");
  const state = await engineState(directory);
  kill();
  await gone;
  await eventuallyHolds(async () => assert.deepEqual(await leftoversOf(directory), nothing));
  assert.deepEqual(await outsideEngine(state, AbortSignal.timeout(20_000)), nothingOutside);
});

for (const part of ["control-plane", "registry"]) {
  test(`a ${part} dies with its owner, and the next start of one removes its folder`, async () => {
    const { directory, kill, gone } = await owner(part);
    kill();
    await gone;
    await eventuallyHolds(async () => assert.deepEqual((await leftoversOf(directory)).processes, []));
    // Every start of a part begins with a folder of its kind. A test beside this one may have been that start already.
    await using _ = await partDirectory({ kind: part });
    assert.deepEqual(await leftoversOf(directory), nothing);
  });
}
