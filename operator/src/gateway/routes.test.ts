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
        resource: "sandboxes",
        subresource: undefined,
        sandbox: { namespace: "lab", name: "box" },
      },
    );
  });
}

const world = base.replace("sandboxes", "worlds");
const ofWorlds: [method: string, path: string, action: string, verb: string, reaches: boolean, operation?: string][] = [
  ["GET", `${world}/rescues`, "viewRescues", "get", false],
  ["POST", `${world}/rescues`, "askOfRescue", "create", false],
  ["GET", `${world}/proxy/rescues/6f2c-1.tar`, "exportRescue", "get", true, "6f2c-1"],
];
for (const [method, path, action, verb, reachesIntoSession, operation] of ofWorlds) {
  test(`${method} ${path.slice(world.length)} of a World is ${action}, authorised as ${verb}`, () => {
    const found = route(method, path);
    assert.deepEqual(
      { ...found, subresource: undefined },
      {
        action,
        verb,
        reachesIntoSession,
        resource: "worlds",
        subresource: undefined,
        world: { namespace: "lab", name: "box" },
        ...(operation === undefined ? {} : { operation }),
      },
    );
  });
}

const refused: [name: string, method: string, path: string, status: number][] = [
  ["another group", "GET", base.replace("sessions.", ""), 404],
  ["another version", "GET", base.replace("v1alpha1", "v1"), 404],
  ["another resource", "GET", base.replace("sandboxes", "runtimes"), 404],
  ["a World itself", "GET", base.replace("sandboxes", "worlds"), 404],
  ["a segment behind a World's rescues", "GET", `${world}/rescues/one`, 404],
  ["a World's proxy without more", "GET", `${world}/proxy`, 404],
  ["something else behind a World's proxy", "GET", `${world}/proxy/files/one.tar`, 404],
  ["a rescue that is no archive", "GET", `${world}/proxy/rescues/one`, 404],
  ["more behind a rescue's archive", "GET", `${world}/proxy/rescues/one.tar/more`, 404],
  ["a Sandbox's proxy", "GET", `${base}/proxy/rescues/one.tar`, 404],
  ["a PUT of rescues", "PUT", `${world}/rescues`, 405],
  ["a POST of an archive", "POST", `${world}/proxy/rescues/one.tar`, 405],
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
