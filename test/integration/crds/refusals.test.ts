/** What the API server refuses, and in which words. The process's own schemas refuse the same. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { newRuntimeSchema, newSandboxSchema, newWorldSchema } from "@agentworlds/crds";
import { useCluster } from "../../kit/index.ts";
import { Api, createNamespace, installKinds, type Json, manifest, pathOf } from "./api.ts";
import { bad, changes, good, type Kind, minimal } from "./specimens.ts";

const cluster = await useCluster({ kinds: true });
const api = await Api.open(cluster.kubeconfigPath);
await installKinds(cluster, api);
const namespace = await createNamespace(api, "refusals");
after(async () => {
  await api.send("DELETE", `/api/v1/namespaces/${namespace}`);
  await api[Symbol.asyncDispose]();
  await cluster[Symbol.asyncDispose]();
});

const SCHEMAS = { World: newWorldSchema, Sandbox: newSandboxSchema, Runtime: newRuntimeSchema };

const dryRun = (kind: Kind, object: Json) =>
  api.send("POST", `${pathOf(kind, { namespace })}?dryRun=All&fieldValidation=Strict`, object);

for (const [promise, kind, spec] of good) {
  test(`accepted: ${promise}`, async () => {
    const object = manifest(kind, "good", spec);
    const answer = await dryRun(kind, object);
    assert.equal(answer.status, 201, answer.message);
    assert.equal(SCHEMAS[kind].safeParse(object).error, undefined);
  });
}

/** Known to the API server only: pruning is its business, so `parse` drops unknown fields; and a list's keys are. */
const SERVER_ONLY = new Set(["a field that does not exist yet", "a variable named twice", "two hosts of one name"]);

for (const [what, kind, spec, sentence] of bad) {
  test(`refused: ${what}`, async () => {
    const object = manifest(kind, "bad", spec);
    const answer = await dryRun(kind, object);
    assert.match(String(answer.status), /^(400|422)$/, answer.message);
    assert.match(answer.message, sentence);
    assert.equal(SCHEMAS[kind].safeParse(object).success, SERVER_ONLY.has(what));
  });
}

for (const kind of ["World", "Sandbox", "Runtime"] as const) {
  const spec = minimal[kind];
  test(`refused: a ${kind} whose name has 64 characters`, async () => {
    const answer = await dryRun(kind, manifest(kind, "n".repeat(64), spec));
    assert.equal(answer.status, 422);
    assert.match(answer.message, new RegExp(`the name of a ${kind} must have at most 63 characters`));
  });

  test(`refused: a ${kind} whose name has 300 characters`, async () => {
    const answer = await dryRun(kind, manifest(kind, "n".repeat(300), spec));
    assert.equal(answer.status, 422);
    assert.match(answer.message, /metadata\.name: .*(253|63) (bytes|characters)/);
  });
}

for (const [index, [what, kind, spec, change, sentence]] of changes.entries()) {
  test(`${sentence === undefined ? "may change" : "may not change"}: ${what}`, async () => {
    const name = `changes-${index}`;
    const created = await api.send("POST", pathOf(kind, { namespace }), manifest(kind, name, spec));
    assert.equal(created.status, 201, created.message);
    const answer = await api.patch(pathOf(kind, { namespace, name }), { spec: change });
    if (sentence === undefined) {
      assert.equal(answer.status, 200, answer.message);
    } else {
      assert.equal(answer.status, 422);
      assert.match(answer.message, sentence);
    }
  });
}
