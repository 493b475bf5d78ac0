import { GROUP, VERSION } from "./discovery.ts";
import { badRequest, Failure } from "./failure.ts";
import type { SandboxRef } from "./sandbox-store.ts";

/** Everything the gateway does to a Sandbox. */
export type Action = "view" | "exec" | "readFile" | "writeFile" | "touch" | "snapshot" | "close";

/** A request as RBAC and the handlers see it. */
export interface Route {
  readonly action: Action;
  /** RBAC verb of the HTTP method, as kube-apiserver computes it. */
  readonly verb: "get" | "create" | "update";
  readonly subresource: string | undefined;
  /** Runs code in the session or moves its contents: `create` on the subresource is needed whatever the method. */
  readonly reachesIntoSession: boolean;
  readonly sandbox: SandboxRef;
}

type Method = { readonly [method: string]: Pick<Route, "action" | "verb" | "reachesIntoSession"> };

const methods: Readonly<Record<string, Method>> = {
  "": { GET: { action: "view", verb: "get", reachesIntoSession: false } },
  exec: { POST: { action: "exec", verb: "create", reachesIntoSession: true } },
  files: {
    GET: { action: "readFile", verb: "get", reachesIntoSession: true },
    PUT: { action: "writeFile", verb: "update", reachesIntoSession: true },
  },
  touch: { POST: { action: "touch", verb: "create", reachesIntoSession: false } },
  snapshot: { POST: { action: "snapshot", verb: "create", reachesIntoSession: false } },
  close: { POST: { action: "close", verb: "create", reachesIntoSession: false } },
};

/**
 * The route of `/apis/<group>/<version>/namespaces/<ns>/sandboxes/<name>[/<subresource>]`. Throws `Failure`: 404 for any
 * other path, 405 for a method the subresource does not have.
 */
export function routeOf(method: string, segments: readonly string[]): Route {
  const [apis, group, version, namespaces, namespace, resource, name, subresource = "", ...trailing] = segments;
  const known =
    apis === "apis" &&
    group === GROUP &&
    version === VERSION &&
    namespaces === "namespaces" &&
    resource === "sandboxes" &&
    trailing.length === 0;
  const subroute = known && Object.hasOwn(methods, subresource) ? methods[subresource] : undefined;
  if (subroute === undefined || namespace === undefined || name === undefined) throw noRoute();
  if (!isLabel(namespace) || !isSubdomain(name)) {
    throw badRequest("BadName", "namespace and name must be DNS names as Kubernetes allows them");
  }
  const route = Object.hasOwn(subroute, method) ? subroute[method] : undefined;
  if (route === undefined) throw noMethod(method, Object.keys(subroute));
  return { ...route, subresource: subresource === "" ? undefined : subresource, sandbox: { namespace, name } };
}

const isLabel = (text: string): boolean => /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(text);
const isSubdomain = (text: string): boolean =>
  text.length <= 253 && text.split(".").every((part) => /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(part));

const noRoute = (): Failure =>
  new Failure({
    status: 404,
    code: "NoSuchResource",
    message: "the gateway serves no such resource",
    remediation: `read /apis/${GROUP}/${VERSION}`,
  });

const noMethod = (method: string, allowed: readonly string[]): Failure =>
  new Failure({
    status: 405,
    code: "MethodNotAllowed",
    message: `${method} is not a method of this resource`,
    remediation: `use ${allowed.join(" or ")}`,
  });
