/** Objects for tests, complete by the schemas, so that a test states only what it is about. */
import type {
  Runtime,
  RuntimeSpec,
  RuntimeStatus,
  Sandbox,
  SandboxSpec,
  SandboxStatus,
  World,
  WorldSpec,
  WorldStatus,
  WorldVersion,
} from "@agentworlds/crds";
import { API_VERSION, runtimeSchema, sandboxSchema, worldSchema } from "@agentworlds/crds";

type Metadata = Partial<Sandbox["metadata"]>;

/** A moment every test can count from. */
export const T0 = Date.UTC(2026, 0, 1);

/** ISO time of `seconds` after `T0`. */
export const at = (seconds: number): string => new Date(T0 + seconds * 1000).toISOString();

/** A digest that a person can tell from others: `sha256:` and one character 64 times. */
export const digest = (character: string): WorldVersion["digest"] => `sha256:${character.repeat(64).slice(0, 64)}`;

export function sandboxOf(
  parts: { metadata?: Metadata; spec?: Partial<SandboxSpec>; status?: Partial<SandboxStatus> } = {},
): Sandbox {
  const source = parts.spec?.image === undefined ? { world: { name: "lab" } } : {};
  return sandboxSchema.parse({
    apiVersion: API_VERSION,
    kind: "Sandbox",
    metadata: { name: "one", namespace: "team", uid: "sandbox-uid", resourceVersion: "1", ...parts.metadata },
    spec: { ...source, ...parts.spec },
    status: { observedGeneration: 1, ...parts.status },
  });
}

export function worldOf(
  parts: { metadata?: Metadata; spec?: Partial<WorldSpec>; status?: Partial<WorldStatus> } = {},
): World {
  return worldSchema.parse({
    apiVersion: API_VERSION,
    kind: "World",
    metadata: { name: "lab", namespace: "team", uid: "world-uid", resourceVersion: "1", ...parts.metadata },
    spec: { from: { image: "busybox:1" }, ...parts.spec },
    status: { observedGeneration: 1, ...parts.status },
  });
}

export function runtimeOf(
  parts: { metadata?: Metadata; spec?: Partial<RuntimeSpec>; status?: Partial<RuntimeStatus> } = {},
): Runtime {
  return runtimeSchema.parse({
    apiVersion: API_VERSION,
    kind: "Runtime",
    metadata: { name: "local", uid: "runtime-uid", resourceVersion: "1", ...parts.metadata },
    spec: { docker: { hosts: [{ name: "a", endpoint: "unix:///run/docker.sock" }] }, ...parts.spec },
    status: { observedGeneration: 1, ...parts.status },
  });
}

/** Version `number` of a World, with a digest of its own. */
export function versionOf(number: number, change: Partial<WorldVersion> = {}): WorldVersion {
  return {
    version: number,
    digest: digest(number.toString(16).padStart(4, "0")),
    operation: `operation-${number}`,
    sizeBytes: 1,
    totalBytes: 1,
    layers: 1,
    createdAt: at(number),
    reason: number === 0 ? "Genesis" : "Deadline",
    consistency: number === 0 ? "Image" : "Frozen",
    description: "",
    causedBy: { user: "ada" },
    ...change,
  };
}
