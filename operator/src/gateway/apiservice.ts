/** The objects that make kube-apiserver forward the sessions API to the gateways. */

import { API_SERVICES, SERVICES } from "../kube/resource-types.ts";
import type { KubeObject } from "../reconciler/list-watch.ts";
import { GROUP, VERSION } from "./discovery.ts";
import { encodePem, OWNED, type Signpost } from "./signpost.ts";

/** Name of the APIService; rights to it are granted by this name. */
export const API_SERVICE = `${VERSION}.${GROUP}`;
/** Name of the Service in the installation's namespace. */
export const GATEWAY_SERVICE = "agent-worlds-gateway";

interface ApiService extends KubeObject {
  readonly spec?: { readonly service?: { readonly port?: number } };
}

/** The APIService of the sessions API; it leads to a port of the gateways' Service. */
export function apiService(namespace: string): Signpost {
  return {
    what: "the aggregated API",
    type: API_SERVICES,
    ref: { name: API_SERVICE },
    portOf: (present: ApiService) => present.spec?.service?.port,
    wanted: ({ port, caBundle }) => ({
      apiVersion: "apiregistration.k8s.io/v1",
      kind: "APIService",
      metadata: { name: API_SERVICE, labels: OWNED },
      spec: {
        group: GROUP,
        version: VERSION,
        // Below the CRDs' own (1000): a high one would hijack `kubectl get sandboxes`.
        groupPriorityMinimum: 100,
        versionPriority: 10,
        caBundle: encodePem(caBundle),
        service: { namespace, name: GATEWAY_SERVICE, port },
      },
    }),
  };
}

/** Outside a cluster: the Service that points at the gateways' host. In a cluster the chart's selects their pods. */
export function externalService(namespace: string, host: string): Signpost {
  const ref = { namespace, name: GATEWAY_SERVICE };
  return {
    what: "the way to this machine",
    type: SERVICES,
    ref,
    // Of type ExternalName it has no ports: whoever names it names the port.
    portOf: () => undefined,
    wanted: () => ({
      apiVersion: "v1",
      kind: "Service",
      metadata: { ...ref, labels: OWNED },
      spec: { type: "ExternalName", externalName: host },
    }),
  };
}
