/** What each target of the Makefile needs of the machine. */
import type { BaseImageName } from "./base-images.ts";
import type { ProgramName } from "./binaries.ts";
import { REGISTRY_V2 } from "./registry.ts";
import type { Undertaking } from "./requirements.ts";

/** Where the demo's registry listens; `make up` has the same, so that examples/ fit both. */
export const REGISTRY_PORT = 5055;

const CLUSTER: readonly ProgramName[] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/** `cluster`: one of its own, or the one that env KUBECONFIG names. */
export const demo = (cluster: "Own" | "Given", image: BaseImageName, directory?: string): Undertaking => ({
  name: "make demo",
  kubectl: true,
  compiled: cluster === "Own" ? [...CLUSTER, "registry"] : ["registry"],
  sessions: true,
  images: [image],
  givenCluster: "Taken",
  ...(directory === undefined ? {} : { directory }),
});

export const up = (images: readonly BaseImageName[], port: number, directory?: string): Undertaking => ({
  name: "make up",
  kubectl: false,
  compiled: [...CLUSTER, "registry"],
  sessions: false,
  images,
  port,
  ...(directory === undefined ? {} : { directory }),
});

export const bench: Undertaking = {
  name: "make bench",
  kubectl: true,
  compiled: [...CLUSTER, "registry"],
  sessions: true,
  images: ["busybox"],
  givenCluster: "Lent",
};

export const chaos: Undertaking = { ...bench, name: "make chaos" };

export const test: Undertaking = {
  ...bench,
  name: "make test",
  goTests: true,
  programs: [REGISTRY_V2, { program: "perl", package: "perl-base", purpose: "a registry with a login" }],
};
