import * as z from "zod";
import type { KindDefinition, KindResource } from "./definition.ts";
import { AGE_COLUMN, objectSchemas, REASON_COLUMN, readyColumn, resourceOf, UNOBSERVED } from "./kind.ts";
import { conditions, LIMITS, observedGeneration, platform } from "./object.ts";
import { rescueFields } from "./rescue.ts";
import {
  count,
  exactlyOne,
  hasExactlyOne,
  integer,
  list,
  listByKey,
  MAX_DURATION_SECONDS,
  matching,
  quantity,
  rule,
  seconds,
  text,
  time,
  word,
} from "./schema.ts";

const HOSTS_MAX = 32;
const SELECTOR_MAX = 32;
const CAPABILITIES_MAX = 32;

/** Most OCI runtimes that are told of a host. */
export const OCI_RUNTIMES_MAX = 32;
const OCI_RUNTIME = /^[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$/;
const OCI_RUNTIME_LENGTH = 64;

/** Whether it can be the name of an OCI runtime. */
export const isOciRuntime = (name: string): boolean => name.length <= OCI_RUNTIME_LENGTH && OCI_RUNTIME.test(name);

const ENDPOINT =
  /^(unix:\/\/(\/[^/\s]+)+|tcp:\/\/([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:.]+\]):[0-9]{1,5})$/;

const hostName = () =>
  matching(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, {
    max: 63,
    message: "must be lower-case letters, digits and '-', beginning and ending with a letter or digit",
  });

const hostSchema = rule(
  z.object({
    name: hostName().describe("Name of the host, unique in the Runtime; recorded with every container."),
    endpoint: matching(ENDPOINT, {
      max: 512,
      message: "must be unix:///path/to/socket or tcp://host:port",
    }).describe("Where its Engine API answers: `unix:///path/to/socket` or `tcp://host:port`."),
    tlsSecretRef: z
      .object({
        name: matching(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/, {
          max: 253,
          message: "must be the name of a Secret in the operator's namespace",
        }).describe("Name of a Secret in the operator's namespace."),
      })
      .exactOptional()
      .describe(
        "Secret with `tls.crt`, `tls.key` and `ca.crt` for a `tcp://` endpoint. Unset: the connection is not encrypted.",
      ),
  }),
  {
    rule: "!has(self.tlsSecretRef) || self.endpoint.startsWith('tcp://')",
    message: "tlsSecretRef belongs to a tcp:// endpoint only",
    fieldPath: ".tlsSecretRef",
  },
  (host) => host.tlsSecretRef === undefined || host.endpoint.startsWith("tcp://"),
);

