import assert from "node:assert/strict";
import { test } from "node:test";
import type { NamespaceSelector, Runtime } from "@agentworlds/crds";
import fc from "fast-check";
import { isNamespaceAllowed, judgeRecorded, selectHost, selectRuntime } from "./selection.ts";
import { at, runtimeOf } from "./test-objects.test-kit.ts";

const named = (name: string, parts: Parameters<typeof runtimeOf>[0] = {}): Runtime =>
  runtimeOf({ ...parts, metadata: { name, ...parts.metadata } });
const byDefault = { selection: "Default" } as const;
const deleted = { deletionTimestamp: at(1) };
const teamOnly = { namespaces: { matchLabels: { team: "red" } } };

const wishFor = (name: string | undefined) => ({ name, namespace: "team", namespaceLabels: { team: "blue" } });
const cases: [name: string, runtimes: Runtime[], wish: string | undefined, want: string, names: RegExp][] = [
  ["the one named", [named("a"), named("b")], "b", "b", /./],
  ["the one named, although another is the default", [named("a", { spec: byDefault }), named("b")], "b", "b", /./],
  ["the one default where none is named", [named("a"), named("b", { spec: byDefault })], undefined, "b", /./],
  [
    "none: a name that does not exist is never replaced by the default",
    [named("a", { spec: byDefault })],
    "b",
    "RuntimeNotFound",
    /Runtime b does not exist/,
  ],
  ["none: no default", [named("a")], undefined, "NoDefaultRuntime", /selection: Default/],
  ["none: no Runtime at all", [], undefined, "NoDefaultRuntime", /selection: Default/],
  [
    "none: two defaults fail closed, and both are named",
    [named("a", { spec: byDefault }), named("b", { spec: byDefault })],
    undefined,
    "SeveralDefaultRuntimes",
    /a, b/,
  ],
  [
    "the other default while one is being deleted",
    [named("a", { spec: byDefault, metadata: deleted }), named("b", { spec: byDefault })],
    undefined,
    "b",
    /./,
  ],
  [
    "none: the one named is being deleted",
    [named("a", { metadata: deleted }), named("b", { spec: byDefault })],
    "a",
    "RuntimeDeleting",
    /being deleted/,
  ],
  [
    "none: it is not for this namespace",
    [named("a", { spec: teamOnly }), named("b", { spec: byDefault })],
    "a",
    "RuntimeNotAllowed",
    /from namespace team/,
  ],
  [
    "the default for its namespace, where another default is for others",
    [named("a", { spec: byDefault }), named("b", { spec: { ...byDefault, ...teamOnly } })],
    undefined,
    "a",
    /./,
  ],
  [
    "none: the default is not for this namespace",
    [named("a", { spec: { ...byDefault, ...teamOnly } })],
    undefined,
    "NoDefaultRuntime",
    /for this namespace/,
  ],
];
for (const [name, runtimes, wish, want, names] of cases) {
  const recorded: [name: string, runtime: Runtime, wish: string | undefined, want: string][] = [
    ["the one that is asked for", named("a"), "a", "found"],
    ["a default where none is named", named("a", { spec: byDefault }), undefined, "found"],
    ["not another one than is named", named("a", { spec: byDefault }), "b", "RuntimeChanged"],
    ["not one that is no default where none is named", named("a"), undefined, "RuntimeChanged"],
    ["not one that is not for this namespace", named("a", { spec: teamOnly }), "a", "RuntimeNotAllowed"],
    ["not one that is being deleted", named("a", { metadata: deleted }), "a", "RuntimeDeleting"],
  ];
  for (const [name, runtime, wish, want] of recorded) {
    test(`a recorded boot may go on on: ${name}`, () => {
      const verdict = judgeRecorded(runtime, wishFor(wish));
      assert.equal(verdict.kind === "missing" ? verdict.reason : verdict.kind, want);
    });
  }

  test(`a session gets ${name}`, () => {
    const verdict = selectRuntime(runtimes, wishFor(wish));
    if (verdict.kind === "found") assert.equal(verdict.runtime.metadata.name, want);
    else {
      assert.equal(verdict.reason, want);
      assert.match(verdict.message, names);
      assert.ok(verdict.remediation.length > 0);
    }
  });
}

