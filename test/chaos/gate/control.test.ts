import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CALM, ControlFiles, coverageOf } from "./control.ts";

test("a point at which nobody has died is uncovered; one is covered on its own side only", () => {
  const trace = [
    { name: "a", moment: "before" },
    { name: "a", moment: "after" },
    { name: "a", moment: "before" },
    { name: "b", moment: "before" },
  ] as const;
  assert.deepEqual(coverageOf(trace, [{ name: "a", moment: "before" }]), {
    covered: ["before a"],
    uncovered: ["after a", "before b"],
  });
});

test("what was passed survives its writer, half a line does not count", () => {
  const directory = mkdtempSync(join(tmpdir(), "chaos-control-"));
  try {
    const files = new ControlFiles(directory);
    assert.deepEqual(files.trace(), []);
    files.write({ ...CALM, clockOffsetMs: 5 });
    assert.equal(files.read().clockOffsetMs, 5);
    files.passed({ name: "a", moment: "before", at: 1, pid: 2 });
    assert.deepEqual(new ControlFiles(directory).trace(), [{ name: "a", moment: "before", at: 1, pid: 2 }]);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
