import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { reviewAnswer, reviewSchema, stampPatch } from "./admission-review.ts";

const CREATED_BY = "agentworlds.dev/created-by";
const ALICE = '{"user":"alice"}';

/** A review as kube-apiserver sends it, shortened. */
const review = (metadata: object, request: object = {}): unknown => ({
  apiVersion: "admission.k8s.io/v1",
  kind: "AdmissionReview",
  request: {
    uid: "705ab4f5-6393-11e8-b7cc-42010a800002",
    kind: { group: "agentworlds.dev", version: "v1alpha1", kind: "World" },
    resource: { group: "agentworlds.dev", version: "v1alpha1", resource: "worlds" },
    name: "w",
    namespace: "lab",
    operation: "CREATE",
    userInfo: { username: "alice", groups: ["system:authenticated"] },
    object: { apiVersion: "agentworlds.dev/v1alpha1", kind: "World", metadata, spec: {} },
    oldObject: null,
    dryRun: false,
    options: { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1" },
    ...request,
  },
});

const requestOf = (metadata: object, request: object = {}) => reviewSchema.parse(review(metadata, request)).request;

describe("the patch", () => {
  const whole = [{ op: "add", path: "/metadata/annotations", value: { [CREATED_BY]: ALICE } }];
  const one = [{ op: "add", path: "/metadata/annotations/agentworlds.dev~1created-by", value: ALICE }];
  for (const [what, metadata, patch] of [
    ["an object without annotations gets them", { name: "w" }, whole],
    ["annotations of null count as none", { name: "w", annotations: null }, whole],
    ["the stamp joins other annotations", { name: "w", annotations: { other: "kept" } }, one],
    ["it joins annotations that are there and empty", { name: "w", annotations: {} }, one],
    ["it overwrites a forged stamp", { name: "w", annotations: { [CREATED_BY]: '{"user":"bob"}' } }, one],
    ["it overwrites a stamp that is no text", { name: "w", annotations: { [CREATED_BY]: { user: "bob" } } }, one],
    ["nothing is patched where the stamp is true", { name: "w", annotations: { [CREATED_BY]: ALICE } }, []],
    ["a true stamp in other words is no true stamp", { annotations: { [CREATED_BY]: '{ "user": "alice" }' } }, one],
  ] as const) {
    test(what, () => assert.deepEqual(stampPatch(requestOf(metadata)), patch));
  }

  test("the user is the one whom the API server authenticated, the agent the one whom the spec states", () => {
    const request = requestOf(
      { name: "s" },
      {
        resource: { group: "agentworlds.dev", version: "v1alpha1", resource: "sandboxes" },
        userInfo: { username: "system:serviceaccount:ci:runner" },
        object: { metadata: { name: "s" }, spec: { agent: { id: "claude", conversation: "c-1" } } },
      },
    );
    const stamp = '{"user":"system:serviceaccount:ci:runner","agent":"claude","conversation":"c-1"}';
    assert.deepEqual(stampPatch(request), [
      { op: "add", path: "/metadata/annotations", value: { [CREATED_BY]: stamp } },
    ]);
  });
});

test("the answer carries the request's uid, allows, and holds the patch in base64", () => {
  const request = requestOf({ name: "w" });
  assert.deepEqual(reviewAnswer(request), {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: {
      uid: request.uid,
      allowed: true,
      patchType: "JSONPatch",
      patch: Buffer.from(JSON.stringify(stampPatch(request))).toString("base64"),
    },
  });
});

test("where there is nothing to patch the answer names no patch: an empty one would be a failed call", () => {
  assert.deepEqual(reviewAnswer(requestOf({ annotations: { [CREATED_BY]: ALICE } })), {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: "705ab4f5-6393-11e8-b7cc-42010a800002", allowed: true },
  });
});

describe("what is no review of a creation is refused", () => {
  for (const [what, request] of [
    ["an update", { operation: "UPDATE" }],
    ["a deletion, which has no object", { operation: "DELETE", object: null }],
    ["another resource", { resource: { group: "agentworlds.dev", version: "v1alpha1", resource: "runtimes" } }],
    ["another group", { resource: { group: "apps", version: "v1", resource: "worlds" } }],
    ["a nameless user", { userInfo: { username: "" } }],
    ["no user", { userInfo: undefined }],
    ["no uid", { uid: "" }],
    ["annotations that are a list", { object: { metadata: { annotations: ["x"] } } }],
  ] as const) {
    test(what, () => assert.equal(reviewSchema.safeParse(review({ name: "w" }, request)).success, false));
  }

  test("an older version of the review", () => {
    const older = { ...(review({ name: "w" }) as object), apiVersion: "admission.k8s.io/v1beta1" };
    assert.equal(reviewSchema.safeParse(older).success, false);
  });
});
