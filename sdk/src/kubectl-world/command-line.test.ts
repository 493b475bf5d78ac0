import assert from "node:assert/strict";
import { test } from "node:test";
import { type Command, readCommandLine } from "./command-line.ts";

const understood: [args: string, command: Command][] = [
  ["rescue list lab", { kind: "list", world: "lab" }],
  ["rescue retry lab", { kind: "retry", world: "lab", operation: undefined }],
  ["rescue retry lab op-1 -n team", { kind: "retry", world: "lab", operation: "op-1" }],
  ["rescue export lab op-1", { kind: "export", world: "lab", operation: "op-1", tar: undefined }],
  ["rescue export lab --tar work.tar", { kind: "export", world: "lab", operation: undefined, tar: "work.tar" }],
  ["rescue export lab op-1 --tar -", { kind: "export", world: "lab", operation: "op-1", tar: "-" }],
  ["rescue discard lab op-1", { kind: "discard", world: "lab", operation: "op-1" }],
  ["", { kind: "help" }],
  ["rescue list lab --help", { kind: "help" }],
];
for (const [args, command] of understood) {
  test(`kubectl world ${args}`, () => {
    assert.deepEqual(readCommandLine(args.split(" ").filter((arg) => arg !== "")).command, command);
  });
}

const refused: [args: string, problem: RegExp][] = [
  ["rescue discard lab", /never guessed/],
  ["rescue", /needs a verb/],
  ["rescue retry", /name of a World/],
  ["rescue list lab op-1", /World only/],
  ["rescue undo lab", /unknown: rescue undo/],
  ["pin lab", /unknown: pin/],
  ["rescue list lab --tar x", /belongs to export/],
  ["rescue retry lab op-1 more", /more than is understood: more/],
  ["rescue list lab -o yaml", /text or json/],
  ["rescue list lab --timeout soon", /number of seconds/],
  ["rescue list lab --force", /--force/],
];
for (const [args, problem] of refused) {
  test(`kubectl world ${args} is explained, not guessed`, () => {
    const { command } = readCommandLine(args.split(" "));
    assert.ok(command.kind === "help" && command.problem !== undefined);
    assert.match(command.problem, problem);
  });
}

test("namespace, kubeconfig, context and timeout go where they belong", () => {
  const args = ["rescue", "list", "lab", "-n", "team", "--kubeconfig", "/k", "--context", "c", "--timeout", "5"];
  const { access, timeoutMs, output } = readCommandLine([...args, "-o", "json"]);
  assert.deepEqual(access, { namespace: "team", kubeconfig: "/k", context: "c" });
  assert.deepEqual([timeoutMs, output], [5_000, "json"]);
});
