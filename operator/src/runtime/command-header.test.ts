import assert from "node:assert/strict";
import { test } from "node:test";
import { commandHeader } from "./command-header.ts";
import { isRuntimeError } from "./errors.ts";

const LIMIT = 4 << 20;
const PREFIX_BYTES = 5;
const bytesAround = commandHeader({ command: [""] }).length - PREFIX_BYTES;

test("a command and an environment of exactly the limit fit", () => {
  const header = commandHeader({ command: ["x".repeat(LIMIT - bytesAround)] });
  assert.equal(header.length, LIMIT + PREFIX_BYTES);
});

for (const [what, request] of [
  ["a command", { command: ["x".repeat(LIMIT - bytesAround + 1)] }],
  ["an environment", { command: ["true"], env: { A: "x".repeat(LIMIT) } }],
  ["a command that is larger as UTF-8 than as text", { command: ["é".repeat(LIMIT / 2)] }],
] as const)
  test(`${what} beyond the limit is refused by name, with both figures`, () => {
    assert.throws(
      () => commandHeader(request),
      (error) => isRuntimeError(error, "CommandTooLarge") && /\d{7} bytes as JSON; at most 4194304/.test(String(error)),
    );
  });
