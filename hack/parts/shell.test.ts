import assert from "node:assert/strict";
import { test } from "node:test";
import { run } from "./process.ts";
import { exportLines } from "./shell.ts";

test("what is printed is what a shell has after evaluating it, whatever the values hold", async () => {
  const variables = { A: "/tmp/it's here/$HOME `x`", B: "unix:///run/a b.sock", C: "" };
  const script = 'eval "$LINES_GIVEN"; printf "%s|%s|%s" "$A" "$B" "$C"';
  const env = { ...process.env, LINES_GIVEN: exportLines(variables) };
  const printed = await run(["sh", "-c", script], { env, signal: AbortSignal.timeout(10_000) });
  assert.equal(printed, Object.values(variables).join("|"));
});
