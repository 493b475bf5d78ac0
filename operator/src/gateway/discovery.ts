/** The aggregated API's group. A group of its own: under the CRDs' group a subresource is 404. */
export const GROUP = "sessions.agentworlds.dev";
export const VERSION = "v1alpha1";
export const GROUP_VERSION = `${GROUP}/${VERSION}` as const;

const groupVersion = { groupVersion: GROUP_VERSION, version: VERSION };
const group = { name: GROUP, versions: [groupVersion], preferredVersion: groupVersion };

/** One entry of an APIResourceList. Parents are listed too, or `kubectl create role` refuses their subresources. */
interface ApiResource {
  readonly name: string;
  readonly singularName: string;
  readonly namespaced: true;
  readonly kind: string;
  readonly verbs: readonly string[];
}

const resources: readonly ApiResource[] = [
  { name: "sandboxes", singularName: "sandboxsession", namespaced: true, kind: "SandboxSession", verbs: ["get"] },
  { name: "sandboxes/exec", singularName: "", namespaced: true, kind: "Exec", verbs: ["create"] },
  { name: "sandboxes/files", singularName: "", namespaced: true, kind: "File", verbs: ["create", "get", "update"] },
  { name: "sandboxes/touch", singularName: "", namespaced: true, kind: "Touch", verbs: ["create"] },
  { name: "sandboxes/snapshot", singularName: "", namespaced: true, kind: "Snapshot", verbs: ["create"] },
  { name: "sandboxes/close", singularName: "", namespaced: true, kind: "Close", verbs: ["create"] },
  { name: "worlds", singularName: "worldsession", namespaced: true, kind: "WorldSession", verbs: [] },
  { name: "worlds/rescues", singularName: "", namespaced: true, kind: "RescueList", verbs: ["create", "get"] },
  { name: "worlds/proxy", singularName: "", namespaced: true, kind: "Archive", verbs: ["create", "get"] },
];

/** The legacy discovery documents by path; `undefined` for any other path. */
export function discoveryDocument(segments: readonly string[]): unknown {
  switch (segments.join("/")) {
    case "apis":
      return { kind: "APIGroupList", apiVersion: "v1", groups: [group] };
    case `apis/${GROUP}`:
      return { kind: "APIGroup", apiVersion: "v1", ...group };
    case `apis/${GROUP_VERSION}`:
      return { kind: "APIResourceList", apiVersion: "v1", groupVersion: GROUP_VERSION, resources };
    default:
      return undefined;
  }
}