const labels = { team: "red", tier: "prod" };
const selectors: [name: string, selector: NamespaceSelector | undefined, allowed: boolean][] = [
  ["no selector allows every namespace", undefined, true],
  ["an empty selector allows every namespace", {}, true],
  ["a label that matches", { matchLabels: { team: "red" } }, true],
  ["a label of another value", { matchLabels: { team: "blue" } }, false],
  ["a label that is missing", { matchLabels: { zone: "a" } }, false],
  ["every label must match", { matchLabels: { team: "red", tier: "test" } }, false],
  ["In", { matchExpressions: [{ key: "team", operator: "In", values: ["blue", "red"] }] }, true],
  ["In without the label", { matchExpressions: [{ key: "zone", operator: "In", values: ["a"] }] }, false],
  ["NotIn", { matchExpressions: [{ key: "team", operator: "NotIn", values: ["red"] }] }, false],
  ["NotIn without the label", { matchExpressions: [{ key: "zone", operator: "NotIn", values: ["a"] }] }, true],
  ["Exists", { matchExpressions: [{ key: "team", operator: "Exists" }] }, true],
  ["DoesNotExist", { matchExpressions: [{ key: "team", operator: "DoesNotExist" }] }, false],
  [
    "labels and expressions must both hold",
    { matchLabels: { team: "red" }, matchExpressions: [{ key: "tier", operator: "In", values: ["test"] }] },
    false,
  ],
];
for (const [name, selector, allowed] of selectors) {
  test(`who may use a Runtime: ${name}`, () => {
    const runtime = runtimeOf(selector === undefined ? {} : { spec: { namespaces: selector } });
    assert.equal(isNamespaceAllowed(runtime, labels), allowed);
  });
}

const hosts = (...names: string[]) => names.map((name) => ({ name, endpoint: `unix:///run/${name}.sock` }));
const seen = (name: string, state: "Reachable" | "Unreachable" = "Reachable") => ({ name, state, used: 0 });
const onThree = (...found: ReturnType<typeof seen>[]): Runtime =>
  runtimeOf({ spec: { docker: { hosts: hosts("a", "b", "c") } }, status: { hosts: found } });

test("a session goes to the reachable host with the fewest, the name decides a tie", () => {
  const runtime = onThree(seen("c"), seen("b"), seen("a", "Unreachable"));
  assert.equal(
    selectHost(
      runtime,
      new Map([
        ["a", 0],
        ["b", 2],
        ["c", 1],
      ]),
    ),
    "c",
  );
  assert.equal(selectHost(runtime, new Map()), "b");
});

test("a host that left the spec, or never answered, gets no session", () => {
  assert.equal(selectHost(onThree(seen("gone")), new Map()), undefined);
  assert.equal(selectHost(onThree(), new Map()), undefined);
  assert.equal(selectHost(runtimeOf(), new Map()), undefined);
});

test("whatever the load and the order of hosts, the choice is a reachable one with the least, and repeats itself", () => {
  const arbitrary = fc.record({
    found: fc.shuffledSubarray(["a", "b", "c"]),
    loads: fc.array(fc.nat(5), { minLength: 3, maxLength: 3 }),
  });
  fc.assert(
    fc.property(arbitrary, ({ found, loads }) => {
      const load = new Map(["a", "b", "c"].map((name, index): [string, number] => [name, loads[index] ?? 0]));
      const chosen = selectHost(onThree(...found.map((name) => seen(name))), load);
      if (found.length === 0) return assert.equal(chosen, undefined);
      assert.ok(chosen !== undefined && found.includes(chosen));
      assert.equal(load.get(chosen), Math.min(...found.map((name) => load.get(name) ?? 0)));
      assert.equal(selectHost(onThree(...found.toReversed().map((name) => seen(name))), load), chosen);
    }),
  );
});
