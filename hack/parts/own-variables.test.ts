// `make up` right after `make down` refused: the shell still had the DOCKER_HOST that the first one had printed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ownVariables } from "./own-variables.ts";

const DOCKER_HOST = "unix:///repo/.local/engine/docker.sock";
const KUBECONFIG = "/repo/.local/control-plane/admin.kubeconfig";

const cases: [promise: string, env: NodeJS.ProcessEnv, own: string[]][] = [
  ["both of them are of `make up`", { DOCKER_HOST, KUBECONFIG }, ["DOCKER_HOST", "KUBECONFIG"]],
  ["an engine of somebody else stays in force", { DOCKER_HOST: "unix:///run/docker.sock", KUBECONFIG }, ["KUBECONFIG"]],
  ["another clone's parts are somebody else's", { DOCKER_HOST: DOCKER_HOST.replace("repo", "other") }, []],
  ["nothing set", {}, []],
];
for (const [promise, env, own] of cases) {
  test(promise, () => assert.deepEqual(ownVariables(env, { directory: "/repo/.local" }), own));
}