const labelKey = () =>
  matching(/^([a-z0-9]([-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/, {
    max: 317,
    message: "must be a label key, such as team or example.com/team",
  });

const requirementSchema = rule(
  z.object({
    key: labelKey().describe("Label key."),
    operator: z.enum(["In", "NotIn", "Exists", "DoesNotExist"]).describe("How `values` are compared."),
    values: list(text(63), SELECTOR_MAX).exactOptional().describe("For `In` and `NotIn`: at least one; else none."),
  }),
  {
    rule: "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
    message: "values must be set for In and NotIn and must not be set for Exists and DoesNotExist",
    fieldPath: ".values",
  },
  (requirement) =>
    (requirement.operator === "In" || requirement.operator === "NotIn") === (requirement.values ?? []).length > 0,
);

const labelsSchema = z
  .record(z.string().max(317), text(63))
  .refine((labels) => Object.keys(labels).length <= SELECTOR_MAX, { error: `must have at most ${SELECTOR_MAX} labels` })
  .meta({ maxProperties: SELECTOR_MAX });

const selectorSchema = z
  .object({
    matchLabels: labelsSchema.exactOptional().describe("Labels the namespace must have; at most 32."),
    matchExpressions: list(requirementSchema, SELECTOR_MAX)
      .exactOptional()
      .describe("Further requirements, all of which must hold; at most 32."),
  })
  .meta({ "x-kubernetes-map-type": "atomic" });

const isolationSchema = z.object({
  ociRuntime: matching(OCI_RUNTIME, {
    max: OCI_RUNTIME_LENGTH,
    message: "must be the name of an OCI runtime that the host's engine knows, such as runsc",
  })
    .exactOptional()
    .describe("OCI runtime by its name on the hosts, for example `runsc`. Unset: the host's default."),
  network: z
    .enum(["Isolated", "None"])
    .default("Isolated")
    .describe("`Isolated`: a network of its own without traffic between containers. `None`: loopback only."),
  pidsLimit: integer(16, 4_194_304)
    .default(512)
    .describe("Most processes and threads of one container; 16 to 4194304."),
  memory: quantity().default("2Gi").describe("Memory limit of a Sandbox that states none."),
  cpu: quantity().exactOptional().describe("CPU limit of a Sandbox that states none. Unset: no limit."),
});

export const runtimeSpecSchema = rule(
  z.object({
    docker: z
      .object({
        hosts: listByKey(hostSchema, { max: HOSTS_MAX, key: "name" })
          .min(1)
          .describe("Hosts with a Docker Engine; 1 to 32."),
      })
      .exactOptional()
      .describe("Containers on Docker hosts."),
    selection: z
      .enum(["Default", "ByName"])
      .default("ByName")
      .describe(
        "`Default`: used where neither Sandbox nor World names a Runtime; two defaults for one namespace are refused. `ByName`: only where named.",
      ),
    namespaces: selectorSchema
      .exactOptional()
      .describe("Labels of the namespaces that may use it. Unset or empty: every namespace."),
    scheduling: z
      .enum(["Enabled", "Cordoned"])
      .default("Enabled")
      .describe("`Cordoned`: no new compute; what runs hibernates within `drainSeconds`."),
    drainSeconds: seconds(0)
      .default(300)
      .describe(
        "Seconds after a cordon until the sessions that run are hibernated; 0 to 2592000 (30 days). Lifting the cordon before that cancels it.",
      ),
    hostLossSeconds: seconds()
      .default(7200)
      .describe(
        "Seconds of silence after which a host counts as gone for good, and the work of its sessions as a rescue on it; 1 to 2592000 (30 days).",
      ),
    capacity: z
      .object({
        maxSandboxes: integer(1, 10_000).default(20).describe("Most Sandboxes with compute at one time; 1 to 10000."),
      })
      .default({ maxSandboxes: 20 })
      .describe("How much may run."),
    isolation: isolationSchema
      .default({ network: "Isolated", pidsLimit: 512, memory: "2Gi" })
      .describe("How containers are fenced in. No extra capabilities and no new privileges, always."),
    imageCache: z
      .object({
        keepImages: integer(0, 1000)
          .default(10)
          .describe("Images of versions kept on each host while no Sandbox uses them; 0 to 1000."),
      })
      .default({ keepImages: 10 })
      .describe("Images kept on the hosts."),
    rescueSeconds: integer(1, MAX_DURATION_SECONDS)
      .default(86_400)
      .describe("Seconds a stopped container is kept when its work could not be published; 1 to 2592000 (30 days)."),
  }),
  { rule: exactlyOne("docker"), message: "exactly one kind of host must be set: docker" },
  (spec) => hasExactlyOne(spec, "docker"),
);

const capabilities = () => list(word(64), CAPABILITIES_MAX);
const ociRuntimes = () => list(word(OCI_RUNTIME_LENGTH), OCI_RUNTIMES_MAX);

const hostStatusSchema = z.object({
  name: word(63).describe("Name of the host in `spec`."),
  state: z.enum(["Reachable", "Unreachable"]).describe("Whether its last probe was answered."),
  version: word(64).exactOptional().describe("Engine version."),
  platform: platform().exactOptional().describe("Platform of its containers."),
  capabilities: capabilities().exactOptional().describe("What it can do."),
  ociRuntimes: ociRuntimes().exactOptional().describe("OCI runtimes that its engine knows."),
  message: text(LIMITS.message).exactOptional().describe("Why it is unreachable or lacks a capability."),
  unreachableAt: time().exactOptional().describe("Since when it does not answer; absent while it does."),
  used: count().describe("Sandboxes with compute there."),
});

const runtimeRescueSchema = z.object({
  ...rescueFields,
  namespace: word(63).describe("Namespace of the Sandbox; it may be gone."),
  world: word(63).exactOptional().describe("Name of the World."),
  worldUid: word(64).exactOptional().describe("UID of the World."),
});

export const runtimeStatusSchema = z.object({
  observedGeneration: observedGeneration(),
  conditions: conditions(),
  capabilities: capabilities().exactOptional().describe("What every reachable host can do."),
  ociRuntimes: ociRuntimes()
    .exactOptional()
    .describe("OCI runtimes that every reachable host knows; `spec.isolation.ociRuntime` must be one of them."),
  platform: platform().exactOptional().describe("Platform of the hosts."),
  version: word(64).exactOptional().describe("Oldest engine version among the reachable hosts."),
  hostsReachable: word(16)
    .exactOptional()
    .describe("Hosts that answer, of all; `2/3` for example. Derived, for `kubectl get` only."),
  hosts: listByKey(hostStatusSchema, { max: HOSTS_MAX, key: "name" })
    .exactOptional()
    .describe("What is known of each host."),
  cordonedAt: time()
    .exactOptional()
    .describe("When the cordon was seen; `drainSeconds` count from here. Absent while `scheduling` is `Enabled`."),
  capacity: z
    .object({
      total: count().describe("Sandboxes it takes."),
      used: count().describe("Sandboxes with compute now."),
    })
    .exactOptional()
    .describe("How much runs."),
  rescues: list(runtimeRescueSchema, LIMITS.rescues * 4)
    .exactOptional()
    .describe("Containers kept because their work could not be published; at most 64."),
});

const schemas = objectSchemas("Runtime", { spec: runtimeSpecSchema, status: runtimeStatusSchema.default(UNOBSERVED) });

/** A Runtime as the API server returns it. */
export const runtimeSchema = schemas.stored;

/** A Runtime that is about to be created. */
export const newRuntimeSchema = schemas.fresh;

export type RuntimeSpec = z.infer<typeof runtimeSpecSchema>;
export type RuntimeStatus = z.infer<typeof runtimeStatusSchema>;
export type Runtime = z.infer<typeof runtimeSchema>;
export type NewRuntime = z.input<typeof newRuntimeSchema>;
export type RuntimeHost = z.infer<typeof hostSchema>;
export type RuntimeHostStatus = z.infer<typeof hostStatusSchema>;
export type RuntimeRescue = z.infer<typeof runtimeRescueSchema>;
export type NamespaceSelector = z.infer<typeof selectorSchema>;

export const runtimeDefinition: KindDefinition = {
  kind: "Runtime",
  plural: "runtimes",
  singular: "runtime",
  shortName: "rt",
  scope: "Cluster",
  description: "A Runtime is a set of container hosts on which Sandboxes run.",
  spec: runtimeSpecSchema,
  status: runtimeStatusSchema,
  columns: [
    readyColumn("Whether it takes Sandboxes."),
    { name: "Used", type: "integer", jsonPath: ".status.capacity.used", description: "Sandboxes with compute." },
    { name: "Total", type: "integer", jsonPath: ".status.capacity.total", description: "Sandboxes it takes." },
    { name: "Hosts", type: "string", jsonPath: ".status.hostsReachable", description: "Hosts that answer, of all." },
    REASON_COLUMN,
    {
      name: "Platform",
      type: "string",
      jsonPath: ".status.platform",
      description: "Platform of its hosts.",
      priority: 1,
    },
    { name: "Version", type: "string", jsonPath: ".status.version", description: "Engine version.", priority: 1 },
    {
      name: "Scheduling",
      type: "string",
      jsonPath: ".spec.scheduling",
      description: "Enabled or Cordoned.",
      priority: 1,
    },
    AGE_COLUMN,
  ],
};

export const RUNTIMES: KindResource = resourceOf(runtimeDefinition);
