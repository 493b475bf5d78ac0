import { GROUP, VERSION } from "./discovery.ts";
import { badRequest, Failure } from "./failure.ts";
import type { ObjectRef } from "./status-swap.ts";

/** Everything the gateway does to a Sandbox. */
export type Action = "view" | "exec" | "readFile" | "writeFile" | "touch" | "snapshot" | "close";

/** Everything the gateway does to a World. */
export type WorldAction = "viewRescues" | "askOfRescue" | "exportRescue";

/** A request as RBAC sees it. */
interface Reviewed {
  /** RBAC verb of the HTTP method, as kube-apiserver computes it. */
  readonly verb: "get" | "create" | "update";
  readonly subresource: string | undefined;
  /** Runs code in the session or moves its contents: `create` on the subresource is needed whatever the method. */
  readonly reachesIntoSession: boolean;
}

/** A request about a Sandbox, as the handlers see it. */
export interface Route extends Reviewed {
  readonly resource: "sandboxes";
  readonly action: Action;
  readonly sandbox: ObjectRef;
}

/** A request about a World. */
export interface WorldRoute extends Reviewed {
  readonly resource: "worlds";
  readonly action: WorldAction;
  readonly world: ObjectRef;
  /** Name of the rescue, where the path has one. */
  readonly operation?: string;
}

type Method = { readonly [method: string]: Pick<Route, "action" | "verb" | "reachesIntoSession"> };
type WorldMethod = { readonly [method: string]: Pick<WorldRoute, "action" | "verb" | "reachesIntoSession"> };

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

const worldMethods: Readonly<Record<string, WorldMethod>> = {
  rescues: {
    GET: { action: "viewRescues", verb: "get", reachesIntoSession: false },
    POST: { action: "askOfRescue", verb: "create", reachesIntoSession: false },
  },
  // kube-apiserver lets a subresource of this name run for longer than its 60 seconds; only here may segments follow.
  proxy: { GET: { action: "exportRescue", verb: "get", reachesIntoSession: true } },
};

/**
 * The route of `/apis/<group>/<version>/namespaces/<ns>/sandboxes/<name>[/<subresource>]`. Throws `Failure`: 404 for any
 * other path, 405 for a method the subresource does not have. The same for `worlds`.
 */
export function routeOf(method: string, segments: readonly string[]): Route | WorldRoute {
  const [apis, group, version, namespaces, namespace, resource, name, subresource = "", ...trailing] = segments;
  const isOurs = apis === "apis" && group === GROUP && version === VERSION && namespaces === "namespaces";
  if (!isOurs || namespace === undefined || name === undefined) throw noRoute();
  const object = { namespace, name };
  switch (resource) {
    case "sandboxes": {
      if (trailing.length > 0) throw noRoute();
      const route = pick(methods, { method, subresource, object });
      return { ...route, resource, subresource: subresource === "" ? undefined : subresource, sandbox: object };
    }
    case "worlds": {
      const operation = subresource === "proxy" ? exportedIn(trailing) : undefined;
      if (operation === undefined && trailing.length > 0) throw noRoute();
      const route = pick(worldMethods, { method, subresource, object });
      return { ...route, resource, subresource, world: object, ...(operation === undefined ? {} : { operation }) };
    }
    default:
      throw noRoute();
  }
}

function pick<M>(
  table: Readonly<Record<string, { readonly [method: string]: M }>>,
  { method, subresource, object }: { method: string; subresource: string; object: ObjectRef },
): M {
  const subroute = Object.hasOwn(table, subresource) ? table[subresource] : undefined;
  if (subroute === undefined) throw noRoute();
  if (!isLabel(object.namespace) || !isSubdomain(object.name)) {
    throw badRequest("BadName", "namespace and name must be DNS names as Kubernetes allows them");
  }
  const route = Object.hasOwn(subroute, method) ? subroute[method] : undefined;
  if (route === undefined) throw noMethod(method, Object.keys(subroute));
  return route;
}

/** `rescues/<operation>.tar` behind `proxy`; nothing else is served there. */
function exportedIn([what, file = "", ...more]: readonly string[]): string {
  const operation = /^([A-Za-z0-9][-_.A-Za-z0-9]{0,63})\.tar$/.exec(file)?.[1];
  if (what !== "rescues" || operation === undefined || more.length > 0) throw noRoute();
  return operation;
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
