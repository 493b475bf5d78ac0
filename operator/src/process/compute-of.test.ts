import assert from "node:assert/strict";
import { test } from "node:test";
import type { ComputeSearch } from "../runtime/search.ts";
import { createComputeOf } from "./compute-of.ts";

const container = {
  runtime: "local",
  host: "a",
  engine: "engine-1",
  what: {
    id: "aw-sandbox-uid-1",
    owner: { installation: "install", namespace: "team", sandbox: "one", sandboxUid: "sandbox-uid", boot: 1 },
    state: "Exited",
  },
} as const;

const cases: [name: string, found: Awaited<ReturnType<ComputeSearch["containers"]>>, want: string][] = [
  ["every host was asked and none has any", { found: [], silent: [] }, "none"],
  ["one of them has one", { found: [container], silent: [] }, "some"],
  ["a silent host proves nothing", { found: [], silent: ["local/b: no answer"] }, "unknown"],
  ["what is found outweighs what is silent", { found: [container], silent: ["local/b: no answer"] }, "some"],
];
for (const [name, found, want] of cases) {
  test(name, async () => {
    const computeOf = createComputeOf({ containers: async () => found });
    assert.equal(await computeOf("sandbox-uid", new AbortController().signal), want);
  });
}
