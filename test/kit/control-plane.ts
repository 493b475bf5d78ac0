import { attachCluster, type Cluster } from "../../hack/parts/cluster.ts";
import { type ControlPlane, startControlPlane } from "../../hack/parts/control-plane.ts";
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

/** A cluster of which nothing is known but how to reach it. */
export interface ReachableCluster extends AsyncDisposable {
  readonly kubeconfigPath: string;
}

/** The cluster that env KUBECONFIG names (dispose leaves it alone), else the same as `controlPlane()`. */
export async function useCluster(wish: ControlPlaneWish = {}): Promise<ReachableCluster> {
  const given = process.env["KUBECONFIG"];
  if (given === undefined || given === "") return controlPlane(wish);
  return {
    kubeconfigPath: given,
    async [Symbol.asyncDispose]() {
      // Whoever started it ends it.
    },
  };
}
