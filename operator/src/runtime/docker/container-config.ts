import type { ComputeSpec } from "../contract.ts";
import { HELPER_MOUNT, HELPER_PATH } from "../helper.ts";
import { ENGINE_LABEL, IMAGE_LABEL, labelsOf } from "./labels.ts";

/** Longest host name Linux takes, less its final NUL. */
const MAX_HOSTNAME = 63;
const NANO = 1e9;

/** What the container finds on its host. */
export interface HostParts {
  readonly helperVolume: string;
  readonly network: string;
  /** The engine's id. */
  readonly engine: string;
}

/**
 * The body of the create call: PID 1 is the helper, safe defaults of DESIGN §3, no mount but the helper's volume.
 * The session's environment is not in it: an engine copies a container's config into the image of a commit.
 */
export function containerConfig(spec: ComputeSpec, host: HostParts): unknown {
  const { cpus, memoryBytes, pids } = spec.limits;
  return {
    Image: spec.image,
    Hostname: spec.owner.sandbox.slice(0, MAX_HOSTNAME).replace(/[-.]+$/, ""),
    // PID 1 as root is out of reach of a session whose user is not; commands run as the image's user.
    User: "0:0",
    Entrypoint: [HELPER_PATH, "init"],
    Cmd: [],
    Healthcheck: { Test: ["NONE"] },
    Labels: { ...labelsOf(spec.owner), [ENGINE_LABEL]: host.engine, [IMAGE_LABEL]: spec.image },
    // PID 1 ignores every signal it can: an engine that shuts down need not wait for it.
    StopSignal: "SIGKILL",
    HostConfig: {
      RestartPolicy: { Name: "no" },
      AutoRemove: false,
      Init: false,
      Privileged: false,
      SecurityOpt: ["no-new-privileges"],
      PidsLimit: pids,
      ...(cpus === undefined ? {} : { NanoCpus: Math.round(cpus * NANO) }),
      // Equal values: the limit holds for memory and swap together.
      ...(memoryBytes === undefined ? {} : { Memory: memoryBytes, MemorySwap: memoryBytes }),
      ...(spec.isolation.ociRuntime === undefined ? {} : { Runtime: spec.isolation.ociRuntime }),
      LogConfig: { Type: "none" },
      NetworkMode: host.network,
      Mounts: [
        {
          Type: "volume",
          Source: host.helperVolume,
          Target: HELPER_MOUNT,
          ReadOnly: true,
          VolumeOptions: { NoCopy: true },
        },
      ],
    },
  };
}
