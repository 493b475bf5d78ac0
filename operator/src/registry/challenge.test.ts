import assert from "node:assert/strict";
import { test } from "node:test";
import { parseChallenges } from "./challenge.ts";

type Plain = [scheme: string, parameters: Record<string, string>];

const cases: [name: string, headers: string[], want: Plain[]][] = [
  [
    "the bearer challenge of Docker Hub",
    ['Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"'],
    [
      [
        "bearer",
        { realm: "https://auth.docker.io/token", service: "registry.docker.io", scope: "repository:a/b:pull,push" },
      ],
    ],
  ],
  ["a basic challenge", ['Basic realm="agent-worlds"'], [["basic", { realm: "agent-worlds" }]]],
  ["a scheme alone", ["Negotiate"], [["negotiate", {}]]],
  [
    "names in any case, spaces anywhere",
    ['BEARER  Realm = "r" ,  SERVICE=s'],
    [["bearer", { realm: "r", service: "s" }]],
  ],
  ["a quoted quote and a comma in quotes", ['Bearer realm="a\\"b,c"'], [["bearer", { realm: 'a"b,c' }]]],
  [
    "a URL without quotes",
    ["Bearer realm=https://a.example/token,service=s"],
    [["bearer", { realm: "https://a.example/token", service: "s" }]],
  ],
  [
    "two challenges in one header",
    ['Basic realm="x", Bearer realm="y",service="z"'],
    [
      ["basic", { realm: "x" }],
      ["bearer", { realm: "y", service: "z" }],
    ],
  ],
  [
    "two headers",
    ['Basic realm="x"', 'Bearer realm="y"'],
    [
      ["basic", { realm: "x" }],
      ["bearer", { realm: "y" }],
    ],
  ],
  [
    "a scheme alone before another",
    ['Negotiate, Basic realm="x"'],
    [
      ["negotiate", {}],
      ["basic", { realm: "x" }],
    ],
  ],
  [
    "a token68 is read past",
    ['Negotiate YWJj==, Basic realm="x"'],
    [
      ["negotiate", {}],
      ["basic", { realm: "x" }],
    ],
  ],
  [
    "an unclosed quote ends the reading",
    ['Basic realm="x", Bearer realm="y'],
    [
      ["basic", { realm: "x" }],
      ["bearer", {}],
    ],
  ],
  ["parameters without a scheme are nothing", ['realm="x"'], []],
  ["an empty header", [""], []],
];

for (const [name, headers, want] of cases) {
  test(`challenge: ${name}`, () => {
    const got = parseChallenges(headers).map(({ scheme, parameters }) => [scheme, Object.fromEntries(parameters)]);
    assert.deepEqual(got, want);
  });
}

test("a long hostile header is read to its end", () => {
  assert.deepEqual(parseChallenges([`${'Bearer realm="'}${"\\".repeat(200_000)}`]).length, 1);
  assert.ok(parseChallenges([", ".repeat(50_000)]).length === 0);
});
