export type { Cluster, RequestHeaderIdentity } from "../../hack/parts/cluster.ts";
export type { ControlPlane } from "../../hack/parts/control-plane.ts";
export { type ControlPlaneWish, controlPlane, type ReachableCluster, useCluster } from "./control-plane.ts";
export { type EventuallyOptions, eventually } from "./wait.ts";
