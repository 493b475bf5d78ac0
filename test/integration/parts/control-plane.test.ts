import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { type ControlPlane, controlPlane, eventually } from "../../kit/index.ts";
import { callCluster } from "./cluster-call.ts";
import { leftoversOf, nothing } from "./leftovers.ts";

let cluster: ControlPlane;

before(async () => {
  // Without the watch cache a compaction is felt at once.
  cluster = await controlPlane({ own: true, apiServerFlags: ["--watch-cache=false"] });
});

after(async () => {
  await cluster[Symbol.asyncDispose]();
  assert.deepEqual(await leftoversOf(cluster.directory), nothing);
});

const inDefault = "/api/v1/namespaces/default";

test("it is Kubernetes 1.37.2 and says so", async () => {
  const { json } = await callCluster(cluster.kubeconfigPath, { path: "/version" });
  assert.equal(json["gitVersion"], "v1.37.2");
});

test("RBAC decides: a stranger is refused, a group of administrators is not", async () => {
  const stranger = await cluster.kubeconfigFor({ user: "mallory" });
  const member = await cluster.kubeconfigFor({ user: "alice", groups: ["system:masters"] });
  assert.equal((await callCluster(stranger, { path: `${inDefault}/secrets` })).status, 403);
  assert.equal((await callCluster(member, { path: `${inDefault}/secrets` })).status, 200);
});

test("the audit log says who did what", async () => {
  const auditor = await cluster.kubeconfigFor({ user: "audited-person" });
  await callCluster(auditor, { path: `${inDefault}/configmaps` });
  const line = await eventually(async () =>
    (await readFile(cluster.auditLogPath, "utf8")).split("\n").find((text) => text.includes('"audited-person"')),
  );
  const entry = JSON.parse(line);
  assert.deepEqual([entry.verb, entry.objectRef.resource, entry.responseStatus.code], ["list", "configmaps", 403]);
});

test("the request-header CA and the allowed name are published for aggregated APIs", async () => {
  const path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
  const { json } = await callCluster(cluster.kubeconfigPath, { path });
  const data = json["data"];
  assert.ok(typeof data === "object" && data !== null && "requestheader-client-ca-file" in data);
  assert.equal(data["requestheader-client-ca-file"], cluster.requestHeader.caPem);
  assert.ok("requestheader-allowed-names" in data);
  assert.equal(data["requestheader-allowed-names"], JSON.stringify([cluster.requestHeader.allowedName]));
});

test("a service account gets a token, and the token works", async () => {
  const path = `${inDefault}/serviceaccounts/default/token`;
  const asked = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} };
  const { status, json } = await callCluster(cluster.kubeconfigPath, { method: "POST", path, body: asked });
  assert.equal(status, 201);
  const granted = json["status"];
  assert.ok(typeof granted === "object" && granted !== null && "token" in granted);
  const who = await callCluster(cluster.kubeconfigPath, {
    method: "POST",
    path: "/apis/authentication.k8s.io/v1/tokenreviews",
    body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token: granted.token } },
  });
  assert.match(JSON.stringify(who.json["status"]), /"authenticated":true.*system:serviceaccount:default:default/);
});

test("a namespace is deleted with what is in it", async () => {
  const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: "short-lived" } };
  await callCluster(cluster.kubeconfigPath, { method: "POST", path: "/api/v1/namespaces", body });
  await callCluster(cluster.kubeconfigPath, { method: "DELETE", path: "/api/v1/namespaces/short-lived" });
  await eventually(
    async () => (await callCluster(cluster.kubeconfigPath, { path: "/api/v1/namespaces/short-lived" })).status === 404,
  );
});

test("after a compaction an old continue token and an old watch are 410", async () => {
  for (const name of ["one", "two", "three"]) {
    const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name } };
    await callCluster(cluster.kubeconfigPath, { method: "POST", path: `${inDefault}/configmaps`, body });
  }
  const page = await callCluster(cluster.kubeconfigPath, { path: `${inDefault}/configmaps?limit=1` });
  const metadata = page.json["metadata"];
  assert.ok(
    typeof metadata === "object" && metadata !== null && "continue" in metadata && "resourceVersion" in metadata,
  );
  const next = `${inDefault}/configmaps?limit=1&continue=${metadata.continue}`;
  assert.equal((await callCluster(cluster.kubeconfigPath, { path: next })).status, 200);
  // Two, so that the compacted revision is later than the first that the watch asks for.
  for (const name of ["one", "two"]) {
    await callCluster(cluster.kubeconfigPath, { method: "DELETE", path: `${inDefault}/configmaps/${name}` });
  }
  await cluster.compact();
  assert.equal((await callCluster(cluster.kubeconfigPath, { path: next })).status, 410);
  const watch = `${inDefault}/configmaps?watch=1&timeoutSeconds=5&resourceVersion=${metadata.resourceVersion}`;
  const { text } = await callCluster(cluster.kubeconfigPath, { path: watch });
  assert.match(text, /^\{"type":"ERROR".*"code":410/);
});

test("a restarted API server has the same address, the same data and the same identities", async () => {
  const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "kept" } };
  await callCluster(cluster.kubeconfigPath, { method: "POST", path: `${inDefault}/configmaps`, body });
  await cluster.stopApiServer();
  await assert.rejects(callCluster(cluster.kubeconfigPath, { path: "/readyz" }), { code: "ECONNREFUSED" });
  await cluster.startApiServer();
  assert.equal((await callCluster(cluster.kubeconfigPath, { path: `${inDefault}/configmaps/kept` })).status, 200);
});
