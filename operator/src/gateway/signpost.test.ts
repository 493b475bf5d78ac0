import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { apiService, externalService } from "./apiservice.ts";
import { covers } from "./signpost.ts";
import { stampWebhook } from "./stamp-webhook.ts";

describe("what stands is as wanted when everything wanted is there", () => {
  for (const [what, present, wanted, answer] of [
    ["the same", { a: { b: 1 } }, { a: { b: 1 } }, true],
    ["fields that the API server added", { a: { b: 1, c: 2 }, status: {} }, { a: { b: 1 } }, true],
    ["another value", { a: 1 }, { a: 2 }, false],
    ["a field that is missing", { a: {} }, { a: { b: 1 } }, false],
    ["nothing at all", undefined, { a: 1 }, false],
    ["a list of the same", { a: [{ b: 1, c: 2 }] }, { a: [{ b: 1 }] }, true],
    ["a list with one more", { a: [1, 2] }, { a: [1] }, false],
    ["a list in another order", { a: [2, 1] }, { a: [1, 2] }, false],
    ["an object where a list is wanted", { a: { 0: 1 } }, { a: [1] }, false],
    ["a list where an object is wanted", { a: [1] }, { a: {} }, false],
    ["null where an object is wanted", { a: null }, { a: {} }, false],
  ] as const) {
    test(`${what}: ${answer ? "yes" : "no"}`, () => assert.equal(covers(present, wanted), answer));
  }
});

const way = { port: 8443, caBundle: "PEM\n", namespaceUid: "uid" };
const SYSTEM = "agent-worlds-system";

for (const [signpost, port] of [
  [apiService(SYSTEM), 8443],
  [stampWebhook(SYSTEM), 8443],
  [externalService(SYSTEM, "localhost"), undefined],
] as const) {
  test(`${signpost.what}: what is written is found as wanted, at the port it leads to`, () => {
    const written = signpost.wanted(way);
    const metadata = { ...signpost.ref, uid: "u", resourceVersion: "1" };
    assert.ok(covers({ ...structuredClone(written), status: {} }, written));
    assert.equal(signpost.portOf({ ...written, metadata }), port);
    assert.equal(signpost.portOf({ metadata }), undefined);
  });

  test(`${signpost.what}: what leads elsewhere is put right`, () => {
    const elsewhere = signpost.wanted({ port: 1, caBundle: "other", namespaceUid: "other" });
    assert.equal(covers(elsewhere, signpost.wanted(way)), port === undefined);
  });
}

test("the webhook is asked for creations alone, refuses when nobody answers, and goes with the installation", () => {
  assert.deepEqual(stampWebhook(SYSTEM).wanted(way), {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "MutatingWebhookConfiguration",
    metadata: {
      name: "created-by.agentworlds.dev",
      labels: { "app.kubernetes.io/managed-by": "agent-worlds" },
      ownerReferences: [{ apiVersion: "v1", kind: "Namespace", name: SYSTEM, uid: "uid" }],
    },
    webhooks: [
      {
        name: "created-by.agentworlds.dev",
        admissionReviewVersions: ["v1"],
        clientConfig: {
          caBundle: "UEVNCg==",
          service: { namespace: SYSTEM, name: "agent-worlds-gateway", port: 8443, path: "/admission/created-by" },
        },
        rules: [
          {
            apiGroups: ["agentworlds.dev"],
            apiVersions: ["v1alpha1"],
            operations: ["CREATE"],
            resources: ["worlds", "sandboxes"],
            scope: "Namespaced",
          },
        ],
        matchPolicy: "Equivalent",
        failurePolicy: "Fail",
        sideEffects: "None",
        timeoutSeconds: 5,
        reinvocationPolicy: "IfNeeded",
      },
    ],
  });
});
