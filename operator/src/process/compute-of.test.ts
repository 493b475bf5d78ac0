import assert from "node:assert/strict";
import { test } from "node:test";
import type { ComputeSearch } from "../runtime/search.ts";
import { createComputeOf } from "./compute-of.ts";

const where = { runtime: "local", host: "a", engine: "engine-1" } as const;
const owner = { installation: "install", namespace: "team", sandbox: "one", sandboxUid: "sandbox-uid", boot: 1 };
const container = { ...where, what: { id: "aw-sandbox-uid-1", owner, state: "Exited" } } as const;
const capture = {
  ...where,
  what: { localName: "agentworlds/capture:publish-1", operation: "publish-1", owner, createdAt: 0 },
};

type Answers = {
  readonly [kind in "containers" | "captures"]?: Partial<Awaited<ReturnType<ComputeSearch[kind]>>>;
};

const cases: [name: string, answers: Answers, want: string][] = [
  ["every host was asked and none has any", {}, "none"],
  ["one of them has a container", { containers: { found: [container] } }, "some"],
  ["one of them has a capture", { captures: { found: [capture] } }, "some"],
  ["a host that is silent about containers proves nothing", { containers: { silent: ["local/b"] } }, "unknown"],
  ["a host that is silent about captures proves nothing", { captures: { silent: ["local/b"] } }, "unknown"],
  [
    "what is found outweighs what is silent",
    { containers: { found: [container], silent: ["local/b: no answer"] } },
    "some",
  ],
];
const { signal } = new AbortController();
const nothing = { found: [], silent: [] };
const searchOf = ({ containers, captures }: Answers): ComputeSearch => ({
  containers: async () => ({ ...nothing, ...containers }),
  captures: async () => ({ ...nothing, ...captures }),
});
for (const [name, answers, want] of cases) {
  test(name, async () => {
    assert.equal(await createComputeOf(searchOf(answers))({ sandboxUid: "sandbox-uid" }, signal), want);
  });
}

test("a capture of an operation that is settled is nothing but a copy", async () => {
  const computeOf = createComputeOf(searchOf({ captures: { found: [capture] } }));
  assert.equal(await computeOf({ sandboxUid: "sandbox-uid", settled: new Set(["publish-1"]) }, signal), "none");
});
