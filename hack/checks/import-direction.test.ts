import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { findViolations, judgeImport, violationsOf } from "./import-direction.ts";

const cases: [name: string, file: string, specifier: string, allowed: boolean][] = [
  ["a controller may use the registry client", "operator/src/world/genesis.ts", "../registry/contract.ts", true],
  ["the registry client may not use a controller", "operator/src/registry/client.ts", "../world/scope.ts", false],
  ["the snapshot may not use a controller", "operator/src/snapshot/publish.ts", "../sandbox/scope.ts", false],
  ["the registry client knows no runtime", "operator/src/registry/sources.ts", "../runtime/contract.ts", false],
  ["the registry client may use the transport", "operator/src/registry/x.ts", "../kube/errors.ts", true],
  ["what is measured is said through an interface", "operator/src/world/upkeep.ts", "../telemetry/metrics.ts", false],
  ["the reconciler knows no domain", "operator/src/reconciler/store.ts", "../runtime/contract.ts", false],
  ["the reconciler knows no transport", "operator/src/reconciler/store.ts", "../kube/client.ts", false],
  ["a World knows no Sandbox controller", "operator/src/world/upkeep.ts", "../sandbox/judge.ts", false],
  ["the gateway uses no controller", "operator/src/gateway/exec.ts", "../sandbox/judge.ts", false],
  ["only kube/ uses the Kubernetes client", "operator/src/world/scope.ts", "@kubernetes/client-node", false],
  ["kube/ uses the Kubernetes client", "operator/src/kube/connection.ts", "@kubernetes/client-node", true],
  ["the SDK knows no operator", "sdk/src/client.ts", "../../operator/src/config.ts", false],
  ["the composition uses everything", "operator/src/process/run.ts", "../gateway/server.ts", true],
  ["the product imports nothing that is for tests", "operator/src/world/scope.ts", "./fake.test-kit.ts", false],
  ["a test kit may use another one", "operator/src/kube/fake.test-kit.ts", "../world/x.test-kit.ts", true],
  ["a folder nobody decided about is refused", "operator/src/helpers/x.ts", "../world/scope.ts", false],
];
for (const [name, file, specifier, allowed] of cases) {
  test(name, () => assert.equal(judgeImport(file, specifier) === undefined, allowed));
}

test("a violation names file and line, also for exports and dynamic imports", () => {
  const text = 'const a = 1;\nexport { b } from "../world/scope.ts";\nawait import("../sandbox/judge.ts");\n';
  const found = violationsOf("operator/src/runtime/status.ts", text);
  assert.deepEqual(
    found.map(({ line }) => line),
    [2, 3],
  );
});

test("this repository keeps the direction", () => {
  assert.deepEqual(findViolations(join(import.meta.dirname, "..", "..")), []);
});
