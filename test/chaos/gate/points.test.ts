import assert from "node:assert/strict";
import { test } from "node:test";
import { effectOf } from "./points.ts";

const SANDBOX = "/apis/agentworlds.dev/v1alpha1/namespaces/team/sandboxes/one";
const WORLD = "/apis/agentworlds.dev/v1alpha1/namespaces/team/worlds/hello";

const cases: [name: string, method: string, target: string, body: unknown, want: string | undefined][] = [
  ["a read is none", "GET", `${SANDBOX}?x=1`, undefined, undefined],
  [
    "a stage has its name",
    "PATCH",
    `${SANDBOX}/status`,
    { status: { operation: { stage: "Frozen" }, phase: "X" } },
    "kube PATCH sandboxes/status operation:Frozen",
  ],
  [
    "a change of members has the first one's",
    "PATCH",
    `${SANDBOX}/status`,
    { status: { operation: { lastError: "e", attempts: 2 } } },
    "kube PATCH sandboxes/status operation:attempts",
  ],
  [
    "what rides along has none",
    "PATCH",
    `${SANDBOX}/status`,
    { status: { compute: { id: "c", boot: 1 }, boot: 1, base: {} } },
    "kube PATCH sandboxes/status compute",
  ],
  [
    "the end of a boot",
    "PATCH",
    `${SANDBOX}/status`,
    { status: { compute: null, operation: null, lastEnding: {} } },
    "kube PATCH sandboxes/status -compute -operation",
  ],
  [
    "a summary",
    "PATCH",
    `${SANDBOX}/status`,
    { metadata: { resourceVersion: "1" }, status: { conditions: [] } },
    "kube PATCH sandboxes/status summary",
  ],
  [
    "an answer alone",
    "PATCH",
    `${SANDBOX}/status`,
    { status: { requests: [] } },
    "kube PATCH sandboxes/status requests",
  ],
  [
    "a field that nobody here has heard of",
    "PATCH",
    `${SANDBOX}/status`,
    { status: { novelty: 1 } },
    "kube PATCH sandboxes/status novelty",
  ],
  [
    "a commit",
    "PATCH",
    `${WORLD}/status`,
    { status: { pending: null, head: { version: 1 }, versions: [] } },
    "kube PATCH worlds/status -pending head:version versions",
  ],
  [
    "a reservation",
    "PATCH",
    `${WORLD}/status`,
    { status: { pending: { operation: "o" }, nextVersion: 2 } },
    "kube PATCH worlds/status nextVersion pending",
  ],
  ["finalizers come", "PATCH", SANDBOX, { metadata: { finalizers: ["a"] } }, "kube PATCH sandboxes finalizers"],
  ["finalizers go", "PATCH", SANDBOX, { metadata: { finalizers: [] } }, "kube PATCH sandboxes -finalizers"],
  ["an object is made", "POST", "/api/v1/namespaces/x/secrets?fieldManager=m", { kind: "Secret" }, "kube POST secrets"],
  ["a namespace itself", "DELETE", "/api/v1/namespaces/x", undefined, "kube DELETE namespaces"],
  [
    "a cluster-scoped object",
    "PATCH",
    "/apis/agentworlds.dev/v1alpha1/runtimes/local/status",
    { status: { rescues: [] } },
    "kube PATCH runtimes/status rescues",
  ],
  ["an Event is none", "POST", "/apis/events.k8s.io/v1/namespaces/x/events", {}, undefined],
  ["a review is none", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {}, undefined],
  [
    "a manifest by digest",
    "PUT",
    "/v2/worlds/i/ns/w-1/manifests/sha256:0a",
    undefined,
    "registry PUT manifest by digest",
  ],
  ["a version tag", "PUT", "/v2/worlds/i/ns/w-1/manifests/v12", undefined, "registry PUT manifest v<n>"],
  ["latest", "PUT", "/v2/worlds/i/ns/w-1/manifests/latest", undefined, "registry PUT manifest latest"],
  ["an upload begins", "POST", "/v2/a/b/blobs/uploads/", undefined, "registry POST upload"],
  ["a mount", "POST", "/v2/a/b/blobs/uploads/?mount=sha256:0&from=c", undefined, "registry POST upload by mount"],
  ["a push", "POST", "/v1.41/images/127.0.0.1:5000/worlds/a/push?tag=x", undefined, "engine POST /images/*/push"],
  ["a pull", "POST", "/v1.41/images/create?fromImage=x", undefined, "engine pull"],
  ["a container is made", "POST", "/v1.41/containers/create?name=aw-1", {}, "engine POST /containers/create"],
  ["a container is frozen", "POST", "/v1.41/containers/abc/pause", undefined, "engine POST /containers/*/pause"],
  ["a container is removed", "DELETE", "/v1.41/containers/abc?force=true", undefined, "engine DELETE /containers/*"],
  ["a command is begun", "POST", "/v1.41/exec/abc/start", {}, "engine POST /exec/*/start"],
  ["a commit of a container", "POST", "/v1.41/commit?container=x", {}, "engine POST /commit"],
  ["waiting is none", "POST", "/v1.41/containers/abc/wait", undefined, undefined],
  ["what is none of these has a name all the same", "POST", "/hook", {}, "other POST /hook"],
];

for (const [name, method, target, body, want] of cases) {
  test(name, () => {
    assert.equal(effectOf({ method, target, body: body === undefined ? undefined : JSON.stringify(body) }), want);
  });
}
