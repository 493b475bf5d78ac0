import type { KubeObject } from "../reconciler/list-watch.ts";
import type { ResourceType } from "./contract.ts";

const namespaced = (group: string, version: string, kind: string, plural: string): ResourceType => ({
  group,
  version,
  kind,
  plural,
  namespaced: true,
});

const clusterScoped = (group: string, version: string, kind: string, plural: string): ResourceType => ({
  group,
  version,
  kind,
  plural,
  namespaced: false,
});

export const SECRETS = namespaced("", "v1", "Secret", "secrets");
export const CONFIG_MAPS = namespaced("", "v1", "ConfigMap", "configmaps");
export const SERVICES = namespaced("", "v1", "Service", "services");
export const SERVICE_ACCOUNTS = namespaced("", "v1", "ServiceAccount", "serviceaccounts");
export const NAMESPACES = clusterScoped("", "v1", "Namespace", "namespaces");
export const EVENTS = namespaced("events.k8s.io", "v1", "Event", "events");
export const LEASES = namespaced("coordination.k8s.io", "v1", "Lease", "leases");
export const ROLES = namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles");
export const ROLE_BINDINGS = namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
export const CLUSTER_ROLES = clusterScoped("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
export const CLUSTER_ROLE_BINDINGS = clusterScoped(
  "rbac.authorization.k8s.io",
  "v1",
  "ClusterRoleBinding",
  "clusterrolebindings",
);
export const API_SERVICES = clusterScoped("apiregistration.k8s.io", "v1", "APIService", "apiservices");
export const MUTATING_WEBHOOKS = clusterScoped(
  "admissionregistration.k8s.io",
  "v1",
  "MutatingWebhookConfiguration",
  "mutatingwebhookconfigurations",
);
export const MUTATING_POLICY_BINDINGS = clusterScoped(
  "admissionregistration.k8s.io",
  "v1",
  "MutatingAdmissionPolicyBinding",
  "mutatingadmissionpolicybindings",
);
export const CUSTOM_RESOURCE_DEFINITIONS = clusterScoped(
  "apiextensions.k8s.io",
  "v1",
  "CustomResourceDefinition",
  "customresourcedefinitions",
);

export const WORLDS = namespaced("agentworlds.dev", "v1alpha1", "World", "worlds");
export const SANDBOXES = namespaced("agentworlds.dev", "v1alpha1", "Sandbox", "sandboxes");
export const RUNTIMES = clusterScoped("agentworlds.dev", "v1alpha1", "Runtime", "runtimes");

/** `v1` Secret, as far as it is used. Values of `data` are base64. */
export interface Secret extends KubeObject {
  readonly type?: string;
  readonly data?: Readonly<Record<string, string>>;
}

/** `v1` ConfigMap, as far as it is used. */
export interface ConfigMap extends KubeObject {
  readonly data?: Readonly<Record<string, string>>;
}

/** `v1` Namespace, as far as it is used. */
export interface Namespace extends KubeObject {
  readonly status?: { readonly phase?: "Active" | "Terminating" };
}
