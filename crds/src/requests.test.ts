import assert from "node:assert/strict";
import { test } from "node:test";
import { appendRequest } from "./requests.ts";
import type { SandboxRequest } from "./sandbox.ts";

const at = (second: number): string => new Date(Date.UTC(2031, 0, 1, 0, 0, second)).toISOString();
const open = (id: string, second = 0): SandboxRequest => ({ id, verb: "Snapshot", user: "ada", at: at(second) });
const answered = (id: string, second = 0): SandboxRequest => ({
  ...open(id, second),
  result: { outcome: "Succeeded", at: at(second) },
});
const ids = (requests: readonly SandboxRequest[]): string[] => requests.map((request) => request.id);

test("a new request goes last", () => {
  const appended = appendRequest([open("a")], open("b"));
  assert.deepEqual(appended.kind === "append" && ids(appended.requests), ["a", "b"]);
});

test("an id that is there already is a repetition and adds nothing", () => {
  const known = answered("a");
  assert.deepEqual(appendRequest([known], open("a", 9)), { kind: "known", request: known });
});

test("an id used for another verb is a conflict, never another verb's answer", () => {
  assert.equal(appendRequest([open("a")], { ...open("a"), verb: "Close" }).kind, "conflict");
});

test("an id used with other parameters is a conflict: the answer would be that of something else", () => {
  const close = (parameters?: SandboxRequest["parameters"]): SandboxRequest => ({
    ...open("a"),
    verb: "Close",
    ...(parameters === undefined ? {} : { parameters }),
  });
  const pairs: [known: SandboxRequest, wish: SandboxRequest, kind: string][] = [
    [close({ discard: "Snapshot" }), close({ discard: "Discard" }), "conflict"],
    [close({ discard: "Snapshot" }), close(), "conflict"],
    [close(), close({ description: "the end" }), "conflict"],
    [close({ description: "the end" }), close({ description: "the End" }), "conflict"],
    [close({ discard: "Discard", description: "x" }), close({ description: "x", discard: "Discard" }), "known"],
    [close({}), close(), "known"],
  ];
  for (const [known, wish, kind] of pairs) {
    assert.equal(appendRequest([known], wish).kind, kind, JSON.stringify([known.parameters, wish.parameters]));
    // Also when it is answered.
    const result = { outcome: "Succeeded", at: at(9) } as const;
    assert.equal(appendRequest([{ ...known, result }], wish).kind, kind);
  }
});

test("when all sixteen places are taken the oldest answered one makes room", () => {
  const requests = [open("first", 0), answered("later", 5), answered("earlier", 3), ...many(13)];
  const appended = appendRequest(requests, open("new", 9));
  assert.ok(appended.kind === "append");
  assert.equal(appended.requests.length, 16);
  assert.ok(!ids(appended.requests).includes("earlier"));
  assert.deepEqual(ids(appended.requests).slice(0, 2), ["first", "later"]);
  assert.equal(ids(appended.requests).at(-1), "new");
});

test("an unanswered request is never dropped: sixteen of them leave no room", () => {
  assert.deepEqual(appendRequest(many(16), open("new")), { kind: "full" });
});

function many(count: number): SandboxRequest[] {
  return Array.from({ length: count }, (_, index) => open(`open-${index}`, 1));
}
