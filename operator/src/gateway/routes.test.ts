import assert from "node:assert/strict";
import { test } from "node:test";
import { routeOf } from "./routes.ts";

const base = "apis/sessions.agentworlds.dev/v1alpha1/namespaces/lab/sandboxes/box";
const route = (method: string, path: string) => routeOf(method, path.split("/"));

const known: [method: string, path: string, action: string, verb: string, reaches: boolean][] = [
  ["GET", base, "view", "get", false],
  ["POST", `${base}/exec`, "exec", "create", true],
  ["GET", `${base}/files`, "readFile", "get", true],
  ["PUT", `${base}/files`, "writeFile", "update", true],
  ["POST", `${base}/touch`, "touch", "create", false],
  ["POST", `${base}/snapshot`, "snapshot", "create", false],
  ["POST", `${base}/close`, "close", "create", false],
];
for (const [method, path, action, verb, reachesIntoSession] of known) {
  test(`${method} ${path.slice(base.length) || "the Sandbox"} is ${action}, authorised as ${verb}`, () => {
    const found = route(method, path);
    assert.deepEqual(
      { ...found, subresource: undefined },
      {
        action,
        verb,
        reachesIntoSession,
        subresource: undefined,
        sandbox: { namespace: "lab", name: "box" },
      },
    );
  });
}

const refused: [name: string, method: string, path: string, status: number][] = [
  ["another group", "GET", base.replace("sessions.", ""), 404],
  ["another version", "GET", base.replace("v1alpha1", "v1"), 404],
  ["another resource", "GET", base.replace("sandboxes", "worlds"), 404],
  ["an unknown subresource", "GET", `${base}/attach`, 404],
  ["a subresource named like an object's own method", "GET", `${base}/constructor`, 404],
  ["a segment behind a subresource", "GET", `${base}/files/more`, 404],
  ["a list of all", "GET", "apis/sessions.agentworlds.dev/v1alpha1/namespaces/lab/sandboxes", 404],
  ["the wrong method", "DELETE", base, 405],
  ["a GET of exec, which a WebSocket would be", "GET", `${base}/exec`, 405],
  ["a name that is no DNS name", "GET", base.replace(/box$/, "Box_1"), 400],
  ["a namespace that is no DNS name", "GET", base.replace("lab", "-lab"), 400],
];
for (const [name, method, path, status] of refused) {
  test(`${name} is a ${status}`, () => assert.throws(() => route(method, path), { status }));
}
