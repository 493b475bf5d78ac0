export type { BaseImageName } from "../../hack/parts/base-images.ts";
export type { Cluster, RequestHeaderIdentity } from "../../hack/parts/cluster.ts";
export type { ControlPlane } from "../../hack/parts/control-plane.ts";
export type { Engine } from "../../hack/parts/engine.ts";
export type { Registry, RegistryAddress } from "../../hack/parts/registry.ts";
export { type BaseImage, type BaseImageWish, baseImage } from "./base-image.ts";
export {
  type ClusterWish,
  type ControlPlaneWish,
  controlPlane,
  type ReachableCluster,
  useCluster,
} from "./control-plane.ts";
export { type EngineWish, engine, whyNoOwnEngine } from "./engine.ts";
export { type ActiveRule, type Fault, type FaultProxy, type FaultRule, startFaultProxy } from "./fault-proxy.ts";
export { type RegistryWish, registry } from "./registry.ts";
export { type EventuallyOptions, eventually, eventuallyHolds } from "./wait.ts";
