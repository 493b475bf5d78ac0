import { attachCluster, type Cluster } from "../../hack/parts/cluster.ts";
import { type ControlPlane, startControlPlane } from "../../hack/parts/control-plane.ts";
import { findAccess, surroundings } from "../../sdk/src/ambient.ts";
import { sharedParts } from "./shared.ts";

/** How a test wants its control plane. */
export interface ControlPlaneWish {
  /** True: a control plane of this test alone, which it may stop, restart and compact. */
  own?: boolean;
  /** Flags added to kube-apiserver; only with `own`. */
  apiServerFlags?: readonly string[];
  /** Limits starting; default 20 minutes, since the first start on a machine compiles Kubernetes. */
  signal?: AbortSignal;
}

/**
 * A local cluster: the shared one where AGENTWORLDS_PARTS names one (dispose then leaves it running), else an own one
 * that dispose ends. A shared cluster is also used by other tests: work in a namespace of your own.
 */
export function controlPlane(wish: ControlPlaneWish & { own: true }): Promise<ControlPlane>;
export function controlPlane(wish?: ControlPlaneWish): Promise<Cluster>;
export async function controlPlane(wish: ControlPlaneWish = {}): Promise<Cluster> {
  const shared = wish.own === true ? undefined : await sharedParts();
  if (shared !== undefined) return attachCluster(shared.controlPlane);
  return startControlPlane({
    signal: wish.signal ?? AbortSignal.timeout(20 * 60_000),
    apiServerFlags: wish.apiServerFlags ?? [],
  });
}

/** A cluster of which nothing is known but how to reach it, with a cluster-admin's client certificate. */
export type ReachableCluster = Pick<Cluster, "kubeconfigPath" | "url" | "caPem"> & AsyncDisposable;

/** What a test needs of a cluster beside its API. */
export interface ClusterWish extends ControlPlaneWish {
  /** True: the CRDs are there for the tests; a cluster with somebody's Agent Worlds is then not used. */
  kinds?: boolean;
}

/**
 * The cluster that somebody lends by env KUBECONFIG (dispose leaves it alone), else the same as `controlPlane()`. Work in a
 * namespace of your own and remove what you made: the cluster may be anybody's.
 */
export async function useCluster(wish: ClusterWish = {}): Promise<ReachableCluster> {
  const { kinds = false, ...local } = wish;
  const lent = (await sharedParts())?.lent;
  if (lent === undefined || (kinds && lent.kinds === "Theirs")) return controlPlane(local);
  const { server } = await findAccess({ kubeconfig: lent.kubeconfig }, surroundings());
  const ca = server.ca?.kind === "Inline" ? server.ca.pem : "";
  return {
    kubeconfigPath: lent.kubeconfig,
    url: server.server,
    caPem: ca,
    async [Symbol.asyncDispose]() {
      // Whoever started it ends it.
    },
  };
}
